/* The kernel's own counts of what interfaces and RDMA devices carried. */
#include "fabric/wire_priv.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTED_MAX = 256, DEV_FILE_MAX = 1 << 20, COUNTER_MAX = 64 };

/* The last component of a link's target, or "" ("driver" links lead to the driver's folder). */
static void link_name(const char *path, char out[64])
{
    char target[512];
    ssize_t len = readlink(path, target, sizeof target - 1);
    target[len > 0 ? len : 0] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(out, 64, "%.63s", slash != NULL ? slash + 1 : target);
}

static void driver_of(const char *root, const char *class, const char *name, char out[64])
{
    char *path = str_format("%s/sys/class/%s/%s/device/driver", root, class, name);
    out[0] = '\0';
    if (path != NULL)
        link_name(path, out);
    free(path);
}

static raia_status add(json_t *list, const char *key, const char *name, const char *driver,
                       uint64_t tx, uint64_t rx)
{
    json_t *item = json_pack("{s:s, s:s, s:I, s:I}", key, name, "driver", driver, "tx",
                             (json_int_t)tx, "rx", (json_int_t)rx);
    if (item == NULL || json_array_append_new(list, item) < 0)
        return fail(RAIA_ENOMEM, "out of memory");
    return RAIA_OK;
}

/* A line of /proc/net/dev: "name: rx-bytes and seven more, tx-bytes and seven more". */
static raia_status add_interface(json_t *list, const char *root, char *line)
{
    char *colon = strrchr(line, ':'), driver[64];
    unsigned long long rx, tx;
    if (colon == NULL || sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &rx, &tx) != 2)
        return RAIA_OK;
    *colon = '\0';
    const char *name = line + strspn(line, " ");
    driver_of(root, "net", name, driver);
    return add(list, "name", name, driver, tx, rx);
}

/* /proc/net/dev rather than /sys/class/net: a /sys mounted in another network namespace shows that
 * one's interfaces. */
raia_status counters_interfaces(const char *root, json_t **out)
{
    char *path = str_format("%s/proc/net/dev", root), *text = NULL, *rest;
    size_t len;
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = file_read(path, DEV_FILE_MAX, &text, &len);
    free(path);
    RAIA_TRY(status);
    json_t *list = json_array();
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && status == RAIA_OK;
         line = strtok_r(NULL, "\n", &rest))
        if (json_array_size(list) < LISTED_MAX)
            status = add_interface(list, root, line);
    free(text);
    if (status != RAIA_OK)
        json_decref(list);
    else
        *out = list;
    return status;
}

/* ---- RDMA devices ---- */

/* Adds the number in the file to *SUM; false when there is no such number. */
static bool add_counter(const char *port, const char *name, uint64_t unit, uint64_t *sum)
{
    char *path = str_format("%s/%s", port, name), *text = NULL, *end = NULL;
    size_t len;
    bool good = path != NULL && file_read(path, COUNTER_MAX, &text, &len) == RAIA_OK;
    if (good) {
        *sum += strtoull(text, &end, 10) * unit;
        good = end != text;
    }
    free(text);
    free(path);
    return good;
}

/* EFA counts bytes in hw_counters; InfiniBand words of four bytes in counters. */
static bool add_port(const char *port, uint64_t *tx, uint64_t *rx)
{
    return (add_counter(port, "hw_counters/tx_bytes", 1, tx) &&
            add_counter(port, "hw_counters/rx_bytes", 1, rx)) ||
           (add_counter(port, "counters/port_xmit_data", 4, tx) &&
            add_counter(port, "counters/port_rcv_data", 4, rx));
}

static raia_status add_device(json_t *list, const char *root, const char *name)
{
    uint64_t tx = 0, rx = 0;
    bool counts = false;
    char driver[64], *ports = str_format("%s/sys/class/infiniband/%s/ports", root, name);
    DIR *dir = ports != NULL ? opendir(ports) : NULL;
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char *port =
            path_is_component(entry->d_name) ? str_format("%s/%s", ports, entry->d_name) : NULL;
        counts = (port != NULL && add_port(port, &tx, &rx)) || counts;
        free(port);
    }
    if (dir != NULL)
        closedir(dir);
    free(ports);
    driver_of(root, "infiniband", name, driver);
    return counts ? add(list, "device", name, driver, tx, rx) : RAIA_OK;
}

raia_status counters_devices(const char *root, json_t **out)
{
    char *path = str_format("%s/sys/class/infiniband", root);
    DIR *dir = path != NULL ? opendir(path) : NULL;
    json_t *list = json_array();
    const struct dirent *entry;
    raia_status status = list != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
    while (status == RAIA_OK && dir != NULL && (entry = readdir(dir)) != NULL)
        if (path_is_component(entry->d_name) && json_array_size(list) < LISTED_MAX)
            status = add_device(list, root, entry->d_name);
    if (dir != NULL)
        closedir(dir);
    free(path);
    if (status != RAIA_OK)
        json_decref(list);
    else
        *out = list;
    return status;
}
