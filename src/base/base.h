/* base: what every room stands on. Status and error text, log, memory, strings, files, clock,
 * environment, JSON. Needs nothing of raia; needs libc and jansson.
 *
 * Ownership: every function that returns memory says who frees it. Thread safety: all functions may
 * be called from any thread unless said otherwise. Nothing here ends the process. */
#ifndef RAIA_BASE_H
#define RAIA_BASE_H

#include <raia/types.h>

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- status ---- */

/* Records the text of a failure for this thread and returns STATUS, so that a detector can
 * `return fail(RAIA_EIO, "cannot open %s: %s", path, strerror(errno))`. At most 2047 bytes are
 * kept. */
raia_status fail(raia_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "PREFIX: " before the text of the last failure and returns STATUS unchanged: for a caller
 * that knows the place better than the detector did (a file, a rank). */
raia_status fail_in(raia_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: without this it would follow paths on which fail() returns
 * RAIA_OK. */
static inline raia_status fail_analyzed(raia_status status)
{
    if (status == RAIA_OK)
        __builtin_unreachable();
    return status;
}
#define fail(status, ...) fail_analyzed(((void)snprintf(NULL, 0, __VA_ARGS__), (status)))
#define fail_in(status, ...) fail_analyzed(((void)snprintf(NULL, 0, __VA_ARGS__), (status)))
#endif

/* Forgets this thread's failure text. */
void fail_clear(void);

/* ---- log: to stderr, one write a line, lower case, no trailing full stop ---- */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Highest level that is written; set from RAIA_LOG=error|warn|info|debug at the first line
 * (default info). */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* A short name put before each line ("head", "agent 1", "rank 3"); copied, at most 31 bytes. */
void log_set_name(const char *name);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* ---- memory and strings ---- */

/* COUNT * SIZE zeroed bytes, overflow checked; RAIA_ENOMEM names the size. Free with free(). */
raia_status mem_alloc(void **out, size_t count, size_t size);
/* Allocates an array: MEM_NEW(&items, n). */
#define MEM_NEW(out, count) mem_alloc((void **)(out), (count), sizeof **(out))

/* A growing byte string with a hard bound. Zero-initialised apart from `max` (0 = 64 MiB). `data`
 * is NUL-terminated whenever it is not NULL. */
struct buf {
    char *data;
    size_t len, cap, max;
};
raia_status buf_append(struct buf *buf, const void *data, size_t len);
raia_status buf_printf(struct buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
raia_status buf_vprintf(struct buf *buf, const char *format, va_list args);
void buf_clear(struct buf *buf);   /* keeps the memory */
void buf_release(struct buf *buf); /* frees the memory; the struct may be used again */

/* malloc'd string from a format; NULL when out of memory. The caller frees it. */
char *str_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "1.54 GB", "12.3 MB", "512 B": decimal units into OUT (at least 16 bytes), which is returned. */
char *str_bytes(char *out, uint64_t bytes);
/* Whole-string conversions; RAIA_EINVAL names WHAT and the text. Sizes take K, M, G (powers of 2)
 * and K, M, G with B (powers of 10) when SUFFIX is true. */
raia_status str_to_i64(const char *text, const char *what, int64_t min, int64_t max, int64_t *out);
raia_status str_to_size(const char *text, const char *what, uint64_t max, uint64_t *out);
raia_status str_to_f64(const char *text, const char *what, double *out);
bool str_starts(const char *text, const char *prefix);
/* 64-bit FNV-1a, for names and counters (not for hostile input). */
uint64_t str_hash(const void *data, size_t len);
/* BYTES random bytes from the kernel as 2*BYTES hex digits and a NUL. */
raia_status str_random_hex(char *out, size_t bytes);

/* ---- files ---- */

/* Reads a whole regular file of at most MAX bytes; *OUT is NUL-terminated, freed by the caller. */
raia_status file_read(const char *path, size_t max, char **out, size_t *len);
/* Writes aside, fsyncs, renames over PATH, fsyncs the folder: PATH is the old or the new content,
 * never a part. MODE as for open(2). */
raia_status file_write(const char *path, const void *data, size_t len, unsigned mode);
/* Full-length pread/pwrite; a short read is RAIA_EFORMAT ("ends at byte …"). PATH is for the text.
 */
raia_status file_pread(int fd, void *data, size_t len, uint64_t offset, const char *path);
raia_status file_pwrite(int fd, const void *data, size_t len, uint64_t offset, const char *path);
/* fsyncs the folder that holds PATH: what was made, renamed or removed there is then lasting. */
raia_status dir_sync_of(const char *path);
raia_status file_copy(const char *from, const char *to);
raia_status dir_make(const char *path, unsigned mode);     /* with parents; existing is fine */
raia_status dir_remove(const char *path);                  /* with content, never follows links */
raia_status dir_make_temp(const char *prefix, char **out); /* under $TMPDIR or /tmp, mode 0700 */
bool file_exists(const char *path);
bool dir_exists(const char *path);
/* "A/B" with exactly one slash between; malloc'd, NULL when out of memory. */
char *path_join(const char *a, const char *b);
/* True when NAME is one safe path component: not empty, not "." or "..", no slash, no control. */
bool path_is_component(const char *name);

/* ---- clock ---- */

uint64_t clock_ns(void);     /* monotonic */
double clock_s(void);        /* monotonic, seconds */
int64_t clock_wall_ms(void); /* milliseconds since 1970 */
void clock_sleep_ms(unsigned ms);
/* A deadline is a clock_ns() value; 0 means none. */
uint64_t deadline_in_ms(uint64_t ms);
/* Milliseconds left, at least 0, at most INT_MAX; -1 for no deadline: fit for poll(2). */
int deadline_left_ms(uint64_t deadline);

/* ---- environment ---- */

const char *env_get(const char *name, const char *fallback); /* empty counts as unset */
raia_status env_i64(const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out);
bool env_flag(const char *name, bool fallback); /* 1/true/yes/on, 0/false/no/off, any case */

/* ---- sockets (plain TCP and Unix, blocking with bounds) ---- */

/* Listens on HOST:PORT (port 0: any; the port got is written back). HOST is a name or an address.
 */
raia_status net_listen(const char *host, uint16_t *port, int backlog, int *fd);
/* Connects within the deadline, retrying while refused when RETRY; errors name host and port. */
raia_status net_connect(const char *host, uint16_t port, uint64_t deadline, bool retry, int *fd);
raia_status net_accept(int listen_fd, uint64_t deadline, int *fd, const char *whom);
/* Whole sends and receives within the deadline; a closed peer is RAIA_EPEER and names WHOM. */
raia_status net_send(int fd, const void *data, size_t len, uint64_t deadline, const char *whom);
raia_status net_recv(int fd, void *data, size_t len, uint64_t deadline, const char *whom);
/* Splits "host:port", "[v6]:port"; HOST has room for 256 bytes. */
raia_status net_split(const char *address, char *host, uint16_t *port);
/* The local address (text, at least 64 bytes) that this machine would use towards HOST. */
raia_status net_local_towards(const char *host, char *out);

/* ---- JSON (jansson), with errors that name the place ---- */

/* Parses at most MAX bytes; refuses duplicate keys, depth over 64 and trailing bytes; RAIA_EFORMAT
 * names WHAT, line and column. *OUT is the caller's (json_decref). */
raia_status json_parse(const char *text, size_t len, size_t max, const char *what, json_t **out);
raia_status json_read_file(const char *path, size_t max, json_t **out);
/* Typed members of OBJECT. A missing member is RAIA_ENOTFOUND, a wrong type RAIA_EFORMAT; both name
 * WHAT and KEY. Strings are borrowed from OBJECT. */
raia_status json_get_string(const json_t *object, const char *what, const char *key,
                            const char **out);
raia_status json_get_i64(const json_t *object, const char *what, const char *key, int64_t min,
                         int64_t max, int64_t *out);
raia_status json_get_f64(const json_t *object, const char *what, const char *key, double *out);
raia_status json_get_bool(const json_t *object, const char *what, const char *key, bool *out);

/* ---- command lines: one table of options, from which parsing, --help and completion come ---- */

enum opt_type {
    OPT_FLAG,   /* bool *: --name sets true, --no-name sets false */
    OPT_STRING, /* const char **: borrowed from argv */
    OPT_I64,    /* int64_t *, within min..max */
    OPT_F64,    /* double * */
    OPT_SIZE,   /* uint64_t *: bytes with K, M, G */
    OPT_LIST,   /* struct opt_list *: may be given several times */
    OPT_CHOICE, /* const char **: one of the words in `choices`, separated by '|' */
};
struct opt_list {
    const char *items[64];
    int count;
};
struct opt {
    enum opt_type type;
    char letter;         /* 0: none */
    const char *name;    /* long name without dashes; '_' and '-' are the same to the parser */
    void *value;         /* holds the default before, the value after */
    const char *arg;     /* name of the value in help ("DIR") ; NULL for flags */
    const char *help;    /* one sentence, lower case */
    const char *choices; /* OPT_CHOICE */
    int64_t min, max;    /* OPT_I64; both 0: unbounded */
};
struct opt_spec {
    const char *usage;      /* "raia train --model DIR [options]" */
    const char *summary;    /* what the command does, a sentence or a few */
    const struct opt *opts; /* ends with name NULL */
    const char *examples;   /* shown at the end of --help; may be NULL */
};
/* Parses argv[1..]; "--" ends options; positionals (and what follows "--") are left in
 * order as rest[0..*nrest), for which REST has room for ARGC. Unknown options are RAIA_EINVAL with
 * the nearest name. *HELP becomes true after --help or -h, whose text has then been printed to
 * stdout. If STOP_AT_POSITIONAL, the first positional ends options. */
raia_status opt_parse(const struct opt_spec *spec, int argc, char **argv, bool stop_at_positional,
                      char **rest, int *nrest, bool *help);
void opt_print_help(const struct opt_spec *spec, FILE *out);

#endif
