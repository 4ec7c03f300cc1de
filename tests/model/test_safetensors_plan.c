/* Safetensors, writing: the layout is what the reader accepts and what the libraries would write.
 */
#include "st_make.h"

#include "model/model.h"

#include <fcntl.h>

static void build(const char *preset, struct tree *tree)
{
    struct model_config config;
    CHECK_OK(config_preset(preset, &config));
    CHECK_OK(tree_build(&config, tree));
}

/* Writes headers, index and each parameter (element i of parameter p is p + i/1000, as bf16's high
 * half of f32) by ranges, the last first: as ranks do, in no order. */
static void write_planned(const struct st_plan *plan, const struct tree *tree)
{
    for (int f = 0; f < st_plan_files(plan); f++) {
        size_t len;
        const void *header = st_plan_header(plan, f, &len);
        int fd = open(st_made_path(st_plan_file_name(plan, f)), O_CREAT | O_WRONLY, 0644);
        CHECK(fd >= 0);
        CHECK_OK(file_pwrite(fd, header, len, 0, "header"));
        close(fd);
    }
    if (st_plan_index(plan) != NULL)
        st_write_text("model.safetensors.index.json", st_plan_index(plan));
    for (int p = tree->params - 1; p >= 0; p--) {
        int f;
        uint64_t offset;
        st_plan_place(plan, p, &f, &offset);
        int fd = open(st_made_path(st_plan_file_name(plan, f)), O_WRONLY);
        CHECK(fd >= 0);
        float *data = malloc(tree->param[p].count * 4);
        CHECK(data != NULL);
        for (size_t i = 0; i < tree->param[p].count; i++)
            data[i] = (float)p + (float)i / 1000;
        size_t half = tree->param[p].count / 2;
        CHECK_OK(file_pwrite(fd, data + half, (tree->param[p].count - half) * 4, offset + half * 4,
                             "data"));
        CHECK_OK(file_pwrite(fd, data, half * 4, offset, "data"));
        free(data);
        close(fd);
    }
}

static void read_back(const struct tree *tree)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s", st_dir);
    struct st_folder *folder;
    CHECK_OK(st_open(dir, &folder));
    CHECK_INT(st_count(folder), tree->params);
    CHECK_OK(st_check(folder, tree, true));
    for (int p = 0; p < tree->params; p++) {
        float last;
        size_t at = tree->param[p].count - 1;
        CHECK_OK(st_read(folder, st_find(folder, tree->param[p].name), at, 1, RAIA_F32, &last));
        CHECK(last == (float)p + (float)at / 1000);
    }
    st_close(folder);
}

TEST(a_model_written_by_ranges_is_read_back_in_one_file_or_many)
{
    static const uint64_t shards[] = { 0, 200000, 100000, 1 };
    struct tree tree;
    build("tiny", &tree);
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        struct st_plan *plan;
        CHECK_OK(st_plan_new(&tree, RAIA_F32, shards[i], &plan));
        CHECK_INT(st_plan_files(plan) > 1, i > 0);
        CHECK_INT(st_plan_index(plan) != NULL, i > 0);
        if (i == 3)
            CHECK_INT(st_plan_files(plan), tree.params);
        write_planned(plan, &tree);
        read_back(&tree);
        st_plan_free(plan);
        st_made_end();
    }
    tree_release(&tree);
}

TEST(sizes_are_those_of_the_published_files)
{
    struct tree tree;
    struct st_plan *plan;
    build("qwen2.5-1.5b", &tree);
    CHECK_OK(st_plan_new(&tree, RAIA_BF16, 0, &plan));
    CHECK_INT(st_plan_files(plan), 1);
    size_t len;
    const unsigned char *header = st_plan_header(plan, 0, &len);
    CHECK_INT(len % 8, 0);
    CHECK_INT(header[0] | header[1] << 8 | header[2] << 16, len - 8);
    CHECK_INT(header[8], '{');
    CHECK_INT(st_plan_file_size(plan, 0), len + 2 * 1543714304ull);
    st_plan_free(plan);
    CHECK_OK(st_plan_new(&tree, RAIA_F32, 0, &plan));
    CHECK_INT(st_plan_files(plan), 2);
    CHECK_STR(st_plan_file_name(plan, 1), "model-00002-of-00002.safetensors");
    CHECK(st_plan_file_size(plan, 0) <= 5000000000ull + 100000);
    st_plan_free(plan);
    tree_release(&tree);
}

TEST(names_are_in_order_and_the_metadata_says_pt)
{
    struct tree tree;
    struct st_plan *plan;
    size_t len;
    build("smollm2-135m", &tree);
    CHECK_OK(st_plan_new(&tree, RAIA_BF16, 0, &plan));
    const char *text = (const char *)st_plan_header(plan, 0, &len) + 8;
    CHECK(str_starts(text, "{\"__metadata__\":{\"format\":\"pt\"},\"model.embed_tokens.weight\":"
                           "{\"dtype\":\"BF16\",\"shape\":[49152,576],\"data_offsets\":[0,"));
    const char *one = strstr(text, "model.layers.1."), *ten = strstr(text, "model.layers.10.");
    const char *two = strstr(text, "model.layers.2.");
    CHECK(one != NULL && ten != NULL && two != NULL && one < ten && ten < two);
    st_plan_free(plan);
    tree_release(&tree);
}

TEST_MAIN
