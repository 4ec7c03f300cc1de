/* Finding and loading libfabric. */
#include "fabric/wire_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The version of the symbols whose structures these headers describe; newer libraries keep the
 * older symbols. */
#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 20
#define INFO_VERSION "FABRIC_1.3"
#elif FI_MAJOR_VERSION == 1
#define INFO_VERSION "FABRIC_1.7"
#elif FI_MAJOR_VERSION == 2 && FI_MINOR_VERSION < 5
#define INFO_VERSION "FABRIC_1.8"
#else
#define INFO_VERSION "FABRIC_1.9"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wire_lib lib; /* guarded by lock until loaded is true */
static bool loaded;

static const char *const places[] = {
    "/opt/amazon/efa/lib64/libfabric.so.1",
    "/opt/amazon/efa/lib/x86_64-linux-gnu/libfabric.so.1",
    "/opt/amazon/efa/lib/libfabric.so.1",
    "libfabric.so.1",
};

static void *open_library(void)
{
    const char *given = env_get("RAIA_LIBFABRIC", NULL);
    if (given != NULL)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *handle = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && handle == NULL; i++)
        if (places[i][0] != '/' || file_exists(places[i]))
            handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static raia_status find(void *handle, const char *name, const char *version, void *slot)
{
    void *symbol = dlvsym(handle, name, version);
    if (symbol == NULL)
        symbol = dlsym(handle, name); /* a build without symbol versions */
    if (symbol == NULL)
        return fail(RAIA_EFABRIC, "libfabric has no %s: %s", name, dlerror());
    memcpy(slot, &symbol, sizeof symbol);
    return RAIA_OK;
}

static raia_status find_all(void *handle)
{
    RAIA_TRY(find(handle, "fi_getinfo", INFO_VERSION, &lib.getinfo));
    RAIA_TRY(find(handle, "fi_freeinfo", INFO_VERSION, &lib.freeinfo));
    RAIA_TRY(find(handle, "fi_dupinfo", INFO_VERSION, &lib.dupinfo));
    RAIA_TRY(find(handle, "fi_fabric", "FABRIC_1.1", &lib.fabric));
    RAIA_TRY(find(handle, "fi_strerror", "FABRIC_1.0", &lib.strerror));
    RAIA_TRY(find(handle, "fi_version", "FABRIC_1.0", &lib.version));
    Dl_info info;
    void *symbol;
    memcpy(&symbol, &lib.getinfo, sizeof symbol);
    if (dladdr(symbol, &info) != 0 && info.dli_fname != NULL)
        snprintf(lib.path, sizeof lib.path, "%s", info.dli_fname);
    return RAIA_OK;
}

static raia_status load(void)
{
    /* Two nodes of one host must not meet in EFA's own shared memory: their bytes would pass no
     * device. */
    setenv("FI_EFA_ENABLE_SHM_TRANSFER", "0", 0);
    void *handle = open_library();
    if (handle == NULL)
        return fail(RAIA_EFABRIC,
                    "cannot load libfabric (%s); install libfabric1, or name the file in "
                    "RAIA_LIBFABRIC",
                    dlerror());
    RAIA_TRY(find_all(handle));
    loaded = true;
    return RAIA_OK;
}

raia_status wire_lib_load(const struct wire_lib **out)
{
    pthread_mutex_lock(&lock);
    raia_status status = loaded ? RAIA_OK : load();
    pthread_mutex_unlock(&lock);
    *out = &lib;
    return status;
}
