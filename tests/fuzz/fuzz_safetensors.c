/* fuzz_safetensors: any bytes as a safetensors file. Whatever is accepted must be readable. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct st_folder *folder)
{
    enum { COUNT = 512 };
    static int64_t out[COUNT];
    for (int i = 0; i < st_count(folder); i++) {
        const struct st_tensor *tensor = st_at(folder, i);
        if (st_find(folder, tensor->name) != tensor)
            abort();
        if (tensor->dtype == RAIA_DTYPE_COUNT)
            continue;
        uint64_t elements = tensor->bytes / raia_dtype_size(tensor->dtype);
        size_t n = elements < COUNT ? (size_t)elements : COUNT;
        if (st_read(folder, tensor, elements - n, n, tensor->dtype, out) != RAIA_OK)
            abort();
        if (st_read(folder, tensor, elements, 1, tensor->dtype, out) != RAIA_EINVAL)
            abort();
        if (tensor->dtype == RAIA_BF16 && st_read(folder, tensor, 0, n, RAIA_F16, out) != RAIA_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct st_folder *folder = NULL;
    if (st_open(path, &folder) == RAIA_OK)
        read_all(folder);
    else if (raia_error()[0] == '\0')
        abort();
    st_close(folder);
    close(fd);
    return 0;
}
