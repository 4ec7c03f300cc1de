/* Which of this machine's addresses a TCP endpoint is bound to. */
#include "fabric/wire_priv.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* One pattern of NCCL_SOCKET_IFNAME against a name. */
static bool matches_one(const char *pattern, size_t len, const char *name, bool exact)
{
    return strncmp(name, pattern, len) == 0 && (!exact || name[len] == '\0');
}

bool wire_interface_matches(const char *patterns, const char *name)
{
    bool exclude = patterns[0] == '^';
    patterns += exclude;
    bool exact = patterns[0] == '=';
    patterns += exact;
    bool any = false;
    while (*patterns != '\0') {
        size_t len = strcspn(patterns, ",");
        any = any || (len > 0 && matches_one(patterns, len, name, exact));
        patterns += len + (patterns[len] == ',');
    }
    return any != exclude;
}

static bool usable(const struct ifaddrs *a, int family)
{
    if (a->ifa_addr == NULL || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP))
        return false;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)a->ifa_addr;
    return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

static void text_of(const struct sockaddr *address, char out[64])
{
    socklen_t len =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(address, len, out, 64, NULL, 0, NI_NUMERICHOST) != 0)
        out[0] = '\0';
}

static bool find(const struct ifaddrs *list, int family, const char *patterns, bool loopback,
                 struct wire_interface *out)
{
    for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next) {
        bool is_loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
        if (!usable(a, family) || is_loopback != loopback ||
            !wire_interface_matches(patterns, a->ifa_name))
            continue;
        snprintf(out->name, sizeof out->name, "%s", a->ifa_name);
        text_of(a->ifa_addr, out->address);
        return true;
    }
    return false;
}

static raia_status by_patterns(const struct ifaddrs *list, const char *patterns,
                               struct wire_interface *out)
{
    if (find(list, AF_INET, patterns, false, out) || find(list, AF_INET, patterns, true, out) ||
        find(list, AF_INET6, patterns, false, out) || find(list, AF_INET6, patterns, true, out))
        return RAIA_OK;
    struct buf names = { .max = 1024 };
    for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next)
        if (usable(a, AF_INET) || usable(a, AF_INET6))
            buf_printf(&names, " %s", a->ifa_name);
    raia_status status =
        fail(RAIA_EINVAL, "NCCL_SOCKET_IFNAME=%s matches no interface that is up; there are:%s",
             patterns, names.data != NULL ? names.data : " none");
    buf_release(&names);
    return status;
}

static void name_of_address(const struct ifaddrs *list, const char *address, char name[32])
{
    char text[64];
    for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next) {
        if (!usable(a, AF_INET) && !usable(a, AF_INET6))
            continue;
        text_of(a->ifa_addr, text);
        if (strcmp(text, address) == 0)
            snprintf(name, 32, "%s", a->ifa_name);
    }
}

void wire_interface_of(const char *address, char name[32])
{
    struct ifaddrs *list;
    snprintf(name, 32, "?");
    if (getifaddrs(&list) < 0)
        return;
    name_of_address(list, address, name);
    freeifaddrs(list);
}

/* The address towards the driver reaches the peers, unless it is the loopback and the peers are
 * elsewhere. */
static raia_status by_driver(const struct ifaddrs *list, struct control *control, bool one_host,
                             struct wire_interface *out)
{
    RAIA_TRY(control_local_address(control, out->address));
    bool loopback = str_starts(out->address, "127.") || strcmp(out->address, "::1") == 0;
    if (loopback && !one_host && !find(list, AF_INET, "^docker,virbr,veth,cni", false, out) &&
        !find(list, AF_INET6, "^docker,virbr,veth,cni", false, out))
        return fail(RAIA_EFABRIC, "the driver is reached over the loopback and no other interface "
                                  "is up to reach the other nodes; set NCCL_SOCKET_IFNAME");
    name_of_address(list, out->address, out->name);
    return RAIA_OK;
}

raia_status wire_interface_choose(struct control *control, bool one_host,
                                  struct wire_interface *out)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        return fail(RAIA_EIO, "cannot list the network interfaces");
    const char *patterns = env_get("NCCL_SOCKET_IFNAME", NULL);
    *out = (struct wire_interface){ .name = "?" };
    raia_status status = patterns != NULL ? by_patterns(list, patterns, out)
                                          : by_driver(list, control, one_host, out);
    freeifaddrs(list);
    return status;
}
