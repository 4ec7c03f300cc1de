/* The decoder against transformers' losses and gradients, on the plain store. */
#include "check.h"
#include "model/model.h"

#include <string.h>

struct rig {
    json_t *expected;
    char *model_dir;
    struct model_config config;
    struct tree tree;
    struct device *device;
    struct local_store *store;
    struct decoder *decoder;
    uint32_t *tokens;
    size_t batch, seq;
};

#define OK(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != RAIA_OK)                                                                     \
            CHECK_FAIL("%s: %s", #expr, raia_error());                                             \
    } while (0)

static char *fixture(const char *name, const char *file)
{
    return str_format("%s/tests/fixtures/%s/%s", getenv("RAIA_SOURCE"), name, file);
}

static void load_weights(struct rig *r)
{
    struct st_folder *folder;
    OK(st_open(r->model_dir, &folder));
    for (int p = 0; p < r->tree.params; p++) {
        const struct st_tensor *t = st_find(folder, r->tree.param[p].name);
        CHECK(t != NULL);
        OK(st_read(folder, t, 0, r->tree.param[p].count, local_store_base(r->store)->dtype,
                   local_store_base(r->store)->weight[p]));
    }
    st_close(folder);
}

static void open_rig(struct rig *r, const char *name, size_t logits_bytes)
{
    size_t len;
    memset(r, 0, sizeof *r);
    char *expected = fixture(name, "expected.json"), *tokens = fixture(name, "tokens.bin");
    OK(json_read_file(expected, 1 << 24, &r->expected));
    const json_t *train = json_object_get(r->expected, "train");
    r->batch = (size_t)json_integer_value(json_object_get(train, "global_batch_size"));
    r->seq = (size_t)json_integer_value(json_object_get(train, "seq_len"));
    r->model_dir = fixture(name, "model");
    OK(model_load_config(r->model_dir, &r->config));
    OK(tree_build(&r->config, &r->tree));
    OK(device_open(&r->device, "cpu", 1));
    OK(local_store_new(&r->store, r->device, &r->tree, RAIA_F32, RAIA_F32));
    load_weights(r);
    OK(file_read(tokens, 1 << 24, (char **)&r->tokens, &len));
    free(expected);
    free(tokens);
    const struct decoder_options options = { .batch = r->batch,
                                             .seq = r->seq,
                                             .logits_bytes = logits_bytes };
    OK(decoder_new(&r->decoder, r->device, &r->config, &r->tree, local_store_base(r->store),
                   &options));
}

static void close_rig(struct rig *r)
{
    decoder_free(r->decoder);
    local_store_free(r->store);
    device_close(r->device);
    tree_release(&r->tree);
    json_decref(r->expected);
    free(r->tokens);
    free(r->model_dir);
}

static double norm_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static double step(struct rig *r)
{
    double sum, predictions = (double)(r->batch * (r->seq - 1));
    OK(decoder_forward_backward(r->decoder, r->tokens, NULL, r->batch, (float)(1 / predictions),
                                &sum));
    return sum / predictions;
}

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        CHECK_FAIL("%s: %.9g, transformers has %.9g", what, got, want);
}

static void compare(const char *name, size_t logits_bytes)
{
    struct rig r;
    open_rig(&r, name, logits_bytes);
    const json_t *f32 = json_object_get(json_object_get(r.expected, "runs"), "f32");
    const json_t *norms = json_object_get(f32, "grad_norms_step0");
    double loss = step(&r), total = 0;
    near(loss, json_number_value(json_array_get(json_object_get(f32, "loss"), 0)), 1e-5, "loss");
    for (int p = 0; p < r.tree.params; p++) {
        double norm = norm_of(local_store_grad(r.store, p), r.tree.param[p].count);
        near(norm, json_number_value(json_object_get(norms, r.tree.param[p].name)), 1e-4,
             r.tree.param[p].name);
        total += norm * norm;
    }
    near(sqrt(total), json_number_value(json_array_get(json_object_get(f32, "grad_norm"), 0)), 1e-5,
         "gradient norm");
    close_rig(&r);
}

TEST(qwen2_tied_with_biases_matches_transformers)
{
    compare("qwen2-tied", 0);
}

TEST(qwen2_untied_matches_transformers)
{
    compare("qwen2-untied-sharded", 0);
}

TEST(qwen3_with_head_norms_matches_transformers)
{
    compare("qwen3", 0);
    compare("qwen3-untied", 0);
}

TEST(llama_matches_transformers_with_and_without_rope_scaling)
{
    compare("llama-plain", 0);
    compare("llama3", 0);
    compare("llama3-old", 0);
}

TEST(a_head_in_blocks_of_vocabulary_matches_too)
{
    compare("qwen2-tied", 1);
    compare("qwen3-untied", 1);
}

TEST(the_same_step_twice_gives_the_same_bits)
{
    struct rig r;
    open_rig(&r, "qwen3", 0);
    double first = step(&r);
    size_t bytes = r.tree.param[0].count * sizeof(float);
    void *kept = malloc(bytes);
    memcpy(kept, local_store_grad(r.store, 0), bytes);
    CHECK(step(&r) == first);
    CHECK(memcmp(kept, local_store_grad(r.store, 0), bytes) == 0);
    free(kept);
    close_rig(&r);
}

TEST(an_empty_batch_leaves_gradients_of_zero)
{
    struct rig r;
    double sum = 1;
    open_rig(&r, "qwen2-tied", 0);
    step(&r);
    OK(decoder_forward_backward(r.decoder, NULL, NULL, 0, 1.0F, &sum));
    CHECK(sum == 0);
    for (int p = 0; p < r.tree.params; p++)
        CHECK(norm_of(local_store_grad(r.store, p), r.tree.param[p].count) == 0);
    close_rig(&r);
}

TEST(the_loss_alone_is_the_loss_of_the_step)
{
    struct rig r;
    double sum;
    open_rig(&r, "llama3", 0);
    double loss = step(&r);
    OK(decoder_loss(r.decoder, r.tokens, NULL, r.batch, &sum));
    CHECK(sum / (double)(r.batch * (r.seq - 1)) == loss);
    close_rig(&r);
}

TEST(a_token_beyond_the_vocabulary_is_named)
{
    struct rig r;
    double sum;
    open_rig(&r, "llama3", 0);
    r.tokens[r.seq + 2] = (uint32_t)r.config.vocab;
    CHECK(decoder_loss(r.decoder, r.tokens, NULL, r.batch, &sum) == RAIA_EINVAL);
    CHECK(strstr(raia_error(), "sample 1, position 2") != NULL);
    CHECK(decoder_loss(r.decoder, r.tokens, NULL, r.batch + 1, &sum) == RAIA_EINVAL);
    close_rig(&r);
}

TEST(bytes_by_formula_are_the_bytes_that_blocks_save)
{
    struct model_config config;
    OK(config_preset("qwen2.5-1.5b", &config));
    const struct decoder_options whole = { .batch = 4,
                                           .seq = 512,
                                           .logits_bytes = (size_t)1 << 40 };
    const struct decoder_options blocks = { .batch = 4, .seq = 512 };
    size_t logits = whole.batch * whole.seq * config.vocab * 2;
    size_t a = decoder_bytes(&config, RAIA_BF16, &whole);
    size_t b = decoder_bytes(&config, RAIA_BF16, &blocks);
    CHECK(a > b && a - b > logits / 2);
}

TEST_MAIN
