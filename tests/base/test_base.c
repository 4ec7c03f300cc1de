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

TEST(files_of_the_kernel_are_read_whole_though_their_size_is_unknown)
{
    char *text;
    size_t len;
    CHECK_OK(file_read("/proc/sys/kernel/random/boot_id", 64, &text, &len));
    CHECK_INT(len, 37);
    CHECK_INT(text[36], '\n');
    free(text);
    CHECK_OK(file_read("/sys/class/net/lo/mtu", 64, &text, &len));
    CHECK(len > 1 && len < 16);
    free(text);
    CHECK_ERROR(file_read("/proc/self/status", 16, &text, &len), RAIA_EFORMAT,
                "/proc/self/status has more than the 16 bytes that are allowed");
}

TEST_MAIN
