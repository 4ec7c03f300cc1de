#include "base/base.h"
#include "check.h"

TEST(a_failure_keeps_its_text)
{
    CHECK_ERROR(fail(RAIA_EIO, "cannot read %s", "x"), RAIA_EIO, "cannot read x");
    CHECK_ERROR(fail_in(RAIA_EIO, "rank %d", 3), RAIA_EIO, "rank 3: cannot read x");
}

TEST_MAIN
