/* A job's log: one file on the head; its readers follow it over WebSockets. */
#include "cluster/codec.h"
#include "cluster/head_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOGS_MAX (64 * MIB) /* what one answer holds; the tail has no limit */
#define FRAME (256 * KIB)   /* a reader's frame: below the 4 MiB that clients take */

struct tail { /* one reader */
    struct tail *prev, *next;
    struct head *head;
    struct job *job; /* NULL once the job's record is gone or the end was sent */
    struct ws *ws;
    int fd;
    uint64_t at;
    bool once; /* to the present end only */
};

char *job_log_path(const struct job *job)
{
    char name[SAFE_NAME];
    safe_name(job->id, name);
    return str_format("%s/job-driver-%s.log", job->head->logs, name);
}

raia_status job_log_open(struct job *job)
{
    char *path = job_log_path(job);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    job->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    raia_status status =
        job->log_fd < 0 ? fail(RAIA_EIO, "cannot open the job's log %s: %s", path, strerror(errno))
                        : RAIA_OK;
    struct stat st;
    if (status == RAIA_OK && fstat(job->log_fd, &st) == 0)
        job->log_size = (uint64_t)st.st_size;
    free(path);
    return status;
}

/* ---- following ---- */

/* Length of the whole lines at the start of TEXT; all of it when there is no line end. */
static size_t whole_lines(const char *text, size_t len)
{
    const char *end = memrchr(text, '\n', len);
    return end != NULL ? (size_t)(end - text) + 1 : utf8_floor(text, len);
}

static void end_tail(struct tail *tail, int code)
{
    if (tail->job != NULL)
        DL_DELETE(tail->job->tails, tail);
    tail->job = NULL;
    ws_close(tail->ws, code);
}

/* Sends what the reader can take now. */
static void pump(struct tail *tail)
{
    static char block[FRAME]; /* one loop, one read at a time */
    while (tail->job != NULL && ws_queued(tail->ws) < LIMIT_TAIL_QUEUE) {
        ssize_t n = pread(tail->fd, block, sizeof block, (off_t)tail->at);
        if (n < 0) {
            end_tail(tail, 1011);
            return;
        }
        if (n == 0) {
            if (tail->once || job_is_over(tail->job))
                end_tail(tail, WS_NORMAL);
            return;
        }
        size_t len = whole_lines(block, (size_t)n);
        tail->at += len;
        if (ws_send(tail->ws, true, block, len) != RAIA_OK)
            return; /* `closed` follows */
    }
}

static void on_drained(void *self)
{
    pump(self);
}

static void on_frame(void *self, bool text, const void *data, size_t len)
{
    (void)self; /* readers only listen */
    (void)text;
    (void)data;
    (void)len;
}

static void on_closed(void *self, int code)
{
    (void)code;
    struct tail *tail = self;
    struct head *head = tail->head;
    if (tail->job != NULL)
        DL_DELETE(tail->job->tails, tail);
    close(tail->fd);
    free(tail);
    head_socket_closed(head);
}

static const struct ws_events events = { .message = on_frame,
                                         .drained = on_drained,
                                         .closed = on_closed };

static void drop_tail(void *arg)
{
    struct tail *tail = arg;
    if (tail->job != NULL)
        DL_DELETE(tail->job->tails, tail);
    close(tail->fd);
    free(tail);
}

static void on_upgraded(void *arg, const struct web_socket *socket)
{
    struct tail *tail = arg;
    const struct ws_config config = { .loop = &tail->head->loop,
                                      .fd = socket->fd,
                                      .extra = socket->extra,
                                      .extra_len = socket->extra_len,
                                      .max_message = 64 * KIB,
                                      .beat_ms = 15000, /* what is between drops silent sockets */
                                      .events = &events,
                                      .self = tail,
                                      .release = socket->release,
                                      .release_arg = socket->release_arg };
    if (ws_open(&tail->ws, &config) != RAIA_OK) {
        log_error("log reader: %s", raia_error());
        socket->release(socket->release_arg);
        drop_tail(tail);
        return;
    }
    head_socket_opened(tail->head);
    if (tail->job == NULL)
        ws_close(tail->ws, WS_NORMAL);
    pump(tail);
}

void job_log_tail(struct web_request *request, struct job *job)
{
    struct tail *tail = calloc(1, sizeof *tail);
    char *path = job_log_path(job);
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the log was removed; the end is known */
    free(path);
    if (tail == NULL || fd < 0) {
        free(tail);
        if (fd >= 0)
            close(fd);
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory or descriptors");
        return;
    }
    const char *follow = web_query(request, "follow"), *from = web_query(request, "from");
    *tail = (struct tail){
        .head = job->head, .job = job, .fd = fd, .once = follow != NULL && strcmp(follow, "0") == 0
    };
    if (from != NULL && strcmp(from, "end") == 0)
        tail->at = job->log_size;
    DL_APPEND(job->tails, tail);
    web_upgrade(request, tail, on_upgraded, drop_tail);
}

static void pump_all(struct job *job)
{
    struct tail *tail, *next;
    DL_FOREACH_SAFE(job->tails, tail, next)
    if (tail->ws != NULL)
        pump(tail);
}

void job_log_drop_readers(struct job *job)
{
    struct tail *tail, *next;
    DL_FOREACH_SAFE(job->tails, tail, next)
    {
        DL_DELETE(job->tails, tail);
        tail->job = NULL;
        if (tail->ws != NULL)
            ws_drop(tail->ws);
    }
}

/* ---- writing ---- */

void job_log_write(struct job *job, const char *text, size_t len)
{
    if (job->log_fd < 0 || job->log_full)
        return;
    static const char full[] = "raia: the job's log has reached its limit; the rest is left out\n";
    if (job->log_size + len > LIMIT_LOG) {
        job->log_full = true;
        text = full;
        len = sizeof full - 1;
    }
    while (len > 0) {
        ssize_t n = write(job->log_fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            log_error("job %s: cannot write its log: %s", job->id, strerror(errno));
            job->log_full = true;
            break;
        }
        job->log_size += (uint64_t)n;
        text += n;
        len -= (size_t)n;
    }
    pump_all(job);
}

void job_log_note(struct job *job, const char *format, ...)
{
    struct buf text = { .max = LIMIT_JSON_BODY };
    va_list args;
    va_start(args, format);
    raia_status status = buf_vprintf(&text, format, args);
    va_end(args);
    if (status == RAIA_OK && buf_append(&text, "\n", 1) == RAIA_OK)
        job_log_write(job, text.data, text.len);
    buf_release(&text);
}

void job_log_end(struct job *job)
{
    if (job->log_fd >= 0)
        close(job->log_fd);
    job->log_fd = -1;
    pump_all(job);
}

/* ---- reading it whole ---- */

void job_log_get(struct web_request *request, struct job *job)
{
    char *path = job_log_path(job);
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    free(path);
    struct stat st;
    uint64_t size = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    uint64_t from = size > LOGS_MAX ? size - LOGS_MAX : 0;
    size_t len = (size_t)(size - from);
    struct buf text = { .max = 4 * LOGS_MAX };
    char *raw = malloc(len + 1);
    raia_status status = raw == NULL ? fail(RAIA_ENOMEM, "out of memory: a log") : RAIA_OK;
    if (status == RAIA_OK && len > 0)
        status = file_pread(fd, raw, len, from, "the job's log");
    if (status == RAIA_OK && from > 0)
        status =
            buf_printf(&text, "(%llu bytes before this are left out; follow the log for all)\n",
                       (unsigned long long)from);
    if (status == RAIA_OK)
        status = utf8_append(&text, raw, len);
    free(raw);
    if (fd >= 0)
        close(fd);
    if (status == RAIA_OK)
        web_object(request, MHD_HTTP_OK,
                   json_pack("{s:s}", "logs", text.data != NULL ? text.data : ""));
    else
        web_failure(request, status);
    buf_release(&text);
}
