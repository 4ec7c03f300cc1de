/* Init: a random model depends on its seed alone, is whole or absent, and is what transformers'
 * initialisation would draw. */
#include "check.h"
#include "model/model.h"

#include <dirent.h>
#include <sys/stat.h>

static char *root;

static char *in_root(const char *name)
{
    if (root == NULL)
        CHECK_OK(dir_make_temp("raia-init", &root));
    return path_join(root, name);
}

static void end(void)
{
    CHECK_OK(dir_remove(root));
    free(root);
    root = NULL;
}

static struct model_config tiny(void)
{
    struct model_config config;
    CHECK_OK(config_preset("tiny", &config));
    return config;
}

static char *slurp(const char *dir, size_t *len)
{
    char *text, *path = path_join(dir, "model.safetensors");
    CHECK_OK(file_read(path, 1 << 30, &text, len));
    free(path);
    return text;
}

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    int count = -2;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

TEST(the_same_seed_makes_the_same_bytes_for_any_number_of_parts)
{
    struct model_config config = tiny();
    char *one = in_root("one");
    CHECK_OK(model_init_folder(&config, one, RAIA_BF16, 7, 1, false, NULL));
    size_t len, other_len;
    char *bytes = slurp(one, &len);
    for (int workers = 2; workers <= 5; workers++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", workers);
        char *dir = in_root(name);
        CHECK_OK(model_init_folder(&config, dir, RAIA_BF16, 7, workers, false, NULL));
        char *other = slurp(dir, &other_len);
        CHECK_INT(len, other_len);
        CHECK(memcmp(bytes, other, len) == 0);
        free(other);
        free(dir);
    }
    char *dir = in_root("seed8");
    CHECK_OK(model_init_folder(&config, dir, RAIA_BF16, 8, 2, false, NULL));
    char *other = slurp(dir, &other_len);
    CHECK(memcmp(bytes, other, len) != 0);
    free(other);
    free(dir);
    free(bytes);
    free(one);
    end();
}

TEST(more_parts_than_parameters_still_make_the_whole)
{
    struct model_config config = tiny();
    char *a = in_root("a"), *b = in_root("b");
    CHECK_OK(dir_make(a, 0755));
    for (int part = 299; part >= 0; part--)
        CHECK_OK(model_init_part(&config, a, RAIA_F32, 3, part, 300, NULL));
    CHECK_OK(model_init_folder(&config, b, RAIA_F32, 3, 1, false, NULL));
    size_t len, other_len;
    char *x = slurp(a, &len), *y = slurp(b, &other_len);
    CHECK_INT(len, other_len);
    CHECK(memcmp(x, y, len) == 0);
    free(x);
    free(y);
    free(a);
    free(b);
    end();
}

static void check_values(const struct st_folder *folder, const struct param *param, double std)
{
    float *x = malloc(param->count * sizeof *x);
    CHECK(x != NULL);
    CHECK_OK(st_read(folder, st_find(folder, param->name), 0, param->count, RAIA_F32, x));
    double sum = 0, square = 0;
    for (size_t i = 0; i < param->count; i++) {
        sum += x[i];
        square += (double)x[i] * x[i];
        if (param->init == INIT_ONES)
            CHECK(x[i] == 1.0f);
        if (param->init == INIT_ZEROS)
            CHECK(x[i] == 0.0f);
    }
    if (param->init == INIT_NORMAL) {
        double n = (double)param->count, mean = sum / n, deviation = sqrt(square / n);
        CHECK(fabs(mean) < 5 * std / sqrt(n));
        CHECK(fabs(deviation / std - 1) < 5 / sqrt(2 * n));
    }
    free(x);
}

TEST(weights_are_normal_norms_one_and_biases_zero)
{
    struct model_config config = tiny(), again;
    config.init_std = 0.05;
    struct tree tree;
    char *dir = in_root("m");
    CHECK_OK(model_init_folder(&config, dir, RAIA_F32, 1, 2, false, NULL));
    CHECK_OK(model_load_config(dir, &again));
    CHECK_INT(again.dtype, RAIA_F32);
    CHECK_OK(tree_build(&again, &tree));
    struct st_folder *folder;
    CHECK_OK(st_open(dir, &folder));
    CHECK_OK(st_check(folder, &tree, again.tied));
    CHECK_INT(st_count(folder), tree.params);
    for (int p = 0; p < tree.params; p++)
        check_values(folder, &tree.param[p], 0.05);
    st_close(folder);
    tree_release(&tree);
    free(dir);
    end();
}

TEST(any_slice_of_a_parameter_is_filled_as_the_whole)
{
    enum { COUNT = 5000 };
    struct param param = { .name = "model.x.weight", .rows = COUNT, .count = COUNT };
    struct device *device;
    CHECK_OK(device_open(&device, "cpu", 1));
    static float whole[COUNT], part[COUNT];
    CHECK_OK(param_fill(device, &param, 0.02, 5, 0, COUNT, RAIA_F32, whole));
    static const size_t starts[] = { 0, 1, 7, 64, 1023, 4999 };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        size_t n = COUNT - starts[i] < 333 ? COUNT - starts[i] : 333;
        CHECK_OK(param_fill(device, &param, 0.02, 5, starts[i], n, RAIA_F32, part));
        CHECK(memcmp(part, whole + starts[i], n * sizeof *part) == 0);
    }
    CHECK_ERROR(param_fill(device, &param, 0.02, 5, 4999, 2, RAIA_F32, part), RAIA_EINVAL,
                "model.x.weight");
    CHECK_ERROR(param_fill(device, &param, 0.02, 5, 0, 1, RAIA_I32, part), RAIA_EINVAL, "i32");
    device_close(device);
}

TEST(a_folder_that_is_not_empty_is_replaced_only_by_force_and_only_if_a_model)
{
    struct model_config config = tiny();
    char *dir = in_root("m"), *file = path_join(dir, "notes.txt"), *slashed = in_root("m//");
    CHECK_OK(dir_make(dir, 0755));
    CHECK_OK(model_init_folder(&config, slashed, RAIA_F32, 1, 1, false, NULL)); /* empty: fine */
    CHECK_ERROR(model_init_folder(&config, dir, RAIA_F32, 1, 1, false, NULL), RAIA_EINVAL,
                "is not empty");
    CHECK_OK(file_write(file, "x", 1, 0644));
    CHECK_OK(model_init_folder(&config, dir, RAIA_BF16, 1, 1, true, NULL));
    CHECK(!file_exists(file));
    CHECK_INT(entries(dir), 2);
    CHECK_OK(dir_remove(dir));
    CHECK_OK(dir_make(dir, 0755));
    CHECK_OK(file_write(file, "x", 1, 0644));
    CHECK_ERROR(model_init_folder(&config, dir, RAIA_F32, 1, 1, true, NULL), RAIA_EINVAL,
                "has no config.json");
    CHECK_ERROR(model_init_folder(&config, file, RAIA_F32, 1, 1, true, NULL), RAIA_EINVAL,
                "not a folder");
    CHECK(file_exists(file));
    CHECK_INT(entries(root), 1);
    free(slashed);
    free(file);
    free(dir);
    end();
}

TEST(a_stopped_or_failed_init_leaves_nothing_behind)
{
    struct model_config config = tiny();
    char *dir = in_root("m"), *deep = in_root("nowhere/m");
    struct init_watch watch = { .stop = true };
    CHECK_ERROR(model_init_folder(&config, dir, RAIA_F32, 1, 2, false, &watch), RAIA_ESTOPPED,
                "stopped");
    CHECK_INT(entries(root), 0);
    CHECK_ERROR(model_init_folder(&config, dir, RAIA_I32, 1, 2, false, NULL), RAIA_EINVAL, "i32");
    CHECK_INT(entries(root), 0);
    CHECK_ERROR(model_init_folder(&config, dir, RAIA_F32, 1, 0, false, NULL), RAIA_EINVAL,
                "workers");
    CHECK_OK(model_init_folder(&config, deep, RAIA_F32, 1, 2, false, NULL)); /* makes parents */
    watch.stop = false;
    CHECK_OK(model_init_folder(&config, dir, RAIA_F32, 1, 2, false, &watch));
    struct tree tree;
    CHECK_OK(tree_build(&config, &tree));
    CHECK_INT(watch.written, tree.total * 4);
    tree_release(&tree);
    free(deep);
    free(dir);
    end();
}

TEST(parts_out_of_range_are_refused)
{
    struct model_config config = tiny();
    CHECK_ERROR(model_init_part(&config, "/nonexistent", RAIA_F32, 1, 2, 2, NULL), RAIA_EINVAL,
                "part 2 of 2");
    CHECK_ERROR(model_init_part(&config, "/nonexistent", RAIA_F32, 1, 1, 2, NULL), RAIA_EIO,
                "/nonexistent");
}

TEST_MAIN
