/* Safetensors and configs that transformers and the safetensors library wrote: all are accepted,
 * and the plan lays files out as those libraries did. */
#include "check.h"
#include "model/model.h"

#include <dirent.h>

static const char *fixtures(void)
{
    static char path[512];
    const char *source = getenv("RAIA_SOURCE");
    snprintf(path, sizeof path, "%s/tests/fixtures", source != NULL ? source : "..");
    if (!dir_exists(path))
        SKIP("no fixtures at %s", path);
    return path;
}

/* Calls RUN for each model folder of the fixtures and returns how many there were. */
static int each_model(void (*run)(const char *dir))
{
    DIR *dir = opendir(fixtures());
    CHECK(dir != NULL);
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s/model", fixtures(), entry->d_name);
        if (entry->d_name[0] == '.' || !dir_exists(path))
            continue;
        printf("# %s\n", entry->d_name);
        run(path);
        count++;
    }
    closedir(dir);
    return count;
}

static void check_model(const char *dir)
{
    struct model_config config;
    struct tree tree;
    struct st_folder *folder;
    CHECK_OK(model_load_config(dir, &config));
    CHECK_OK(tree_build(&config, &tree));
    CHECK_OK(st_open(dir, &folder));
    CHECK_OK(st_check(folder, &tree, config.tied));
    CHECK_INT(st_count(folder), tree.params);
    st_close(folder);
    tree_release(&tree);
}

TEST(models_that_transformers_saved_fit_their_configs)
{
    CHECK(each_model(check_model) >= 3);
}

/* Where the library put a tensor is where the plan puts it. */
static void check_layout(const char *dir)
{
    struct model_config config;
    struct tree tree;
    struct st_folder *folder;
    struct st_plan *plan;
    CHECK_OK(model_load_config(dir, &config));
    CHECK_OK(tree_build(&config, &tree));
    CHECK_OK(st_open(dir, &folder));
    /* how make_fixtures.py split the sharded case */
    uint64_t shard = strstr(dir, "sharded") != NULL ? 64000 : 0;
    CHECK_OK(st_plan_new(&tree, RAIA_F32, shard, &plan));
    for (int f = 0; f < st_plan_files(plan); f++) {
        char path[1100];
        size_t len;
        char *file;
        snprintf(path, sizeof path, "%s/%s", dir, st_plan_file_name(plan, f));
        CHECK_OK(file_read(path, 1 << 24, &file, &len));
        CHECK_INT(len, st_plan_file_size(plan, f));
        const void *header = st_plan_header(plan, f, &len);
        CHECK(memcmp(file, header, len) == 0);
        free(file);
    }
    for (int p = 0; p < tree.params; p++) {
        const struct st_tensor *tensor = st_find(folder, tree.param[p].name);
        int f;
        uint64_t offset;
        st_plan_place(plan, p, &f, &offset);
        CHECK_INT(offset, tensor->offset);
    }
    st_plan_free(plan);
    st_close(folder);
    tree_release(&tree);
}

TEST(the_plan_makes_the_same_headers_as_the_library_byte_for_byte)
{
    CHECK(each_model(check_layout) >= 3);
}

static void check_written(const char *dir)
{
    struct model_config config, again;
    json_t *json = NULL;
    CHECK_OK(model_load_config(dir, &config));
    CHECK_OK(config_write(&config, &json));
    CHECK_OK(config_parse(json, dir, &again));
    again.family = config.family;
    CHECK(config.rope_theta == again.rope_theta && config.rope_factor == again.rope_factor);
    CHECK_INT(config.head_dim, again.head_dim);
    CHECK_INT(config.tied, again.tied);
    json_decref(json);
}

TEST(their_configs_survive_being_written_in_the_older_spelling)
{
    CHECK(each_model(check_written) >= 3);
}

TEST(odd_but_valid_files_are_read_as_their_manifest_says)
{
    char path[1024];
    json_t *manifest = NULL, *entry, *tensors, *want;
    const char *file, *name;
    snprintf(path, sizeof path, "%s/safetensors/manifest.json", fixtures());
    CHECK_OK(json_read_file(path, 1 << 24, &manifest));
    CHECK(json_object_size(manifest) > 0);
    json_object_foreach(manifest, file, entry)
    {
        struct st_folder *folder;
        snprintf(path, sizeof path, "%s/safetensors/%s", fixtures(), file);
        CHECK_OK(st_open(path, &folder));
        tensors = json_object_get(entry, "tensors");
        CHECK_INT(st_count(folder), json_object_size(tensors));
        json_object_foreach(tensors, name, want)
        {
            const struct st_tensor *got = st_find(folder, name);
            if (got == NULL)
                CHECK_FAIL("%s: no %s", file, name);
            CHECK_STR(got->tag, json_string_value(json_object_get(want, "dtype")));
            CHECK_INT(got->bytes, json_integer_value(json_object_get(want, "bytes")));
            const json_t *shape = json_object_get(want, "shape");
            CHECK_INT(got->dims, json_array_size(shape));
            for (int i = 0; i < got->dims; i++)
                CHECK_INT(got->shape[i], json_integer_value(json_array_get(shape, (size_t)i)));
        }
        st_close(folder);
    }
    json_decref(manifest);
}

TEST_MAIN
