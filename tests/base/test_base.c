#include "base/base.h"
#include "check.h"

TEST(a_failure_keeps_its_text)
{
    CHECK_ERROR(fail(RAIA_EIO, "cannot read %s", "x"), RAIA_EIO, "cannot read x");
    CHECK_ERROR(fail_in(RAIA_EIO, "rank %d", 3), RAIA_EIO, "rank 3: cannot read x");
}

TEST(a_folder_is_made_with_its_parents_and_an_empty_name_is_refused)
{
    char *dir;
    CHECK_OK(dir_make_temp("raia-test", &dir));
    char *inner = path_join(dir, "a/b/c");
    CHECK_OK(dir_make(inner, 0700));
    CHECK(dir_exists(inner));
    CHECK_ERROR(dir_make("", 0700), RAIA_EINVAL, "empty");
    CHECK_OK(dir_remove(dir));
    CHECK(!dir_exists(dir));
    free(inner);
    free(dir);
}

TEST_MAIN
