#include "base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static raia_status resolve(const char *host, uint16_t port, bool passive, struct addrinfo **out)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = passive ? AI_PASSIVE : 0 };
    int code = getaddrinfo(host[0] != '\0' ? host : NULL, service, &hints, out);
    if (code != 0)
        return fail(RAIA_ENOTFOUND, "cannot resolve host '%s': %s", host, gai_strerror(code));
    return RAIA_OK;
}

static int listen_at(const struct addrinfo *a, int backlog)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, backlog) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    memset(&s, 0, sizeof s);
    if (getsockname(fd, (struct sockaddr *)&s, &len) < 0)
        return 0;
    if (s.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&s)->sin6_port);
    return ntohs(((struct sockaddr_in *)&s)->sin_port);
}

raia_status net_listen(const char *host, uint16_t *port, int backlog, int *fd)
{
    struct addrinfo *list;
    RAIA_TRY(resolve(host, *port, true, &list));
    int got = -1;
    for (const struct addrinfo *a = list; a != NULL && got < 0; a = a->ai_next)
        got = listen_at(a, backlog);
    int saved = errno;
    freeaddrinfo(list);
    if (got < 0) {
        const char *mend = saved == EADDRINUSE ? "; another program holds this port: stop it or "
                                                 "choose another port"
                                               : "";
        return fail(RAIA_EIO, "cannot listen on %s port %u: %s%s", host, *port, strerror(saved),
                    mend);
    }
    *port = port_of(got);
    *fd = got;
    return RAIA_OK;
}

static int wait_for(int fd, short events, uint64_t deadline)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = events };
        int n = poll(&p, 1, deadline_left_ms(deadline));
        if (n < 0 && errno == EINTR)
            continue;
        return n;
    }
}

static int connect_to(const struct addrinfo *a, uint64_t deadline)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int error = 0;
    socklen_t len = sizeof error;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
        error = errno;
    if (error == EINPROGRESS) {
        error = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, deadline) > 0)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    }
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

raia_status net_connect(const char *host, uint16_t port, uint64_t deadline, bool retry, int *fd)
{
    struct addrinfo *list;
    RAIA_TRY(resolve(host, port, false, &list));
    int got = -1, saved = 0;
    for (unsigned pause = 1;; pause = pause < 200 ? pause * 2 : 200) {
        for (const struct addrinfo *a = list; a != NULL && got < 0; a = a->ai_next) {
            got = connect_to(a, deadline);
            saved = errno;
        }
        bool may_come = saved == ECONNREFUSED || saved == EHOSTUNREACH || saved == ENETUNREACH;
        if (got >= 0 || !retry || !may_come || deadline_left_ms(deadline) == 0)
            break;
        clock_sleep_ms(pause);
    }
    freeaddrinfo(list);
    if (got < 0)
        return fail(saved == ETIMEDOUT ? RAIA_ETIMEDOUT : RAIA_EREFUSED,
                    "cannot connect to %s port %u: %s", host, port, strerror(saved));
    *fd = got;
    return RAIA_OK;
}

raia_status net_accept(int listen_fd, uint64_t deadline, int *fd, const char *whom)
{
    for (;;) {
        if (wait_for(listen_fd, POLLIN, deadline) <= 0)
            return fail(RAIA_ETIMEDOUT, "%s did not connect in time", whom);
        int got = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (got >= 0) {
            int one = 1;
            setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            *fd = got;
            return RAIA_OK;
        }
        if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
            return fail(RAIA_EIO, "cannot accept a connection of %s: %s", whom, strerror(errno));
    }
}

raia_status net_send(int fd, const void *data, size_t len, uint64_t deadline, const char *whom)
{
    const char *p = data;
    while (len > 0) {
        ssize_t put = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) {
            p += put;
            len -= (size_t)put;
        } else if (put < 0 && errno == EAGAIN) {
            if (wait_for(fd, POLLOUT, deadline) <= 0)
                return fail(RAIA_ETIMEDOUT, "%s does not take what is sent to it", whom);
        } else if (put < 0 && errno != EINTR) {
            return fail(RAIA_EPEER, "lost the connection to %s: %s", whom, strerror(errno));
        }
    }
    return RAIA_OK;
}

raia_status net_recv(int fd, void *data, size_t len, uint64_t deadline, const char *whom)
{
    char *p = data;
    while (len > 0) {
        ssize_t got = recv(fd, p, len, MSG_DONTWAIT);
        if (got > 0) {
            p += got;
            len -= (size_t)got;
        } else if (got == 0) {
            return fail(RAIA_EPEER, "%s closed the connection", whom);
        } else if (errno == EAGAIN) {
            if (wait_for(fd, POLLIN, deadline) <= 0)
                return fail(RAIA_ETIMEDOUT, "no answer from %s in time", whom);
        } else if (errno != EINTR) {
            return fail(RAIA_EPEER, "lost the connection to %s: %s", whom, strerror(errno));
        }
    }
    return RAIA_OK;
}

raia_status net_split(const char *address, char *host, uint16_t *port)
{
    const char *colon = strrchr(address, ':');
    const char *begin = address, *end = colon;
    if (address[0] == '[') {
        begin++;
        end = strchr(address, ']');
        if (end == NULL || end + 1 != colon)
            end = NULL;
    }
    if (colon == NULL || end == NULL || end == begin || end - begin > 255)
        return fail(RAIA_EINVAL, "'%s' is not an address such as host:port", address);
    int64_t number;
    RAIA_TRY(str_to_i64(colon + 1, "port", 0, 65535, &number));
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = (uint16_t)number;
    return RAIA_OK;
}

raia_status net_local_towards(const char *host, char *out)
{
    struct addrinfo *list;
    RAIA_TRY(resolve(host, 9, false, &list));
    int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    raia_status status = RAIA_OK;
    /* Connecting a datagram socket sends nothing; it only makes the kernel choose a route. */
    if (fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen) < 0 ||
        getsockname(fd, (struct sockaddr *)&s, &len) < 0 ||
        getnameinfo((struct sockaddr *)&s, len, out, 64, NULL, 0, NI_NUMERICHOST) != 0)
        status = fail(RAIA_EIO, "no route from this machine to %s: %s", host, strerror(errno));
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    return status;
}
