/* What the kernel knows of a rank's control connection: its addresses and the bytes that it
 * carried. */
#include "fabric/control_priv.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static bool numeric(const struct sockaddr_storage *address, socklen_t len, char *out)
{
    return getnameinfo((const struct sockaddr *)address, len, out, 64, NULL, 0, NI_NUMERICHOST) ==
           0;
}

raia_status control_local_address(const struct control *control, char *out)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    if (getsockname(control_socket(control), (struct sockaddr *)&address, &len) < 0 ||
        !numeric(&address, len, out))
        return fail(RAIA_EIO, "cannot tell the local address towards the driver: %s",
                    strerror(errno));
    return RAIA_OK;
}

raia_status control_traffic(const struct control *control, struct control_traffic *out)
{
    struct sockaddr_storage address;
    struct tcp_info info = { 0 };
    socklen_t len = sizeof address, info_len = sizeof info;
    char peer[64] = "";
    *out = (struct control_traffic){ 0 };
    RAIA_TRY(control_local_address(control, out->address));
    if (getpeername(control_socket(control), (struct sockaddr *)&address, &len) == 0)
        numeric(&address, len, peer);
    out->loopback = strcmp(peer, out->address) == 0;
    if (getsockopt(control_socket(control), IPPROTO_TCP, TCP_INFO, &info, &info_len) < 0)
        return fail(RAIA_EIO, "cannot read the control connection's counts: %s", strerror(errno));
    out->sent = info.tcpi_bytes_acked;
    out->received = info.tcpi_bytes_received;
    return RAIA_OK;
}
