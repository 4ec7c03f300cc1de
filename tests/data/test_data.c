#include "base/base.h"
#include "check.h"
#include "data/data.h"

static struct sampler sampler_of(uint64_t samples, uint64_t batch, int size, bool shuffle)
{
    return (struct sampler){
        .samples = samples, .global_batch = batch, .size = size, .shuffle = shuffle, .seed = 7
    };
}

TEST(the_ranks_share_a_batch_whole_in_order_and_evenly)
{
    for (int size = 1; size <= 9; size++)
        for (uint64_t batch = (uint64_t)size; batch < 20; batch++) {
            struct sampler s = sampler_of(100, batch, size, false);
            uint64_t next = 0;
            for (int r = 0; r < size; r++) {
                uint64_t first, count;
                sampler_share(&s, r, &first, &count);
                CHECK_INT(first, next);
                CHECK(count == batch / (uint64_t)size || count == batch / (uint64_t)size + 1);
                next += count;
            }
            CHECK_INT(next, batch);
        }
}

TEST(an_epoch_shuffled_takes_each_sample_once_and_the_next_another_order)
{
    struct sampler s = sampler_of(60, 6, 1, true);
    s.epochs = 2;
    CHECK_INT(sampler_steps(&s), 20);
    int moved = 0, seen[60] = { 0 };
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t at = sampler_at(&s, i / 6, i % 6);
        CHECK(at < 60);
        seen[at]++;
        moved += at != sampler_at(&s, 10 + i / 6, i % 6);
    }
    for (int i = 0; i < 60; i++)
        CHECK_INT(seen[i], 1);
    CHECK(moved > 30);
}

TEST(a_batch_smaller_than_the_ranks_and_too_little_data_are_refused)
{
    struct sampler few = sampler_of(100, 3, 4, false), little = sampler_of(3, 4, 4, false);
    CHECK_ERROR(sampler_check(&few, "x.bin"), RAIA_EINVAL, "batch of 3");
    CHECK_ERROR(sampler_check(&little, "x.bin"), RAIA_EINVAL, "x.bin holds 3");
}

TEST(tokens_text_and_random_give_sample_i_from_i_times_t)
{
    char *dir, tokens[256], text[256];
    CHECK_OK(dir_make_temp("raia-test", &dir));
    snprintf(tokens, sizeof tokens, "%s/t.bin", dir);
    snprintf(text, sizeof text, "%s/t.txt", dir);
    uint32_t data[7] = { 1, 2, 3, 4, 5, 300, 7 }, out[3], again[3];
    CHECK_OK(file_write(tokens, data, sizeof data, 0600));
    CHECK_OK(file_write(text, "abcdefgh", 8, 0600));
    struct source s;
    CHECK_OK(source_open(tokens, 256, 0, &s));
    CHECK_INT(s.tokens, 7);
    CHECK_OK(source_sample(&s, 0, 3, out));
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
    CHECK_ERROR(source_sample(&s, 1, 3, out), RAIA_EFORMAT, "token 300 at position 5");
    source_close(&s);
    CHECK_OK(source_open(text, 256, 0, &s));
    CHECK_OK(source_sample(&s, 1, 3, out));
    CHECK(out[0] == 'd' && out[1] == 'e' && out[2] == 'f');
    source_close(&s);
    CHECK_OK(source_open("random", 50, 3, &s));
    CHECK_OK(source_sample(&s, 9, 3, out));
    CHECK_OK(source_sample(&s, 9, 3, again));
    for (int i = 0; i < 3; i++)
        CHECK(out[i] == again[i] && out[i] < 50);
    source_close(&s);
    CHECK_OK(dir_remove(dir));
    free(dir);
}

TEST_MAIN
