#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static atomic_int current = -1;
static pthread_mutex_t name_lock = PTHREAD_MUTEX_INITIALIZER;
static char name[32];

static int level_from_environment(void)
{
    const char *wanted = env_get("RAIA_LOG", "info");
    for (int i = 0; i < (int)(sizeof level_names / sizeof level_names[0]); i++)
        if (strcasecmp(wanted, level_names[i]) == 0)
            return i;
    return LOG_INFO;
}

enum log_level log_get_level(void)
{
    int level = atomic_load(&current);
    if (level < 0) {
        level = level_from_environment();
        atomic_store(&current, level);
    }
    return (enum log_level)level;
}

void log_set_level(enum log_level level)
{
    atomic_store(&current, (int)level);
}

void log_set_name(const char *new_name)
{
    pthread_mutex_lock(&name_lock);
    snprintf(name, sizeof name, "%s", new_name);
    pthread_mutex_unlock(&name_lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > log_get_level())
        return;
    char line[4096];
    pthread_mutex_lock(&name_lock);
    int at = snprintf(line, sizeof line, "raia%s%s: %s", name[0] ? " " : "", name,
                      level == LOG_INFO ? "" : level_names[level]);
    pthread_mutex_unlock(&name_lock);
    if (level != LOG_INFO)
        at += snprintf(line + at, sizeof line - (size_t)at, ": ");
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + at, sizeof line - (size_t)at, format, args);
    va_end(args);
    size_t len = (size_t)at + (more > 0 ? (size_t)more : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    /* One write, so that lines of several processes do not mix. */
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}
