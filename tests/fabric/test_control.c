/* The control channel, between processes and against strangers. */
#include "ranks.h"

#include "fabric/control_frame.h"

#include <errno.h>

/* ---- values ---- */

static void put_and_get(struct rank_env *env)
{
    char key[32], value[32];
    int me = env->world.rank, size = env->world.size;
    snprintf(key, sizeof key, "value/%d", me);
    snprintf(value, sizeof value, "of rank %d", me);
    clock_sleep_ms((unsigned)(5 * me)); /* the first ranks wait for the last */
    CHECK_OK(control_put(env->control, key, value, strlen(value)));
    CHECK_ERROR(control_put(env->control, key, value, 1), RAIA_EINVAL, "put already");
    for (int other = 0; other < size; other++) {
        void *data;
        size_t len;
        snprintf(key, sizeof key, "value/%d", other);
        snprintf(value, sizeof value, "of rank %d", other);
        CHECK_OK(control_get(env->control, key, &data, &len, deadline_in_ms(5000)));
        CHECK_INT(len, strlen(value));
        CHECK(memcmp(data, value, len) == 0);
        free(data);
    }
}

TEST(every_rank_gets_what_every_rank_put)
{
    ranks_run(8, 1, put_and_get, NULL);
}

static void gather_all(struct rank_env *env)
{
    json_t *mine = json_pack("{s:i}", "rank", env->world.rank), *all;
    CHECK_OK(
        control_gather(env->control, "about", env->world.size, mine, deadline_in_ms(5000), &all));
    for (int i = 0; i < env->world.size; i++)
        CHECK_INT(json_integer_value(json_object_get(json_array_get(all, (size_t)i), "rank")), i);
    json_decref(all);
    json_decref(mine);
}

TEST(gather_gives_all_values_in_rank_order)
{
    ranks_run(8, 2, gather_all, NULL);
}

TEST(gather_waits_for_the_run_and_not_for_all_that_the_server_takes)
{
    struct ranks r = { .size = 3, .room = 1000, .run = gather_all };
    ranks_start(&r);
    ranks_finish(&r);
    ranks_check_ok(&r);
}

static void gather_without_two(struct rank_env *env)
{
    json_t *mine = json_integer(1), *all;
    if (env->world.rank % 2 == 0)
        CHECK_ERROR(
            control_gather(env->control, "half", env->world.size, mine, deadline_in_ms(300), &all),
            RAIA_ETIMEDOUT, "rank 1, 3 did not reach 'half'");
    json_decref(mine);
}

TEST(gather_names_the_ranks_that_do_not_come)
{
    ranks_run(4, 1, gather_without_two, NULL);
}

static void wait_in_vain(struct rank_env *env)
{
    void *data;
    size_t len;
    CHECK_ERROR(control_get(env->control, "nobody's", &data, &len, deadline_in_ms(100)),
                RAIA_ETIMEDOUT, "nobody's");
    CHECK_ERROR(control_peek(env->control, "nobody's", &data, &len), RAIA_ENOTFOUND, "nobody's");
    CHECK_ERROR(control_put(env->control, "", "x", 1), RAIA_EINVAL, "key");
    static char big[FRAME_VALUE_MAX + 1];
    CHECK_ERROR(control_put(env->control, "big", big, sizeof big), RAIA_EINVAL, "65537");
    CHECK_OK(control_put(env->control, "big", big, sizeof big - 1));
    CHECK_OK(control_put(env->control, "empty", NULL, 0));
    CHECK_OK(control_get(env->control, "empty", &data, &len, 0));
    CHECK_INT(len, 0);
    free(data);
}

TEST(waits_for_a_value_end_at_their_deadline_and_sizes_are_bounded)
{
    ranks_run(1, 1, wait_in_vain, NULL);
}

/* ---- events and files ---- */

static void send_events(struct rank_env *env)
{
    json_t *event = json_pack("{s:s,s:i}", "event", "step", "step", env->world.rank);
    for (int i = 0; i < 100; i++)
        CHECK_OK(control_event(env->control, event));
    json_decref(event);
}

TEST(no_event_is_lost_before_a_clean_goodbye)
{
    struct ranks r = { .size = 4, .run = send_events };
    ranks_start(&r);
    ranks_finish(&r);
    ranks_check_ok(&r);
    for (int i = 0; i < r.size; i++) {
        CHECK_INT(r.events[i], 100);
        CHECK_INT(r.lost_clean[i], 1);
        CHECK_INT(r.lost_unclean[i], 0);
    }
}

struct received {
    uint8_t data[6 << 20];
    size_t most;
    int refuse_from; /* chunks from then on fail */
    int chunks;
};

static raia_status take_chunk(void *self, int rank, const char *name, uint64_t offset,
                              const void *data, size_t len)
{
    struct received *got = self;
    (void)rank;
    if (got->chunks++ >= got->refuse_from)
        return fail(RAIA_EIO, "disk of %s is full", name);
    CHECK_STR(name, "model/shard-1.bin");
    CHECK(offset + len <= sizeof got->data);
    memcpy(got->data + offset, data, len);
    got->most = offset + len > got->most ? offset + len : got->most;
    return RAIA_OK;
}

static struct control *self_connect(struct control_server **server,
                                    const struct control_callbacks *callbacks)
{
    uint16_t port = 0;
    char address[32];
    struct control *control;
    CHECK_OK(control_serve(server, "127.0.0.1", &port, RANKS_TOKEN, 2, callbacks));
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    CHECK_OK(control_connect(&control, address, RANKS_TOKEN, 0, deadline_in_ms(5000)));
    return control;
}

TEST(a_file_of_many_pieces_arrives_whole)
{
    struct received *got = calloc(1, sizeof *got);
    uint8_t *data = malloc(sizeof got->data);
    for (size_t i = 0; i < sizeof got->data; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 13);
    got->refuse_from = 100;
    const struct control_callbacks callbacks = { got, NULL, take_chunk, NULL };
    struct control_server *server;
    struct control *control = self_connect(&server, &callbacks);
    CHECK_OK(control_chunk(control, "model/shard-1.bin", 0, data, 5000001));
    CHECK_OK(control_chunk(control, "model/shard-1.bin", 5000001, data + 5000001, 777));
    CHECK_OK(control_chunk(control, "model/shard-1.bin", 5000778, NULL, 0));
    CHECK_INT(got->most, 5000778);
    CHECK(memcmp(got->data, data, got->most) == 0);
    control_close(control, true);
    control_server_close(server);
    free(data);
    free(got);
}

TEST(a_piece_that_cannot_be_written_fails_at_the_rank_with_the_drivers_text)
{
    struct received *got = calloc(1, sizeof *got);
    got->refuse_from = 2;
    const struct control_callbacks callbacks = { got, NULL, take_chunk, NULL };
    struct control_server *server;
    struct control *control = self_connect(&server, &callbacks);
    CHECK_ERROR(control_chunk(control, "model/shard-1.bin", 0, got->data, sizeof got->data),
                RAIA_EIO, "disk of model/shard-1.bin is full");
    CHECK_OK(control_check(control));
    CHECK_ERROR(control_chunk(control, "../etc/passwd", 0, "x", 1), RAIA_EINVAL, "../etc/passwd");
    CHECK_ERROR(control_chunk(control, "/etc/passwd", 0, "x", 1), RAIA_EINVAL, "/etc/passwd");
    CHECK_ERROR(control_chunk(control, "a//b", 0, "x", 1), RAIA_EINVAL, "a//b");
    control_close(control, true);
    control_server_close(server);
    free(got);
}

/* ---- ends ---- */

static void wait_for_abort(struct rank_env *env)
{
    void *data;
    size_t len;
    if (env->world.rank == 2) {
        clock_sleep_ms(100);
        raise(SIGKILL);
    }
    if (env->world.rank == 0) { /* inside a wait */
        CHECK_ERROR(control_get(env->control, "never", &data, &len, deadline_in_ms(20000)),
                    RAIA_EPEER, "rank 2 was lost");
        return;
    }
    uint64_t end = deadline_in_ms(5000); /* computing */
    while (control_check(env->control) == RAIA_OK)
        CHECK(deadline_left_ms(end) > 0);
    CHECK(strstr(raia_error(), "rank 2 was lost") != NULL);
    CHECK_ERROR(control_put(env->control, "k", "v", 1), RAIA_EPEER, "rank 2 was lost");
}

TEST(a_killed_rank_is_reported_and_the_abort_reaches_ranks_that_wait_and_that_compute)
{
    struct ranks r = { .size = 4, .run = wait_for_abort, .abort_on_loss = true, .limit_s = 10 };
    uint64_t begin = clock_ns();
    ranks_start(&r);
    ranks_finish(&r);
    CHECK((double)(clock_ns() - begin) < 5e9);
    CHECK_INT(r.codes[2], 128 + SIGKILL);
    CHECK_INT(r.lost_unclean[2], 1);
    for (int i = 0; i < 4; i++)
        if (i != 2)
            CHECK_INT(r.codes[i], 0);
}

TEST(a_rank_notices_that_the_driver_is_gone)
{
    struct control_server *server;
    struct control *control = self_connect(&server, &(struct control_callbacks){ 0 });
    control_server_close(server);
    uint64_t end = deadline_in_ms(5000);
    while (control_check(control) == RAIA_OK)
        CHECK(deadline_left_ms(end) > 0);
    CHECK(strstr(raia_error(), "the driver at 127.0.0.1") != NULL);
    control_close(control, true);
}

TEST(an_abort_just_before_the_close_still_arrives_and_reaches_late_comers)
{
    struct control_server *server;
    struct control *control = self_connect(&server, &(struct control_callbacks){ 0 });
    control_server_abort(server, "stopped by the user");
    control_server_abort(server, "a second reason");
    control_server_close(server);
    while (control_check(control) == RAIA_OK)
        clock_sleep_ms(1);
    CHECK_STR(raia_error(), "stopped by the user");
    control_close(control, false);
}

/* ---- who may come in ---- */

TEST(wrong_tokens_wrong_ranks_and_double_ranks_are_refused_with_the_reason)
{
    uint16_t port = 0;
    char address[32];
    struct control_server *server;
    struct control *a, *b;
    CHECK_OK(control_serve(&server, "127.0.0.1", &port, RANKS_TOKEN, 2,
                           &(struct control_callbacks){ 0 }));
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    CHECK_ERROR(control_connect(&a, address, "0123456789abcdeF", 0, deadline_in_ms(2000)),
                RAIA_EREFUSED, "token");
    CHECK_ERROR(control_connect(&a, address, "0123456789abcdef0", 0, deadline_in_ms(2000)),
                RAIA_EREFUSED, "token");
    CHECK_ERROR(control_connect(&a, address, "", 0, deadline_in_ms(2000)), RAIA_EINVAL, "token");
    CHECK_ERROR(control_connect(&a, address, RANKS_TOKEN, 2, deadline_in_ms(2000)), RAIA_EREFUSED,
                "rank 2 is not one of this run's 2 ranks");
    CHECK_OK(control_connect(&a, address, RANKS_TOKEN, 1, deadline_in_ms(2000)));
    CHECK_ERROR(control_connect(&b, address, RANKS_TOKEN, 1, deadline_in_ms(2000)), RAIA_EREFUSED,
                "rank 1 is connected already");
    control_close(a, true);
    control_server_close(server);
}

static bool closed_within(int fd, unsigned ms)
{
    char byte;
    uint64_t end = deadline_in_ms(ms);
    raia_status status = RAIA_OK;
    while (status == RAIA_OK) /* a reply may come first */
        status = net_recv(fd, &byte, 1, end, "server");
    return status == RAIA_EPEER;
}

TEST(garbage_and_slow_strangers_are_dropped_while_a_rank_is_served)
{
    uint16_t port = 0;
    struct control_server *server;
    struct control *control;
    char address[32], junk[4096];
    int fds[40], silent;
    CHECK_OK(control_serve(&server, "127.0.0.1", &port, RANKS_TOKEN, 1,
                           &(struct control_callbacks){ 0 }));
    CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(1000), false, &silent));
    for (int i = 0; i < 40; i++) {
        for (size_t j = 0; j < sizeof junk; j++)
            junk[j] = (char)((unsigned)(i + 1) * 2654435761U >> (j % 24));
        CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(1000), false, &fds[i]));
        net_send(fds[i], junk, sizeof junk, deadline_in_ms(1000), "server");
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    CHECK_OK(control_connect(&control, address, RANKS_TOKEN, 0, deadline_in_ms(2000)));
    CHECK_OK(control_put(control, "k", "v", 1));
    for (int i = 0; i < 40; i++)
        CHECK(closed_within(fds[i], 3000));
    CHECK(closed_within(silent, 8000)); /* its hello's time is over */
    CHECK_OK(control_check(control));
    control_close(control, true);
    control_server_close(server);
}

TEST(a_frame_that_claims_gigabytes_ends_the_connection_at_its_head)
{
    uint16_t port = 0;
    struct control_server *server;
    int fd;
    CHECK_OK(control_serve(&server, "127.0.0.1", &port, RANKS_TOKEN, 1,
                           &(struct control_callbacks){ 0 }));
    CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(1000), false, &fd));
    uint8_t message[FRAME_HEAD];
    frame_write_head(message, &(struct frame){ .type = FRAME_EVENT, .len = 0xfffffff0 });
    CHECK_OK(net_send(fd, message, sizeof message, deadline_in_ms(1000), "server"));
    CHECK(closed_within(fd, 2000));
    CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(1000), false, &fd));
    frame_write_head(message,
                     &(struct frame){ .type = FRAME_EVENT, .len = 1 << 20 }); /* no hello */
    CHECK_OK(net_send(fd, message, sizeof message, deadline_in_ms(1000), "server"));
    CHECK(closed_within(fd, 2000));
    control_server_close(server);
}

TEST(more_strangers_than_there_is_room_for_do_not_keep_a_rank_out)
{
    uint16_t port = 0;
    struct control_server *server;
    struct control *control;
    char address[32];
    int fds[120];
    CHECK_OK(control_serve(&server, "127.0.0.1", &port, RANKS_TOKEN, 1,
                           &(struct control_callbacks){ 0 }));
    for (int i = 0; i < 120; i++)
        CHECK_OK(net_connect("127.0.0.1", port, deadline_in_ms(1000), false, &fds[i]));
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    CHECK_OK(control_connect(&control, address, RANKS_TOKEN, 0, deadline_in_ms(15000)));
    control_close(control, true);
    control_server_close(server);
}

TEST_MAIN
