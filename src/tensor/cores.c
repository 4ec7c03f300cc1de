/* How many cores this process may use: its affinity mask, cut by the CPU quota of its cgroups
 * (version 2: cpu.max, version 1: cpu.cfs_quota_us), which a container sets. */
#include "base/base.h"
#include "tensor/tensor.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static int affinity_cores(void)
{
    int cores = 1;
    for (int room = 1024; room <= 1 << 20; room *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)room);
        if (set == NULL)
            break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)room);
        bool fits = sched_getaffinity(0, bytes, set) == 0;
        if (fits)
            cores = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (fits)
            break;
    }
    return cores;
}

/* The number in FOLDER/FILE, or its first of two, the second in *PERIOD; negative: none or no
 * limit. */
static double quota_read(const char *folder, const char *file, double *period)
{
    char *path = path_join(folder, file), *text = NULL;
    size_t len;
    double quota = -1.0;
    if (path != NULL && file_exists(path) && file_read(path, 4096, &text, &len) == RAIA_OK) {
        char *end;
        quota = strtod(text, &end);
        if (end == text) /* "max" */
            quota = -1.0;
        else if (period != NULL && *end == ' ')
            *period = strtod(end, NULL);
    }
    free(text);
    free(path);
    return quota;
}

/* Cores that one cgroup folder allows; INFINITY when it sets no limit. */
static double folder_cores(const char *folder, bool v2)
{
    double period = 100000.0, quota;
    if (v2) {
        quota = quota_read(folder, "cpu.max", &period);
    } else {
        quota = quota_read(folder, "cpu.cfs_quota_us", NULL);
        double given = quota_read(folder, "cpu.cfs_period_us", NULL);
        period = given > 0.0 ? given : period;
    }
    return quota > 0.0 && period > 0.0 ? quota / period : INFINITY;
}

/* The least limit from ROOT/GROUP up to ROOT. */
static double group_cores(const char *root, const char *group, bool v2)
{
    double least = INFINITY;
    char *folder = path_join(root, group);
    if (folder == NULL)
        return least;
    for (size_t len = strlen(folder); len >= strlen(root); len--)
        if (folder[len] == '\0' || folder[len] == '/') {
            folder[len] = '\0';
            least = fmin(least, folder_cores(folder, v2));
        }
    free(folder);
    return least;
}

/* Lines of /proc/self/cgroup: "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1. */
static double line_cores(char *line)
{
    char *controllers = strchr(line, ':'), *group;
    if (controllers == NULL || (group = strchr(++controllers, ':')) == NULL)
        return INFINITY;
    *group++ = '\0';
    while (*group == '/')
        group++;
    if (*controllers == '\0')
        return group_cores("/sys/fs/cgroup", group, true);
    char *rest = controllers, *name;
    while ((name = strsep(&rest, ",")) != NULL)
        if (strcmp(name, "cpu") == 0)
            return group_cores("/sys/fs/cgroup/cpu", group, false);
    return INFINITY;
}

static double quota_cores(void)
{
    char *text = NULL, *rest, *line;
    size_t len;
    double least = INFINITY;
    if (!file_exists("/proc/self/cgroup") ||
        file_read("/proc/self/cgroup", 1 << 20, &text, &len) != RAIA_OK)
        return least;
    for (rest = text; (line = strsep(&rest, "\n")) != NULL;)
        least = fmin(least, line_cores(line));
    free(text);
    return least;
}

int device_cores(void)
{
    int cores = affinity_cores();
    double quota = quota_cores();
    if (quota < cores)
        cores = quota < 1.0 ? 1 : (int)lround(quota);
    return cores;
}
