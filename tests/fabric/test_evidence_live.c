/* Evidence of bytes that really moved, in network namespaces of the test's own, where nothing else
 * sends: over a loopback that two nodes share, and over a link between two namespaces. */
#include "wire_ranks.h"

#include <errno.h>
#include <sched.h>

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0)
        CHECK_FAIL("failed: %s", command);
}

/* A namespace of this process and its children, with nothing but a loopback. */
static void enter_namespace(void)
{
    if (system("command -v ip >/dev/null 2>&1") != 0)
        SKIP("there is no ip command");
    if (unshare(CLONE_NEWNET) < 0)
        SKIP("no network namespace can be made: %s", strerror(errno));
    shell("ip link set lo up");
}

static json_t *gather_evidence(struct rank_env *env, struct wire *wire, const char *when)
{
    json_t *mine, *all;
    const char *root = env->arg; /* of the counters; NULL: the machine's own */
    CHECK_OK(evidence_take(wire, &env->world, root, &mine));
    CHECK_OK(
        control_gather(env->control, when, env->world.size, mine, deadline_in_ms(10000), &all));
    json_decref(mine);
    return all;
}

enum { LEN = 4 << 20 };

/* Every rank sends LEN bytes to every rank of the other nodes. */
static void exchange(struct rank_env *env, struct wire *wire)
{
    const struct world *w = &env->world;
    unsigned char *out = new_message(w->rank, 1, LEN), *in[16] = { 0 };
    struct wire_request *sent[16], *got[16];
    for (int peer = 0; peer < w->size; peer++) {
        if (world_node_of(w, peer) == w->node)
            continue;
        in[peer] = malloc(LEN);
        CHECK(in[peer] != NULL);
        CHECK_OK(wire_recv(wire, peer, 1, in[peer], LEN, &got[peer]));
        CHECK_OK(wire_send(wire, peer, 1, out, LEN, &sent[peer]));
    }
    for (int peer = 0; peer < w->size; peer++) {
        if (world_node_of(w, peer) == w->node)
            continue;
        CHECK_OK(wire_wait(wire, sent[peer]));
        CHECK_OK(wire_wait(wire, got[peer]));
        check_message(in[peer], peer, 1, LEN);
        free(in[peer]);
    }
    free(out);
}

static json_t *run_and_judge(struct rank_env *env, const char *require)
{
    json_t *verdict;
    struct wire *wire = open_wire(env, "tcp", 20);
    CHECK_OK(evidence_precheck(wire, require));
    CHECK_ERROR(evidence_precheck(wire, "efa"), RAIA_EFABRIC,
                "fabric efa is required, and the endpoints opened tcp");
    json_t *before = gather_evidence(env, wire, "before");
    exchange(env, wire);
    json_t *after = gather_evidence(env, wire, "after");
    CHECK_OK(evidence_verdict(before, after, require, &verdict));
    json_decref(before);
    json_decref(after);
    wire_close(wire);
    return verdict;
}

static void check_pass(const json_t *verdict, long long sent, const char *interface)
{
    struct buf table = { 0 };
    CHECK_OK(evidence_table(verdict, &table));
    const json_t *pair = json_array_get(json_object_get(verdict, "pairs"), 0);
    const char *status = json_string_value(json_object_get(verdict, "status"));
    if (strcmp(status, "pass") != 0)
        CHECK_FAIL("%s", table.data);
    CHECK_INT(json_integer_value(json_object_get(pair, "sent")), sent);
    if (strstr(table.data, interface) == NULL)
        CHECK_FAIL("no %s in: %s", interface, table.data);
    buf_release(&table);
}

static void exchange_on_loopback(struct rank_env *env)
{
    json_t *verdict = run_and_judge(env, "tcp");
    check_pass(verdict, env->world.size == 2 ? 2 * LEN : 8 * LEN, " lo\n");
    json_decref(verdict);
}

TEST(nodes_of_one_namespace_pass_by_its_loopback)
{
    enter_namespace();
    ranks_run(2, 2, exchange_on_loopback, NULL);
    ranks_run(4, 2, exchange_on_loopback, NULL);
}

static void exchange_uncounted(struct rank_env *env)
{
    json_t *verdict = run_and_judge(env, "tcp");
    CHECK_STR(json_string_value(json_object_get(verdict, "status")), "fail");
    CHECK(strstr(json_string_value(json_object_get(verdict, "reason")),
                 "over lo of node 0 and the kernel counted 0 B there") != NULL);
    json_decref(verdict);
}

TEST(bytes_that_the_counters_of_a_recorded_machine_do_not_show_fail)
{
    char *root, *dir, *file;
    const char *text = "a\nb\n lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n";
    CHECK_OK(dir_make_temp("raia-evidence", &root));
    dir = path_join(root, "proc/net");
    file = path_join(dir, "dev");
    CHECK_OK(dir_make(dir, 0700));
    CHECK_OK(file_write(file, text, strlen(text), 0600));
    ranks_run(2, 2, exchange_uncounted, root);
    CHECK_OK(dir_remove(root));
    free(file);
    free(dir);
    free(root);
}

/* Rank 1 moves to a namespace of its own; its control connection stays where it was made. */
static void link_namespaces(struct rank_env *env)
{
    pid_t mine = getpid(), *other;
    size_t len;
    char name[] = { 'v', (char)('a' + env->world.rank), '\0' };
    if (env->world.rank == 1)
        CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK_OK(
        control_put(env->control, env->world.rank == 0 ? "pid/0" : "pid/1", &mine, sizeof mine));
    CHECK_OK(control_get(env->control, env->world.rank == 0 ? "pid/1" : "pid/0", (void **)&other,
                         &len, deadline_in_ms(10000)));
    CHECK_INT(len, sizeof *other);
    if (env->world.rank == 0) {
        shell("ip link add va type veth peer name vb netns %d", (int)*other);
        CHECK_OK(control_put(env->control, "linked", "", 0));
    }
    free(other);
    CHECK_OK(control_get(env->control, "linked", (void **)&other, &len, deadline_in_ms(10000)));
    free(other);
    shell("ip addr add 10.97.1.%d/24 dev %s && ip link set %s up", env->world.rank + 1, name, name);
    setenv("NCCL_SOCKET_IFNAME", name, 1);
}

static void exchange_on_link(struct rank_env *env)
{
    link_namespaces(env);
    json_t *verdict = run_and_judge(env, "tcp");
    check_pass(verdict, 2 * LEN, "va of 0, vb of 1\n");
    json_decref(verdict);
}

TEST(nodes_of_two_namespaces_pass_by_the_link_between_them)
{
    enter_namespace();
    ranks_run(2, 2, exchange_on_link, NULL);
}

/* Both nodes name their loopback, which reaches nobody else. */
static void open_unreachable(struct rank_env *env)
{
    struct wire *wire;
    char text[64];
    if (env->world.rank == 1) {
        CHECK(unshare(CLONE_NEWNET) == 0);
        shell("ip link set lo up");
    }
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("FI_PROVIDER", "net", 1);
    snprintf(text, sizeof text, "no greeting over net from rank %d within 2 s",
             1 - env->world.rank);
    double begin = clock_s();
    CHECK_ERROR(wire_open(&wire, env->control, &env->world, "tcp", 2), RAIA_ETIMEDOUT, text);
    CHECK(strstr(raia_error(), "127.0.0.1 on lo") != NULL);
    CHECK(clock_s() - begin < 6);
}

TEST(nodes_that_cannot_reach_each_other_are_told_the_address)
{
    enter_namespace();
    ranks_run(2, 2, open_unreachable, NULL);
}

/* Another program's bytes on the same loopback: more than the tolerance. */
static void exchange_beside_others(struct rank_env *env)
{
    json_t *verdict;
    struct wire *wire = open_wire(env, "tcp", 20);
    json_t *before = gather_evidence(env, wire, "before");
    exchange(env, wire);
    if (env->world.rank == 0) {
        uint16_t port = 0;
        int listener, a, b;
        unsigned char *data = new_message(0, 0, LEN);
        CHECK_OK(net_listen("127.0.0.1", &port, 1, &listener));
        CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(5000), false, &a));
        CHECK_OK(net_accept(listener, deadline_in_ms(5000), &b, "itself"));
        for (int i = 0; i < 64; i++) {
            CHECK_OK(net_send(a, data, LEN / 64, deadline_in_ms(5000), "itself"));
            CHECK_OK(net_recv(b, data, LEN / 64, deadline_in_ms(5000), "itself"));
        }
        close(a);
        close(b);
        close(listener);
        free(data);
    }
    json_t *after = gather_evidence(env, wire, "after");
    CHECK_OK(evidence_verdict(before, after, NULL, &verdict));
    const char *reason = json_string_value(json_object_get(verdict, "reason"));
    if (strstr(reason, "others used it too") == NULL)
        CHECK_FAIL("%s", reason);
    CHECK_STR(json_string_value(json_object_get(verdict, "status")), "inconclusive");
    json_decref(verdict);
    json_decref(before);
    json_decref(after);
    wire_close(wire);
}

TEST(another_programs_bytes_make_it_inconclusive)
{
    enter_namespace();
    ranks_run(2, 2, exchange_beside_others, NULL);
}

TEST_MAIN
