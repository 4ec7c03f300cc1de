/* Messages between local rank 0 and the others over their Unix socket. */
#include "fabric/node_priv.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union room {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

raia_status node_send(int link, const struct node_message *message, int fd)
{
    struct iovec part = { (void *)message, sizeof *message };
    struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
    union room room = { 0 };
    if (fd >= 0) {
        header.msg_control = room.bytes;
        header.msg_controllen = sizeof room.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    if (sendmsg(link, &header, MSG_NOSIGNAL) != (ssize_t)sizeof *message)
        return fail(RAIA_EPEER, "node socket: %s", strerror(errno));
    return RAIA_OK;
}

static int take_fd(struct msghdr *header)
{
    int got = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(&got, CMSG_DATA(c), sizeof got);
    }
    return got;
}

static raia_status wait_readable(struct node *node, int link, int whom, uint64_t deadline)
{
    for (;;) {
        struct pollfd p = { .fd = link, .events = POLLIN };
        int n = poll(&p, 1, NODE_TICK_MS);
        if (n > 0)
            return RAIA_OK;
        if (n < 0 && errno != EINTR)
            return fail(RAIA_EIO, "node socket: %s", strerror(errno));
        RAIA_TRY(control_check(node->control));
        if (deadline_left_ms(deadline) == 0)
            return fail(RAIA_ETIMEDOUT, "node %d: rank %d did not answer in time", node->node,
                        whom);
    }
}

raia_status node_receive(struct node *node, int link, uint32_t kind, int whom, uint64_t deadline,
                         struct node_message *out, int *fd)
{
    RAIA_TRY(wait_readable(node, link, whom, deadline));
    struct iovec part = { out, sizeof *out };
    union room room;
    struct msghdr header = { .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes };
    ssize_t got = recvmsg(link, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int came = got >= 0 ? take_fd(&header) : -1;
    if (got == (ssize_t)sizeof *out && out->kind == kind) {
        out->text[sizeof out->text - 1] = '\0';
        if (fd != NULL)
            *fd = came;
        else if (came >= 0)
            close(came);
        return RAIA_OK;
    }
    if (came >= 0)
        close(came);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        return fail(RAIA_EPEER, "node %d: rank %d has gone", node->node, whom);
    return fail(RAIA_EFORMAT, "node %d: rank %d sent something else than was expected", node->node,
                whom);
}
