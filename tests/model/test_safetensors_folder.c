/* Safetensors, folders: an index must tell the truth, and a folder must fit its config. */
#include "st_make.h"

#include "model/model.h"

#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static raia_status open_folder(struct st_folder **out)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s", st_dir);
    return st_open(dir, out);
}

static void make_two(const char *index)
{
    st_make(ONE, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    st_make(TWO, "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    st_write_text(INDEX, index);
}

TEST(a_sharded_folder_is_one_list_of_tensors)
{
    struct st_folder *folder;
    make_two("{\"metadata\":{\"total_size\":5},\"weight_map\":{\"a\":\"" ONE "\",\"b\":\"" TWO
             "\"}}");
    CHECK_OK(open_folder(&folder));
    CHECK_INT(st_count(folder), 2);
    unsigned char raw[3];
    CHECK_OK(st_read(folder, st_find(folder, "b"), 0, 3, RAIA_U8, raw));
    CHECK_INT(raw[2], 2);
    st_close(folder);
    st_made_end();
}

TEST(an_index_that_lies_is_refused)
{
    static const struct {
        const char *index;
        raia_status status;
        const char *error;
    } cases[] = {
        { "{\"weight_map\":{\"a\":\"" ONE "\",\"b\":\"model-3.safetensors\"}}", RAIA_ENOTFOUND,
          "names a file that is missing" },
        { "{\"weight_map\":{\"a\":\"" ONE "\",\"c\":\"" TWO "\"}}", RAIA_EFORMAT,
          "tensor \"c\" is not in " TWO },
        { "{\"weight_map\":{\"a\":\"" TWO "\",\"b\":\"" ONE "\"}}", RAIA_EFORMAT, "is not in" },
        { "{\"weight_map\":{\"a\":\"../" ONE "\"}}", RAIA_EFORMAT, "not the name of a" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", RAIA_EFORMAT, "not the name of a" },
        { "{\"weight_map\":{\"a\":\"..\"}}", RAIA_EFORMAT, "not the name of a" },
        { "{\"weight_map\":{\"a\":\"config.json\"}}", RAIA_EFORMAT, "not the name of a" },
        { "{\"weight_map\":{\"a\":7}}", RAIA_EFORMAT, "has no file's name" },
        { "{\"weight_map\":{}}", RAIA_EFORMAT, "weight_map" },
        { "{\"weight_map\":[]}", RAIA_EFORMAT, "weight_map" },
        { "[]", RAIA_EFORMAT, "weight_map" },
        { "{", RAIA_EFORMAT, "not valid JSON" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct st_folder *folder;
        make_two(cases[i].index);
        CHECK_ERROR(open_folder(&folder), cases[i].status, cases[i].error);
        CHECK(strstr(raia_error(), INDEX) != NULL);
    }
    st_made_end();
}

TEST(a_tensor_in_two_files_is_refused)
{
    struct st_folder *folder;
    make_two("{\"weight_map\":{\"a\":\"" ONE "\",\"b\":\"" TWO "\"}}");
    st_make(TWO,
            "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
            3);
    CHECK_ERROR(open_folder(&folder), RAIA_EFORMAT, "tensor \"a\" is in");
    st_made_end();
}

TEST(a_folder_without_weights_says_what_it_has_instead)
{
    struct st_folder *folder;
    st_write_text("x", "");
    CHECK_ERROR(open_folder(&folder), RAIA_ENOTFOUND, INDEX);
    st_write_text("pytorch_model.bin", "");
    CHECK_ERROR(open_folder(&folder), RAIA_EUNSUPPORTED, "pytorch_model.bin");
    st_made_end();
}

/* ---- a folder against a tree ---- */

/* A model of one layer of the smallest sizes. */
static void small_tree(struct tree *tree, bool tied)
{
    json_t *json = NULL;
    const char *text = "{\"model_type\":\"qwen2\",\"hidden_size\":4,\"intermediate_size\":6,"
                       "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                       "\"num_key_value_heads\":1,\"vocab_size\":5000}";
    struct model_config config;
    CHECK_OK(json_parse(text, strlen(text), 1000, "config", &json));
    CHECK_OK(config_parse(json, "config", &config));
    json_decref(json);
    config.tied = tied;
    CHECK_OK(tree_build(&config, tree));
}

/* Writes all parameters of TREE but SKIP, said to be of type TAG, 4 bytes each: 0, 1, 2 … EXTRA is
 * one more entry of the vocabulary's shape that equals the embedding if SAME. */
static const char *write_model(const struct tree *tree, const char *skip, const char *extra,
                               bool same, const char *tag)
{
    struct buf header = { 0 };
    uint64_t offset = 0, embed = tree->param[0].count * 4;
    CHECK_OK(buf_printf(&header, "{\"__metadata__\":{}"));
    for (int p = 0; p < tree->params; p++) {
        const struct param *param = &tree->param[p];
        if (skip != NULL && strcmp(param->name, skip) == 0)
            continue;
        CHECK_OK(buf_printf(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", param->name, tag,
                            param->rows));
        if (param->cols > 0)
            CHECK_OK(buf_printf(&header, ",%zu", param->cols));
        CHECK_OK(buf_printf(&header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                            (unsigned long long)(offset + param->count * 4)));
        offset += param->count * 4;
    }
    if (extra != NULL) {
        CHECK_OK(buf_printf(&header,
                            ",\"%s\":{\"dtype\":\"F32\",\"shape\":[5000,4],\"data_offsets\":"
                            "[%llu,%llu]}",
                            extra, (unsigned long long)offset,
                            (unsigned long long)(offset + embed)));
    }
    CHECK_OK(buf_printf(&header, "}"));
    const char *path = st_make("model.safetensors", header.data, offset);
    buf_release(&header);
    if (extra == NULL)
        return path;
    FILE *file = fopen(path, "ab");
    CHECK(file != NULL);
    for (uint64_t i = 0; i < embed; i++)
        fputc((int)(i & 0xff) ^ (!same && i == embed - 1), file);
    CHECK_INT(fclose(file), 0);
    return path;
}

static void check(const char *path, const struct tree *tree, bool tied, raia_status status,
                  const char *error)
{
    struct st_folder *folder;
    CHECK_OK(st_open(path, &folder));
    if (status == RAIA_OK)
        CHECK_OK(st_check(folder, tree, tied));
    else
        CHECK_ERROR(st_check(folder, tree, tied), status, error);
    st_close(folder);
}

TEST(a_model_that_fits_its_config_passes)
{
    for (int tied = 0; tied < 2; tied++) {
        struct tree tree;
        small_tree(&tree, tied);
        check(write_model(&tree, NULL, NULL, false, "F32"), &tree, tied, RAIA_OK, "");
        check(write_model(&tree, NULL, "model.layers.0.self_attn.rotary_emb.inv_freq", true, "F32"),
              &tree, tied, RAIA_OK, "");
        tree_release(&tree);
    }
    st_made_end();
}

TEST(a_tensor_that_is_missing_misshapen_or_unknown_is_named)
{
    struct tree tree;
    small_tree(&tree, false);
    check(write_model(&tree, "model.layers.0.self_attn.k_proj.bias", NULL, false, "F32"), &tree,
          false, RAIA_EFORMAT, "\"model.layers.0.self_attn.k_proj.bias\" is missing");
    check(write_model(&tree, "lm_head.weight", NULL, false, "F32"), &tree, false, RAIA_EFORMAT,
          "tie_word_embeddings");
    check(write_model(&tree, NULL, "model.layers.1.mlp.up_proj.weight", false, "F32"), &tree, false,
          RAIA_EUNSUPPORTED, "\"model.layers.1.mlp.up_proj.weight\" is not known");
    check(write_model(&tree, NULL, NULL, false, "I32"), &tree, false, RAIA_EUNSUPPORTED, "is I32");
    const char *path = write_model(&tree, NULL, NULL, false, "F32");
    tree.param[3].rows += 1;
    check(path, &tree, false, RAIA_EFORMAT, tree.param[3].name);
    tree.param[3].rows -= 1;
    tree_release(&tree);
    st_made_end();
}

TEST(the_copy_of_a_tied_head_must_equal_the_embedding)
{
    struct tree tree;
    small_tree(&tree, true);
    check(write_model(&tree, NULL, "lm_head.weight", true, "F32"), &tree, true, RAIA_OK, "");
    check(write_model(&tree, NULL, "lm_head.weight", false, "F32"), &tree, true, RAIA_EFORMAT,
          "\"lm_head.weight\" differs");
    tree_release(&tree);
    st_made_end();
}

TEST_MAIN
