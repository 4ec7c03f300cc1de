/* check: the tests' harness. A test file defines tests with TEST(name) { … } and ends with
 * TEST_MAIN. Each test runs in a child process with a time limit, and its result is printed as a
 * TAP line. */
#ifndef RAIA_TESTS_CHECK_H
#define RAIA_TESTS_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <raia/types.h>

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};
static struct check_test *check_first, **check_last = &check_first;
static unsigned check_limit_s = 60;

#define TEST(id)                                                                                   \
    static void test_##id(void);                                                                   \
    __attribute__((constructor)) static void test_##id##_add(void)                                 \
    {                                                                                              \
        static struct check_test test = { #id, test_##id, NULL };                                  \
        *check_last = &test;                                                                       \
        check_last = &test.next;                                                                   \
    }                                                                                              \
    static void test_##id(void)

#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        printf("# %s:%d: ", __FILE__, __LINE__);                                                   \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        fflush(stdout);                                                                            \
        _exit(1);                                                                                  \
    } while (0)
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            CHECK_FAIL("%s", #cond);                                                               \
    } while (0)
#define CHECK_INT(a, b)                                                                            \
    do {                                                                                           \
        long long check_a_ = (long long)(a), check_b_ = (long long)(b);                            \
        if (check_a_ != check_b_)                                                                  \
            CHECK_FAIL("%s == %s (%lld, %lld)", #a, #b, check_a_, check_b_);                       \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *check_a_ = (a), *check_b_ = (b);                                               \
        if (strcmp(check_a_, check_b_) != 0)                                                       \
            CHECK_FAIL("%s == %s (\"%s\", \"%s\")", #a, #b, check_a_, check_b_);                   \
    } while (0)
/* |a - b| <= tolerance * max(1, |b|) */
#define CHECK_NEAR(a, b, tolerance)                                                                \
    do {                                                                                           \
        double check_a_ = (a), check_b_ = (b);                                                     \
        if (!(fabs(check_a_ - check_b_) <= (tolerance)*fmax(1.0, fabs(check_b_))))                 \
            CHECK_FAIL("%s near %s (%.9g, %.9g)", #a, #b, check_a_, check_b_);                     \
    } while (0)
#define CHECK_OK(expr)                                                                             \
    do {                                                                                           \
        raia_status check_s_ = (expr);                                                             \
        if (check_s_ != RAIA_OK)                                                                   \
            CHECK_FAIL("%s: %s: %s", #expr, raia_status_text(check_s_), raia_error());             \
    } while (0)
/* EXPR fails with STATUS and its text contains TEXT. */
#define CHECK_ERROR(expr, status, text)                                                            \
    do {                                                                                           \
        raia_status check_s_ = (expr);                                                             \
        if (check_s_ != (status))                                                                  \
            CHECK_FAIL("%s: got \"%s\" (%s)", #expr, raia_status_text(check_s_), raia_error());    \
        if (strstr(raia_error(), (text)) == NULL)                                                  \
            CHECK_FAIL("%s: error \"%s\" lacks \"%s\"", #expr, raia_error(), (text));              \
    } while (0)
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        printf("# skip: ");                                                                        \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        fflush(stdout);                                                                            \
        _exit(77);                                                                                 \
    } while (0)

static inline int check_run(struct check_test *test)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(check_limit_s);
        test->run();
        fflush(stdout);
        exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("# %s: ended by signal %d (%s)\n", test->name, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* With arguments: runs only the tests named. */
static inline int check_main(int argc, char **argv)
{
    int number = 0, failed = 0;
    for (struct check_test *t = check_first; t != NULL; t = t->next) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strcmp(argv[i], t->name) == 0;
        if (!wanted)
            continue;
        int code = check_run(t);
        failed += code != 0 && code != 77;
        printf("%s %d - %s%s\n", code == 0 || code == 77 ? "ok" : "not ok", ++number, t->name,
               code == 77 ? " # SKIP" : "");
        fflush(stdout);
    }
    printf("1..%d\n", number);
    return failed != 0;
}

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return check_main(argc, argv);                                                             \
    }

#endif
