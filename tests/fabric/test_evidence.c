/* Evidence from recorded counters, and the verdict over it: pass, fail, inconclusive. */
#include "fabric/wire_priv.h"
#include "wire_ranks.h"

/* ---- a machine's counters ---- */

static void put_file(const char *root, const char *name, const char *text)
{
    char path[512], dir[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    CHECK_OK(dir_make(dir, 0700));
    CHECK_OK(file_write(path, text, strlen(text), 0600));
}

static void put_link(const char *root, const char *name, const char *target)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK(symlink(target, path) == 0);
}

static char *make_root(void)
{
    char *root;
    CHECK_OK(dir_make_temp("raia-evidence", &root));
    return root;
}

static void drop_root(char *root)
{
    CHECK_OK(dir_remove(root));
    free(root);
}

static const json_t *find(const json_t *list, const char *key, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(item, key)), name) == 0)
            return item;
    }
    CHECK_FAIL("no %s in the list", name);
}

static long long number(const json_t *object, const char *key)
{
    CHECK(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    CHECK(json_is_string(json_object_get(object, key)));
    return json_string_value(json_object_get(object, key));
}

TEST(interfaces_are_read_with_driver_and_both_counts)
{
    char *root = make_root();
    json_t *list;
    put_file(
        root, "proc/net/dev",
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
        "    lo: 1234567   12340    0    0    0     0          0         0  1234567   12340    "
        "0    0    0     0       0          0\n"
        "eth0.7:98765432109876 5 0 0 0 0 0 0 11 2 0 0 0 0 0 0\n");
    put_file(root, "sys/class/net/eth0.7/device/x", "");
    put_link(root, "sys/class/net/eth0.7/device/driver", "../../../../bus/pci/drivers/ena");
    CHECK_OK(counters_interfaces(root, &list));
    CHECK_INT(json_array_size(list), 2);
    const json_t *lo = find(list, "name", "lo"), *eth = find(list, "name", "eth0.7");
    CHECK_INT(number(lo, "tx"), 1234567);
    CHECK_STR(text(lo, "driver"), "");
    CHECK_INT(number(eth, "rx"), 98765432109876);
    CHECK_INT(number(eth, "tx"), 11);
    CHECK_STR(text(eth, "driver"), "ena");
    json_decref(list);
    drop_root(root);
}

TEST(devices_of_efa_and_infiniband_are_read_over_all_ports)
{
    char *root = make_root();
    json_t *list;
    put_file(root, "sys/class/infiniband/rdmap0s6/ports/1/hw_counters/tx_bytes", "5000000000\n");
    put_file(root, "sys/class/infiniband/rdmap0s6/ports/1/hw_counters/rx_bytes", "7\n");
    put_file(root, "sys/class/infiniband/rdmap0s6/device/x", "");
    put_link(root, "sys/class/infiniband/rdmap0s6/device/driver", "../../bus/pci/drivers/efa");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "100\n");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "10\n");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/2/counters/port_xmit_data", "3\n");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/2/counters/port_rcv_data", "1\n");
    put_file(root, "sys/class/infiniband/dead0/ports/1/hw_counters/tx_bytes", "N/A (no link)\n");
    CHECK_OK(counters_devices(root, &list));
    CHECK_INT(json_array_size(list), 2);
    const json_t *efa = find(list, "device", "rdmap0s6"), *mlx = find(list, "device", "mlx5_0");
    CHECK_INT(number(efa, "tx"), 5000000000);
    CHECK_INT(number(efa, "rx"), 7);
    CHECK_STR(text(efa, "driver"), "efa");
    CHECK_INT(number(mlx, "tx"), 412);
    CHECK_INT(number(mlx, "rx"), 44);
    json_decref(list);
    drop_root(root);
}

TEST(a_machine_without_rdma_has_no_devices)
{
    char *root = make_root();
    json_t *list;
    CHECK_OK(counters_devices(root, &list));
    CHECK_INT(json_array_size(list), 0);
    json_decref(list);
    CHECK(counters_interfaces(root, &list) != RAIA_OK);
    drop_root(root);
}

/* ---- recorded runs ---- */

/* What one rank of a recorded run said; zeros are left out of its evidence. */
struct said {
    int node;
    const char *boot, *netns, *interface, *device;
    json_int_t sent[4], messages; /* to each node; to all */
    json_int_t tx, lo_tx, control;
    const char *control_on;
};

static json_t *evidence_of(int rank, const struct said *s, bool after)
{
    json_t *sent = json_object(), *messages = json_object();
    for (int node = 0; node < 4; node++) {
        char key[8];
        snprintf(key, sizeof key, "%d", node);
        json_object_set_new(sent, key, json_integer(1000 + (after ? s->sent[node] : 0)));
        json_object_set_new(messages, key, json_integer(after && s->sent[node] ? s->messages : 0));
    }
    json_t *endpoint = s->device != NULL ? json_pack("{s:s}", "device", s->device)
                                         : json_pack("{s:s, s:s}", "interface", s->interface,
                                                     "address", "10.0.0.1");
    json_int_t base = 5000000;
    json_t *interfaces =
        json_pack("[{s:s,s:I},{s:s,s:I}]", "name", "lo", "tx", base + (after ? s->lo_tx : 0),
                  "name", "eth0", "tx", base + (after && s->device == NULL ? s->tx : 0));
    json_t *devices = s->device == NULL ? json_array()
                                        : json_pack("[{s:s, s:I}]", "device", s->device, "tx",
                                                    base + (after ? s->tx : 0));
    json_t *evidence = json_pack(
        "{s:i, s:i, s:s, s:s, s:f, s:s, s:s, s:[o], s:o, s:o, s:o, s:o, s:{s:s, s:I}}", "rank",
        rank, "node", s->node, "boot_id", s->boot, "netns", s->netns, "seconds",
        100.0 + (after ? 1.0 : 0), "fabric", s->device != NULL ? "efa" : "tcp", "provider",
        s->device != NULL ? "efa" : "net", "endpoints", endpoint, "sent", sent, "messages",
        messages, "interfaces", interfaces, "efa", devices, "control", "interface",
        s->control_on != NULL ? s->control_on : "lo", "bytes", after ? s->control : 0);
    CHECK(evidence != NULL);
    return evidence;
}

static json_t *judge(const struct said *said, int size, const char *require)
{
    json_t *before = json_array(), *after = json_array(), *verdict;
    for (int rank = 0; rank < size; rank++) {
        json_array_append_new(before, evidence_of(rank, &said[rank], false));
        json_array_append_new(after, evidence_of(rank, &said[rank], true));
    }
    CHECK_OK(evidence_verdict(before, after, require, &verdict));
    json_decref(before);
    json_decref(after);
    return verdict;
}

static void expect(json_t *verdict, const char *status, const char *reason)
{
    if (strcmp(text(verdict, "status"), status) != 0)
        CHECK_FAIL("status %s: %s", text(verdict, "status"), text(verdict, "reason"));
    if (strstr(text(verdict, "reason"), reason) == NULL)
        CHECK_FAIL("\"%s\" lacks \"%s\"", text(verdict, "reason"), reason);
}

#define MB 1000000

/* Two machines, one rank each, 50 MB each way over their eth0, with 4 % of headers. */
static const struct said two_machines[] = {
    { .node = 0,
      .boot = "A",
      .netns = "n1",
      .interface = "eth0",
      .sent = { 0, 50 * MB },
      .messages = 50,
      .tx = 52 * MB },
    { .node = 1,
      .boot = "B",
      .netns = "n1",
      .interface = "eth0",
      .sent = { 50 * MB },
      .messages = 50,
      .tx = 52 * MB },
};

TEST(all_bytes_counted_on_both_machines_pass)
{
    json_t *verdict = judge(two_machines, 2, NULL);
    expect(verdict, "pass", "every byte that raia sent between 2 nodes");
    const json_t *pairs = json_object_get(verdict, "pairs"), *pair = json_array_get(pairs, 0);
    CHECK_INT(json_array_size(pairs), 1);
    CHECK_INT(number(pair, "sent"), 100 * MB);
    CHECK_INT(number(pair, "counted"), 104 * MB);
    CHECK_INT(number(pair, "tolerance"), 10 * MB + 2 * (50 * 512 + 32768 + 16384));
    CHECK_STR(text(pair, "provider"), "net");
    CHECK_STR(text(pair, "status"), "pass");
    CHECK_INT(json_array_size(json_object_get(pair, "interfaces")), 2);
    json_decref(verdict);
    verdict = judge(two_machines, 2, "tcp");
    expect(verdict, "pass", "every byte");
    json_decref(verdict);
}

TEST(bytes_that_were_not_counted_fail)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[1].tx = 49 * MB;
    json_t *verdict = judge(said, 2, NULL);
    expect(verdict, "fail",
           "raia sent 50.0 MB over eth0 of node 1 and the kernel counted 49.0 MB there");
    CHECK(strstr(text(verdict, "mend"), "NCCL_SOCKET_IFNAME") != NULL);
    json_decref(verdict);
}

TEST(foreign_traffic_makes_it_inconclusive_and_a_requirement_makes_that_fail)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[0].tx = 60 * MB;
    json_t *verdict = judge(said, 2, NULL);
    expect(verdict, "inconclusive", "10.0 MB more than raia sent: others used it too");
    CHECK_STR(text(json_array_get(json_object_get(verdict, "pairs"), 0), "status"), "inconclusive");
    json_decref(verdict);
    verdict = judge(said, 2, "tcp");
    expect(verdict, "fail", "others used it too");
    CHECK_STR(text(verdict, "required"), "tcp");
    json_decref(verdict);
}

TEST(few_bytes_prove_nothing)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[0].sent[1] = said[1].sent[0] = 20000;
    said[0].tx = said[1].tx = 21000;
    json_t *verdict = judge(said, 2, NULL);
    expect(verdict, "inconclusive", "too little to tell from the");
    json_decref(verdict);
}

TEST(a_machine_whose_counters_are_not_there_is_inconclusive)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[1].interface = "bond0";
    json_t *verdict = judge(said, 2, NULL);
    expect(verdict, "inconclusive", "the kernel keeps no count of bond0 on node 1");
    json_decref(verdict);
}

TEST(the_control_channels_bytes_are_known_and_not_foreign)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[1].control = 30 * MB;
    said[1].control_on = "eth0";
    said[1].tx += 31 * MB;
    json_t *verdict = judge(said, 2, NULL);
    expect(verdict, "pass", "every byte");
    const json_t *pair = json_array_get(json_object_get(verdict, "pairs"), 0);
    CHECK_INT(number(pair, "sent"), 100 * MB);
    CHECK_INT(number(pair, "carried"), 130 * MB);
    json_decref(verdict);
    said[1].tx -= 31 * MB;
    verdict = judge(said, 2, NULL);
    expect(verdict, "fail", "took another way");
    json_decref(verdict);
}

/* Two nodes of one machine: all bytes leave by its lo, though each names eth0. */
TEST(nodes_that_share_an_interface_are_counted_once)
{
    struct said said[4] = {
        { .node = 0, .sent = { 0, 10 * MB } },
        { .node = 0, .sent = { 0, 15 * MB } },
        { .node = 1, .sent = { 20 * MB, 0 } },
        { .node = 1, .sent = { 5 * MB, 0 } },
    };
    for (int rank = 0; rank < 4; rank++) {
        said[rank].boot = "A";
        said[rank].netns = "n1";
        said[rank].interface = "eth0";
        said[rank].messages = 10;
        said[rank].lo_tx = 51 * MB;
    }
    json_t *verdict = judge(said, 4, "tcp");
    expect(verdict, "pass", "every byte");
    const json_t *pair = json_array_get(json_object_get(verdict, "pairs"), 0);
    const json_t *interfaces = json_object_get(pair, "interfaces");
    CHECK_INT(number(pair, "sent"), 50 * MB);
    CHECK_INT(number(pair, "counted"), 51 * MB);
    CHECK_INT(json_array_size(interfaces), 1);
    CHECK_STR(text(json_array_get(interfaces, 0), "name"), "lo");
    json_decref(verdict);
    for (int rank = 0; rank < 4; rank++)
        said[rank].lo_tx = 100 * MB; /* as if each node were counted by itself */
    verdict = judge(said, 4, NULL);
    expect(verdict, "inconclusive", "on lo of node 0");
    json_decref(verdict);
}

TEST(each_pair_of_three_nodes_has_its_row_and_silent_pairs_have_none)
{
    struct said said[3] = {
        { .node = 0, .boot = "A", .sent = { 0, 10 * MB }, .tx = 10.2 * MB },
        { .node = 1, .boot = "B", .sent = { 10 * MB, 0, 7 * MB }, .tx = 17.2 * MB },
        { .node = 2, .boot = "C", .sent = { 0, 7 * MB, 0 }, .tx = 7.2 * MB },
    };
    for (int rank = 0; rank < 3; rank++) {
        said[rank].netns = "n1";
        said[rank].interface = "eth0";
        said[rank].messages = 10;
    }
    json_t *verdict = judge(said, 3, NULL);
    expect(verdict, "pass", "between 3 nodes");
    const json_t *pairs = json_object_get(verdict, "pairs");
    CHECK_INT(json_array_size(pairs), 2);
    CHECK_INT(number(json_array_get(pairs, 0), "sent"), 20 * MB);
    CHECK_INT(number(json_array_get(pairs, 1), "sent"), 14 * MB);
    CHECK_INT(number(json_array_get(pairs, 1), "carried"), 24 * MB);
    json_decref(verdict);
}

TEST(efa_is_proven_by_its_devices_and_disproven_by_them)
{
    struct said said[2];
    memcpy(said, two_machines, sizeof said);
    said[0].device = said[1].device = "rdmap0s6";
    json_t *verdict = judge(said, 2, "efa");
    expect(verdict, "pass", "every byte");
    CHECK_STR(text(verdict, "fabric"), "efa");
    json_decref(verdict);
    said[0].tx = said[1].tx = 0;
    verdict = judge(said, 2, "efa");
    expect(verdict, "fail", "over rdmap0s6 of node 0 and the kernel counted 0 B there");
    json_decref(verdict);
}

TEST(another_fabric_than_required_fails_however_well_it_counts)
{
    json_t *verdict = judge(two_machines, 2, "efa");
    expect(verdict, "fail", "the endpoints of rank 0 opened tcp (libfabric's net)");
    CHECK(strstr(text(verdict, "mend"), "--fabric") != NULL);
    json_decref(verdict);
}

TEST(evidence_that_is_malformed_is_refused)
{
    json_t *before = json_pack("[{s:i}]", "node", 0), *after = json_pack("[{}]"), *verdict;
    CHECK_ERROR(evidence_verdict(before, after, NULL, &verdict), RAIA_ENOTFOUND, "boot_id");
    json_array_append_new(after, json_object());
    CHECK_ERROR(evidence_verdict(before, after, NULL, &verdict), RAIA_EFORMAT,
                "1 ranks before and 2 after");
    json_decref(before);
    before = json_pack("[{s:i, s:s, s:s}, {}]", "node", 900, "boot_id", "", "netns", "");
    CHECK(evidence_verdict(before, after, NULL, &verdict) != RAIA_OK);
    json_decref(before);
    json_decref(after);
    before = json_pack("[{s:i, s:s, s:s}]", "node", 900, "boot_id", "", "netns", "");
    after = json_pack("[{s:s, s:s}]", "fabric", "", "provider", "");
    CHECK_ERROR(evidence_verdict(before, after, NULL, &verdict), RAIA_EFORMAT, "node 900");
    json_decref(before);
    before = json_pack("[{s:i,s:s,s:s}, {s:i,s:s,s:s}]", "node", 0, "boot_id", "", "netns", "",
                       "node", 0, "boot_id", "", "netns", "");
    json_object_set_new(json_array_get(before, 1), "node", json_integer(1));
    json_object_set_new(json_array_get(before, 0), "node", json_integer(1));
    json_array_append(after, json_array_get(after, 0));
    CHECK_ERROR(evidence_verdict(before, after, NULL, &verdict), RAIA_EFORMAT,
                "but of no rank of node 0");
    json_decref(before);
    json_decref(after);
}

TEST(the_table_names_the_pair_its_bytes_and_its_interfaces)
{
    json_t *verdict = judge(two_machines, 2, NULL);
    struct buf table = { 0 };
    CHECK_OK(evidence_table(verdict, &table));
    const char *first = "fabric tcp: pass (the kernel counted every byte that raia sent between 2 "
                        "nodes)\n";
    CHECK(strncmp(table.data, first, strlen(first)) == 0);
    const char *row = strstr(table.data, "  0 - 1");
    CHECK(row != NULL);
    CHECK(strstr(row, "net") != NULL && strstr(row, "100 MB") != NULL);
    CHECK(strstr(row, "104 MB") != NULL && strstr(row, "pass") != NULL);
    CHECK(strstr(row, "eth0 of 0, eth0 of 1") != NULL);
    buf_release(&table);
    json_decref(verdict);
}

TEST_MAIN
