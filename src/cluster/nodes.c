/* The agents' connections. An agent says hello; the head answers with its session. A connection that
 * ends may come back within a moment and goes on where it was; after that the node is lost. */
#include "cluster/head_priv.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A connection before and after its hello. */
struct agent_socket {
    struct head *head;
    struct ws *ws;
    struct node *node; /* NULL before the hello, and after another connection took its place */
    char host[64];     /* this machine's address on the connection */
};

static bool is_loopback(const char *address)
{
    return str_starts(address, "127.") || strcmp(address, "::1") == 0 || address[0] == '\0';
}

const char *node_address(const struct node *node)
{
    return is_loopback(node->address) && node->head->reach[0] != '\0' ? node->head->reach
                                                                      : node->address;
}

void node_describe(const struct node *node, char *out, size_t size)
{
    snprintf(out, size, "node %s (host %s, agent pid %d)", node->name, node->host, node->pid);
}

void node_send(struct node *node, json_t *message)
{
    if (node->lost)
        json_decref(message);
    else
        link_send(&node->link, message);
}

/* ---- what an agent reports ---- */

static void on_job_message(struct node *node, const char *type, const json_t *message)
{
    const char *id = json_string_value(json_object_get(message, "job"));
    struct job *job = id != NULL ? job_find(node->head, id) : NULL;
    if (job == NULL || job_presence(job, node) == NULL)
        return; /* passed over before */
    const char *reason = json_string_value(json_object_get(message, "reason"));
    if (strcmp(type, "closed") == 0)
        job_closed_on(job, node, json_integer_value(json_object_get(message, "left")));
    else if (strcmp(type, "setup_failed") == 0)
        job_setup_failed(job, node, reason != NULL ? reason : "no reason given");
}

static struct proc *own_proc(struct node *node, uint64_t id)
{
    struct proc *proc = proc_find(node->head, id);
    if (proc == NULL)
        return NULL;
    const struct node *where =
        proc->group != NULL ? proc->group->ranks[proc->rank].node : proc->job->node;
    return where == node ? proc : NULL;
}

static void on_message(void *self, json_t *message)
{
    struct node *node = self;
    const char *type = json_string_value(json_object_get(message, "type"));
    uint64_t id = (uint64_t)json_integer_value(json_object_get(message, "proc"));
    struct proc *proc = id != 0 ? own_proc(node, id) : NULL;
    if (id == 0)
        on_job_message(node, type, message);
    else if (proc != NULL && strcmp(type, "started") == 0)
        proc_started(proc);
    else if (proc != NULL && strcmp(type, "ended") == 0)
        proc_ended(proc, message);
}

static void on_log(void *self, uint64_t id, const char *text, size_t len)
{
    struct proc *proc = own_proc(self, id);
    if (proc != NULL)
        job_log_write(proc->job, text, len);
}

/* ---- a node's end ---- */

static void on_link_closed(struct link *link)
{
    struct node *node = link->self;
    free(node->gpu_used);
    free(node);
}

static void node_lose(struct node *node, const char *why)
{
    struct head *head = node->head;
    char name[256];
    node_describe(node, name, sizeof name);
    node->lost = true;
    DL_DELETE(head->nodes, node);
    log_warn("%s is gone: %s", name, why);
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next)
        if (job_presence(job, node) != NULL)
            job_node_lost(job, node, why);
    link_close(&node->link, on_link_closed);
    if (!head->stopping)
        jobs_schedule(head);
}

void nodes_tick(struct head *head)
{
    struct node *node, *next;
    uint64_t now = clock_ns();
    DL_FOREACH_SAFE(head->nodes, node, next)
        if (node->ws == NULL && now - node->gone_ns > REJOIN_MS * UINT64_C(1000000))
            node_lose(node, "its agent's connection ended and did not come back");
}

void nodes_close(struct head *head)
{
    struct node *node, *next;
    DL_FOREACH_SAFE(head->nodes, node, next) {
        struct ws *ws = node->ws;
        node->ws = NULL;
        link_detach(&node->link);
        if (ws != NULL)
            ws_close(ws, WS_GOING_AWAY);
    }
}

static void on_socket_closed(void *self, int code)
{
    struct agent_socket *s = self;
    struct node *node = s->node;
    struct head *head = s->head;
    if (node != NULL && node->ws == s->ws) {
        node->ws = NULL;
        node->gone_ns = clock_ns();
        link_detach(&node->link);
        if (code == WS_GOING_AWAY && !head->stopping)
            node_lose(node, "its agent was stopped");
    }
    free(s);
    head_socket_closed(head);
}

/* ---- hello ---- */

static int by_name(const struct node *a, const struct node *b)
{
    return strverscmp(a->name, b->name);
}

static struct node *find_node(struct head *head, const char *id)
{
    struct node *node;
    DL_FOREACH(head->nodes, node)
        if (strcmp(node->id, id) == 0)
            return node;
    return NULL;
}

static raia_status read_hello(struct node *node, const json_t *hello)
{
    const char *id, *name, *host, *address, *base;
    int64_t workers, gpus, cpus, pid;
    RAIA_TRY(json_get_string(hello, "hello", "node", &id));
    RAIA_TRY(json_get_string(hello, "hello", "name", &name));
    RAIA_TRY(json_get_string(hello, "hello", "host", &host));
    RAIA_TRY(json_get_string(hello, "hello", "address", &address));
    RAIA_TRY(json_get_string(hello, "hello", "base", &base));
    RAIA_TRY(json_get_i64(hello, "hello", "workers", 0, LIMIT_WORKERS, &workers));
    RAIA_TRY(json_get_i64(hello, "hello", "gpus", 0, LIMIT_WORKERS, &gpus));
    RAIA_TRY(json_get_i64(hello, "hello", "cpus", 1, 1 << 20, &cpus));
    RAIA_TRY(json_get_i64(hello, "hello", "memory", 0, INT64_MAX, &node->memory));
    RAIA_TRY(json_get_i64(hello, "hello", "pid", 1, INT32_MAX, &pid));
    if (strlen(id) != NODE_ID - 1)
        return fail(RAIA_EFORMAT, "hello: 'node' is no node id");
    snprintf(node->id, sizeof node->id, "%s", id);
    snprintf(node->name, sizeof node->name, "%s", name);
    snprintf(node->host, sizeof node->host, "%s", host);
    snprintf(node->address, sizeof node->address, "%s", address);
    snprintf(node->base, sizeof node->base, "%s", base);
    node->workers = (int)workers;
    node->gpus = (int)gpus;
    node->cpus = (int)cpus;
    node->pid = (int)pid;
    return MEM_NEW(&node->gpu_used, (size_t)gpus + 1);
}

static raia_status welcome(struct agent_socket *s, const struct node *node, bool known)
{
    char text[256];
    int len = snprintf(text, sizeof text,
                       "{\"type\":\"welcome\",\"session\":\"%s\",\"known\":%s,\"seen\":%llu}",
                       s->head->session, known ? "true" : "false",
                       (unsigned long long)node->link.seen_seq);
    return ws_send(s->ws, true, text, (size_t)len);
}

static raia_status rejoin(struct agent_socket *s, struct node *node, const json_t *hello)
{
    int64_t seen;
    RAIA_TRY(json_get_i64(hello, "hello", "seen", 0, INT64_MAX, &seen));
    if (node->ws != NULL) { /* the old connection is dead, though nobody has told us */
        struct ws *old = node->ws;
        node->ws = NULL;
        link_detach(&node->link);
        ws_drop(old);
    }
    node->ws = s->ws;
    s->node = node;
    RAIA_TRY(welcome(s, node, true));
    link_attach(&node->link, s->ws, (uint64_t)seen);
    log_info("node %s came back", node->name);
    return RAIA_OK;
}

static raia_status join(struct agent_socket *s, const json_t *hello)
{
    struct head *head = s->head;
    struct node *node, *other;
    int count = 0;
    DL_COUNT(head->nodes, other, count);
    if (count >= LIMIT_NODES)
        return fail(RAIA_EREFUSED, "the cluster has %d nodes already", count);
    RAIA_TRY(MEM_NEW(&node, 1));
    raia_status status = read_hello(node, hello);
    if (status != RAIA_OK) {
        free(node->gpu_used);
        free(node);
        return status;
    }
    node->head = head;
    node->ws = s->ws;
    node->link.message = on_message;
    node->link.log = on_log;
    node->link.self = node;
    link_init(&node->link, &head->loop);
    s->node = node;
    if (!is_loopback(s->host) && !is_loopback(node->address))
        snprintf(head->reach, sizeof head->reach, "%s", s->host);
    DL_INSERT_INORDER(head->nodes, node, by_name);
    status = welcome(s, node, false);
    link_attach(&node->link, s->ws, 0);
    log_info("node %s joined: host %s, %d workers, %d GPUs", node->name, node->host, node->workers,
             node->gpus);
    return status;
}

static raia_status greet(struct agent_socket *s, const void *data, size_t len)
{
    json_t *hello;
    const char *id, *session;
    RAIA_TRY(json_parse(data, len, LIMIT_MESSAGE, "hello", &hello));
    raia_status status = json_get_string(hello, "hello", "node", &id);
    if (status == RAIA_OK)
        status = json_get_string(hello, "hello", "session", &session);
    if (status == RAIA_OK) {
        struct node *known = find_node(s->head, id);
        if (known != NULL && strcmp(session, s->head->session) == 0)
            status = rejoin(s, known, hello);
        else
            status = join(s, hello);
    }
    json_decref(hello);
    if (status == RAIA_OK && !s->head->stopping)
        jobs_schedule(s->head);
    return status;
}

static void on_frame(void *self, bool text, const void *data, size_t len)
{
    struct agent_socket *s = self;
    raia_status status = s->node == NULL ? greet(s, data, len)
                                         : link_receive(&s->node->link, text, data, len);
    if (status != RAIA_OK) {
        log_warn("agent: %s", raia_error());
        ws_drop(s->ws);
    }
}

static const struct ws_events events = { .message = on_frame, .closed = on_socket_closed };

/* This machine's address on the connection FD. */
static void own_host(int fd, char out[64])
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
        getnameinfo((struct sockaddr *)&addr, len, out, 64, NULL, 0, NI_NUMERICHOST) != 0)
        out[0] = '\0';
}

static void on_upgraded(void *arg, const struct web_socket *socket)
{
    struct agent_socket *s = arg;
    own_host(socket->fd, s->host);
    const struct ws_config config = { .loop = &s->head->loop,
                                      .fd = socket->fd,
                                      .extra = socket->extra,
                                      .extra_len = socket->extra_len,
                                      .max_message = LIMIT_MESSAGE,
                                      .beat_ms = BEAT_MS,
                                      .silence_ms = SILENCE_MS,
                                      .events = &events,
                                      .self = s,
                                      .release = socket->release,
                                      .release_arg = socket->release_arg };
    if (ws_open(&s->ws, &config) == RAIA_OK) {
        head_socket_opened(s->head);
        return;
    }
    log_error("agent: %s", raia_error());
    socket->release(socket->release_arg);
    free(s);
}

void nodes_join(struct web_request *request)
{
    struct agent_socket *s = calloc(1, sizeof *s);
    if (s == NULL) {
        web_text(request, 500, "out of memory");
        return;
    }
    s->head = web_self(request);
    web_upgrade(request, s, on_upgraded, free);
}
