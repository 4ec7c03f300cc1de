/* How the ranks of a node find each other and prove that they share memory.
 *
 * Local rank 0 listens on an abstract Unix socket with a random name and publishes the name and a
 * secret on the control channel. Each other rank connects, shows the secret and gets the board (a
 * memfd); it writes a nonce of its own into the board and says it over the socket. Local rank 0
 * reads the nonce in its own mapping: only a rank that really shares the memory can have put it
 * there. A rank that fails says so under "node/N/failed", so that the others name it at once
 * instead of waiting. */
#include "fabric/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FOLLOWER_NS = 1000000000 };

struct door {
    char name[2 * NODE_NONCE + 1];
    char secret[2 * NODE_NONCE + 1];
};

static void key_of(const struct node *node, const char *what, char out[64])
{
    snprintf(out, 64, "node/%d/%s", node->node, what);
}

/* The failure that another rank of the node has published, if any. */
static raia_status check_failed(struct node *node)
{
    char key[64], *text;
    size_t len;
    key_of(node, "failed", key);
    raia_status status = control_peek(node->control, key, (void **)&text, &len);
    if (status == RAIA_ENOTFOUND)
        return RAIA_OK;
    if (status != RAIA_OK)
        return status;
    status = fail(RAIA_EPEER, "%s", text);
    free(text);
    return status;
}

static void publish_failed(struct node *node)
{
    char key[64], text[2048];
    snprintf(text, sizeof text, "%s", raia_error());
    key_of(node, "failed", key);
    if (control_put(node->control, key, text, strlen(text)) != RAIA_OK)
        log_debug("node: %s", raia_error()); /* another rank was first, or the run has ended */
    fail(RAIA_EFAIL, "%s", text);
}

static socklen_t address_of(const struct door *door, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int len = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "raia-%s", door->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

/* ---- local rank 0 ---- */

static raia_status open_door(struct node *node, struct door *door, int *fd)
{
    RAIA_TRY(str_random_hex(door->name, NODE_NONCE));
    RAIA_TRY(str_random_hex(door->secret, NODE_NONCE));
    struct sockaddr_un address;
    socklen_t len = address_of(door, &address);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, len) < 0 || listen(*fd, node->size) < 0)
        return fail(RAIA_EIO, "node %d: cannot listen on a Unix socket: %s", node->node,
                    strerror(errno));
    char key[64], text[sizeof *door + 1];
    key_of(node, "door", key);
    snprintf(text, sizeof text, "%s %s", door->name, door->secret);
    return control_put(node->control, key, text, strlen(text));
}

static raia_status make_board(struct node *node, int *fd)
{
    RAIA_TRY(node_memfd(node_board_bytes(node), fd));
    int code = posix_fallocate(*fd, 0, (off_t)node_board_bytes(node));
    if (code != 0)
        return fail(RAIA_ENOMEM, "node %d: no memory for the ranks' board: %s", node->node,
                    strerror(code));
    return node_map_fd(node, *fd, node_board_bytes(node), (void **)&node->board);
}

/* Takes in one connection: a rank of the node that shows the secret gets the board; anyone else is
 * dropped. */
static raia_status admit(struct node *node, const struct door *door, int board_fd, int link)
{
    struct node_message hello;
    raia_status status =
        node_receive(node, link, NODE_SAYS_HELLO, -1, deadline_in_ms(1000), &hello, NULL);
    int who = (int)hello.value;
    bool welcome = status == RAIA_OK && same_user(link) && hello.value > 0 &&
                   hello.value < (uint64_t)node->size && node->links[who] < 0 &&
                   strcmp(hello.text, door->secret) == 0;
    if (!welcome) {
        close(link);
        return control_check(node->control);
    }
    node->links[who] = link;
    const struct node_message board = { .kind = NODE_SAYS_BOARD };
    return node_send(link, &board, board_fd);
}

static int absent(const struct node *node)
{
    for (int who = 1; who < node->size; who++)
        if (node->links[who] < 0)
            return who;
    return 0;
}

static raia_status admit_all(struct node *node, const struct door *door, int listen_fd,
                             int board_fd, uint64_t deadline)
{
    int who;
    while ((who = absent(node)) != 0) {
        struct pollfd p = { .fd = listen_fd, .events = POLLIN };
        poll(&p, 1, NODE_TICK_MS);
        int link = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (link >= 0) {
            RAIA_TRY(admit(node, door, board_fd, link));
            continue;
        }
        RAIA_TRY(check_failed(node));
        if (deadline_left_ms(deadline) == 0)
            return fail(RAIA_ETIMEDOUT,
                        "node %d: rank %d did not come to rank %d's Unix socket in time",
                        node->node, node->first + who, node->first);
    }
    return RAIA_OK;
}

/* Each rank's nonce, said over its socket, must stand in this rank's own mapping. */
static raia_status prove_all(struct node *node, uint64_t deadline)
{
    for (int who = 1; who < node->size; who++) {
        struct node_message seen;
        RAIA_TRY(node_receive(node, node->links[who], NODE_SAYS_SEEN, node->first + who, deadline,
                              &seen, NULL));
        struct node_member *member = &node->board->members[who];
        if (atomic_load(&member->nonce_written) == 0 ||
            memcmp(seen.nonce, member->nonce, NODE_NONCE) != 0)
            return fail(RAIA_EFABRIC,
                        "node %d: rank %d does not share memory with rank %d: what it wrote into "
                        "the shared mapping is not there",
                        node->node, node->first + who, node->first);
    }
    for (int who = 1; who < node->size; who++) {
        const struct node_message go = { .kind = NODE_SAYS_GO };
        RAIA_TRY(node_send(node->links[who], &go, -1));
    }
    return RAIA_OK;
}

static raia_status lead(struct node *node, uint64_t deadline)
{
    struct door door;
    int listen_fd = -1, board_fd = -1;
    raia_status status = make_board(node, &board_fd);
    if (status == RAIA_OK && node->size > 1)
        status = open_door(node, &door, &listen_fd);
    if (status == RAIA_OK && node->size > 1)
        status = admit_all(node, &door, listen_fd, board_fd, deadline);
    if (status == RAIA_OK && node->size > 1)
        status = prove_all(node, deadline);
    if (listen_fd >= 0)
        close(listen_fd);
    if (board_fd >= 0)
        close(board_fd);
    return status;
}

/* ---- the others ---- */

static raia_status find_door(struct node *node, struct door *door, uint64_t deadline)
{
    char key[64], *text;
    size_t len;
    key_of(node, "door", key);
    raia_status status = control_get(node->control, key, (void **)&text, &len, deadline);
    if (status != RAIA_OK)
        return fail_in(status, "node %d: rank %d has not opened its Unix socket", node->node,
                       node->first);
    bool good = len == 4 * NODE_NONCE + 1 && text[2 * NODE_NONCE] == ' ';
    if (good) {
        memcpy(door->name, text, 2 * NODE_NONCE);
        memcpy(door->secret, text + 2 * NODE_NONCE + 1, 2 * NODE_NONCE);
        door->name[2 * NODE_NONCE] = door->secret[2 * NODE_NONCE] = '\0';
    }
    free(text);
    return good ? RAIA_OK : fail(RAIA_EFORMAT, "control key '%s' is malformed", key);
}

static raia_status enter(struct node *node, const struct door *door)
{
    struct sockaddr_un address;
    socklen_t len = address_of(door, &address);
    int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (link < 0)
        return fail(RAIA_EIO, "node %d: cannot make a Unix socket: %s", node->node,
                    strerror(errno));
    node->links[0] = link;
    if (connect(link, (struct sockaddr *)&address, len) < 0)
        return fail(RAIA_EFABRIC,
                    "node %d: rank %d cannot share memory with rank %d: its Unix socket is not "
                    "reachable (%s); ranks of one node must run in one network namespace",
                    node->node, node->first + node->rank, node->first, strerror(errno));
    struct node_message hello = { .kind = NODE_SAYS_HELLO, .value = (uint64_t)node->rank };
    memcpy(hello.text, door->secret, sizeof door->secret);
    return node_send(link, &hello, -1);
}

static raia_status take_board(struct node *node, uint64_t deadline)
{
    struct node_message message;
    int fd = -1;
    RAIA_TRY(
        node_receive(node, node->links[0], NODE_SAYS_BOARD, node->first, deadline, &message, &fd));
    raia_status status = node_map_fd(node, fd, node_board_bytes(node), (void **)&node->board);
    if (fd >= 0)
        close(fd);
    RAIA_TRY(status);
    struct node_message seen = { .kind = NODE_SAYS_SEEN };
    if (getrandom(seen.nonce, sizeof seen.nonce, 0) != (ssize_t)sizeof seen.nonce)
        return fail(RAIA_EIO, "getrandom: %s", strerror(errno));
    struct node_member *member = &node->board->members[node->rank];
    memcpy(member->nonce, seen.nonce, NODE_NONCE);
    atomic_store(&member->nonce_written, 1);
    RAIA_TRY(node_send(node->links[0], &seen, -1));
    return node_receive(node, node->links[0], NODE_SAYS_GO, node->first, deadline, &message, NULL);
}

static raia_status follow(struct node *node, uint64_t deadline)
{
    struct door door;
    RAIA_TRY(find_door(node, &door, deadline));
    RAIA_TRY(enter(node, &door));
    return take_board(node, deadline);
}

raia_status node_meet(struct node *node)
{
    /* Local rank 0 knows who is missing, so it gives up first. */
    uint64_t limit = node->timeout_ns + (node->rank == 0 ? 0 : FOLLOWER_NS);
    uint64_t deadline = node->timeout_ns > 0 ? clock_ns() + limit : 0;
    raia_status status = node->rank == 0 ? lead(node, deadline) : follow(node, deadline);
    if (status == RAIA_OK || node->size == 1)
        return status;
    /* Local rank 0's leaving looks like its failure; the one who failed first knows better. */
    if (status == RAIA_EPEER && control_check(node->control) == RAIA_OK && node->rank != 0) {
        char text[512];
        snprintf(text, sizeof text, "%s", raia_error());
        raia_status known = check_failed(node);
        return known != RAIA_OK ? known : fail(status, "%s", text);
    }
    publish_failed(node);
    return status;
}
