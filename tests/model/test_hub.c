/* Hub: names are resolved in the local cache as huggingface_hub lays it out, and what is missing is
 * said before a job starts. */
#include "check.h"
#include "model/model.h"

#include <sys/stat.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define REPO "hub/models--Org--Name-1.5B"

static char *root;

static void put(const char *path, const char *text)
{
    char *full = path_join(root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    CHECK_OK(dir_make(full, 0755));
    *slash = '/';
    CHECK_OK(file_write(full, text, strlen(text), 0644));
    free(full);
}

/* A file of the snapshot is a link into blobs/, as the hub makes it. */
static void put_linked(const char *name, const char *blob, const char *text)
{
    char path[256], target[128];
    snprintf(path, sizeof path, REPO "/blobs/%s", blob);
    put(path, text);
    snprintf(path, sizeof path, "%s/" REPO "/snapshots/" COMMIT "/%s", root, name);
    snprintf(target, sizeof target, "../../blobs/%s", blob);
    CHECK_INT(symlink(target, path), 0);
}

static void make_cache(void)
{
    CHECK_OK(dir_make_temp("raia-hub", &root));
    put(REPO "/refs/main", COMMIT);
    put(REPO "/refs/pr/1", COMMIT "\n");
    put(REPO "/snapshots/" COMMIT "/README.md", "x");
    put_linked("config.json", "aaaa",
               "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":128,"
               "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"vocab_size\":300}");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("XDG_CACHE_HOME");
    setenv("HF_HOME", root, 1);
    CHECK_INT(chdir(root), 0);
}

static void end_cache(void)
{
    CHECK_OK(dir_remove(root));
    free(root);
}

static void check_found(const char *name)
{
    char *dir, want[512];
    CHECK_OK(model_resolve(name, &dir));
    snprintf(want, sizeof want, "%s/" REPO "/snapshots/" COMMIT, root);
    CHECK_STR(dir, want);
    free(dir);
}

TEST(a_name_a_revision_and_a_commit_lead_to_the_snapshot)
{
    make_cache();
    check_found("Org/Name-1.5B");
    check_found("Org/Name-1.5B@main");
    check_found("Org/Name-1.5B@pr/1");
    end_cache();
}

TEST(the_cache_is_where_the_environment_says)
{
    make_cache();
    char hub[512];
    unsetenv("HF_HOME");
    setenv("HOME", "/nonexistent", 1);
    char *dir;
    CHECK_ERROR(model_resolve("Org/Name-1.5B", &dir), RAIA_ENOTFOUND,
                "/nonexistent/.cache/huggingface/hub/models--Org--Name-1.5B");
    snprintf(hub, sizeof hub, "%s/hub", root);
    setenv("HUGGINGFACE_HUB_CACHE", hub, 1);
    check_found("Org/Name-1.5B");
    setenv("HF_HUB_CACHE", "/nonexistent/hub", 1);
    CHECK_ERROR(model_resolve("Org/Name-1.5B", &dir), RAIA_ENOTFOUND,
                "/nonexistent/hub/models--Org--Name-1.5B");
    setenv("HF_HUB_CACHE", hub, 1);
    check_found("Org/Name-1.5B");
    setenv("HOME", root, 1);
    setenv("HF_HUB_CACHE", "~/hub", 1);
    check_found("Org/Name-1.5B");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    setenv("XDG_CACHE_HOME", root, 1);
    char link[512];
    snprintf(link, sizeof link, "%s/huggingface", root);
    CHECK_INT(symlink(".", link), 0);
    CHECK_OK(model_resolve("Org/Name-1.5B", &dir));
    free(dir);
    end_cache();
}

TEST(a_folder_wins_over_the_cache)
{
    make_cache();
    put("Org/Name-1.5B/config.json", "{}");
    char *dir;
    CHECK_OK(model_resolve("Org/Name-1.5B", &dir));
    CHECK_STR(dir, "Org/Name-1.5B");
    free(dir);
    end_cache();
}

TEST(what_is_not_there_is_said_with_the_way_to_get_it)
{
    make_cache();
    static const struct {
        const char *name, *error;
        raia_status status;
    } cases[] = {
        { "Org/Other", "hf download Org/Other", RAIA_ENOTFOUND },
        { "Org/Name-1.5B@v2", "--revision v2", RAIA_ENOTFOUND },
        { "Org/Name-1.5B@89abcdef0123456789abcdef0123456701234567", "incomplete", RAIA_ENOTFOUND },
        { "./Org/Other", "there is no folder", RAIA_ENOTFOUND },
        { "/nonexistent", "there is no folder", RAIA_ENOTFOUND },
        { "a/b/c", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "Org/../Name", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "Org/Name-1.5B@../../x", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "Org/Name-1.5B@", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "Org/a--b", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "Org/Na me", "neither a folder nor a name", RAIA_ENOTFOUND },
        { "hub/file", "is a file", RAIA_EINVAL },
    };
    put("hub/file", "x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir;
        CHECK_ERROR(model_resolve(cases[i].name, &dir), cases[i].status, cases[i].error);
        CHECK(dir == NULL);
    }
    end_cache();
}

TEST(a_snapshot_that_lacks_a_shard_is_incomplete)
{
    make_cache();
    char *dir;
    put_linked("model.safetensors.index.json", "bbbb",
               "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
               "\"b\":\"model-00002-of-00002.safetensors\"}}");
    put_linked("model-00001-of-00002.safetensors", "cccc", "x");
    CHECK_ERROR(model_resolve("Org/Name-1.5B", &dir), RAIA_ENOTFOUND,
                "model-00002-of-00002.safetensors is missing");
    put_linked("model-00002-of-00002.safetensors", "dddd", "x");
    check_found("Org/Name-1.5B");
    char path[512];
    snprintf(path, sizeof path, "%s/" REPO "/blobs/dddd", root);
    CHECK_INT(unlink(path), 0); /* a link whose blob is gone */
    CHECK_ERROR(model_resolve("Org/Name-1.5B", &dir), RAIA_ENOTFOUND, "is missing");
    end_cache();
}

TEST(a_ref_that_points_out_of_the_cache_is_refused)
{
    make_cache();
    char *dir;
    put(REPO "/refs/evil", "../../../..");
    CHECK_ERROR(model_resolve("Org/Name-1.5B@evil", &dir), RAIA_EFORMAT, "does not hold a commit");
    put(REPO "/refs/empty", "\n");
    CHECK_ERROR(model_resolve("Org/Name-1.5B@empty", &dir), RAIA_EFORMAT, "does not hold a commit");
    end_cache();
}

TEST(a_model_is_described_by_folder_hub_id_or_preset)
{
    make_cache();
    raia_model_info info;
    CHECK_OK(raia_model_describe("Org/Name-1.5B", &info));
    CHECK_STR(info.family, "qwen2");
    CHECK_INT(info.vocab, 300);
    CHECK_INT(info.tied, 0);
    CHECK_OK(raia_model_describe("qwen2.5-1.5b", &info));
    CHECK_INT(info.parameters, 1543714304);
    CHECK_INT(info.tied, 1);
    CHECK_ERROR(raia_model_describe("no-such-model", &info), RAIA_ENOTFOUND, "no-such-model");
    CHECK_ERROR(raia_model_describe(NULL, &info), RAIA_EINVAL, "");
    end_cache();
}

/* ---- small files ---- */

static bool copied(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/out/%s", root, name);
    return file_exists(path);
}

TEST(small_files_are_copied_with_their_content_and_weights_are_not)
{
    make_cache();
    char out[512], from[512];
    snprintf(out, sizeof out, "%s/out", root);
    snprintf(from, sizeof from, "%s/" REPO "/snapshots/" COMMIT, root);
    CHECK_OK(dir_make(out, 0755));
    put_linked("tokenizer.json", "t1", "tokens");
    put_linked("model.safetensors", "w1", "weights");
    static const char *const plain[] = {
        "tokenizer_config.json", "vocab.json", "merges.txt",  "generation_config.json",
        "chat_template.jinja",   "LICENSE",    "LICENSE.txt", "special_tokens_map.json",
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, REPO "/snapshots/" COMMIT "/%s", plain[i]);
        put(path, plain[i]);
    }
    put(REPO "/snapshots/" COMMIT "/tokenizer.bin", "x");
    put(REPO "/snapshots/" COMMIT "/tokenizer/inside.json", "a folder");
    CHECK_OK(model_copy_small_files(from, out));
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        CHECK(copied(plain[i]));
    char *text;
    size_t len;
    snprintf(out, sizeof out, "%s/out/tokenizer.json", root);
    CHECK_OK(file_read(out, 100, &text, &len));
    CHECK_STR(text, "tokens");
    free(text);
    struct stat st;
    CHECK_INT(lstat(out, &st), 0);
    CHECK(S_ISREG(st.st_mode));
    CHECK(!copied("config.json") && !copied("model.safetensors") && !copied("README.md"));
    CHECK(!copied("tokenizer.bin") && !copied("tokenizer"));
    end_cache();
}

TEST(links_out_of_the_folder_are_left_out)
{
    make_cache();
    char out[512], from[512], link[600];
    snprintf(out, sizeof out, "%s/out", root);
    snprintf(from, sizeof from, "%s/model", root);
    put("secret", "s");
    put("model/real.json", "inside");
    put("out/x", "");
    snprintf(link, sizeof link, "%s/tokenizer.json", from);
    CHECK_INT(symlink("../secret", link), 0);
    snprintf(link, sizeof link, "%s/vocab.json", from);
    CHECK_INT(symlink("/etc/hostname", link), 0);
    snprintf(link, sizeof link, "%s/merges.txt", from);
    CHECK_INT(symlink("nowhere", link), 0);
    snprintf(link, sizeof link, "%s/tokenizer_config.json", from);
    CHECK_INT(symlink("real.json", link), 0);
    log_set_level(LOG_ERROR);
    CHECK_OK(model_copy_small_files(from, out));
    CHECK(!copied("tokenizer.json") && !copied("vocab.json") && !copied("merges.txt"));
    CHECK(copied("tokenizer_config.json"));
    end_cache();
}

TEST(copying_a_folder_onto_itself_changes_nothing)
{
    make_cache();
    char from[512], path[600];
    snprintf(from, sizeof from, "%s/model", root);
    put("model/tokenizer.json", "kept");
    CHECK_OK(model_copy_small_files(from, from));
    char *text;
    size_t len;
    snprintf(path, sizeof path, "%s/tokenizer.json", from);
    CHECK_OK(file_read(path, 100, &text, &len));
    CHECK_STR(text, "kept");
    free(text);
    CHECK_ERROR(model_copy_small_files("/nonexistent", from), RAIA_ENOTFOUND, "/nonexistent");
    end_cache();
}

TEST_MAIN
