/* Config: both spellings mean the same, whatever is not supported is refused by name, and what is
 * written is read again as the same. */
#include "check.h"
#include "model/model.h"

#include <stdarg.h>

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    CHECK_OK(json_parse(text, strlen(text), 1 << 20, "config.json", &json));
    return json;
}

#define QWEN2                                                                                      \
    "\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                 \
    "\"vocab_size\":300"
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":300"
#define QWEN3                                                                                      \
    "\"model_type\":\"qwen3\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                 \
    "\"vocab_size\":300"

static struct model_config good(const char *text)
{
    struct model_config config;
    json_t *json = parse(text);
    CHECK_OK(config_parse(json, "config.json", &config));
    json_decref(json);
    return config;
}

static void bad(const char *text, raia_status status, const char *error)
{
    struct model_config config;
    json_t *json = parse(text);
    CHECK_ERROR(config_parse(json, "config.json", &config), status, error);
    json_decref(json);
}

static void check_same(const struct model_config *a, const struct model_config *b)
{
    CHECK(a->family == b->family);
    CHECK_INT(a->hidden, b->hidden);
    CHECK_INT(a->intermediate, b->intermediate);
    CHECK_INT(a->layers, b->layers);
    CHECK_INT(a->heads, b->heads);
    CHECK_INT(a->kv_heads, b->kv_heads);
    CHECK_INT(a->head_dim, b->head_dim);
    CHECK_INT(a->vocab, b->vocab);
    CHECK_INT(a->max_positions, b->max_positions);
    CHECK(a->rms_eps == b->rms_eps && a->rope_theta == b->rope_theta);
    CHECK(a->init_std == b->init_std);
    CHECK_INT(a->rope_type, b->rope_type);
    CHECK(a->rope_factor == b->rope_factor && a->rope_low_freq == b->rope_low_freq);
    CHECK(a->rope_high_freq == b->rope_high_freq && a->rope_original_max == b->rope_original_max);
    CHECK(a->tied == b->tied && a->qkv_bias == b->qkv_bias && a->qk_norm == b->qk_norm);
    CHECK_INT(a->bos, b->bos);
    CHECK_INT(a->eos, b->eos);
    CHECK_INT(a->pad, b->pad);
    CHECK_INT(a->eos_count, b->eos_count);
    for (int i = 0; i < a->eos_count; i++)
        CHECK_INT(a->eos_list[i], b->eos_list[i]);
    CHECK_INT(a->dtype, b->dtype);
}

TEST(a_field_that_is_left_out_is_what_transformers_takes)
{
    struct model_config qwen2 = good("{" QWEN2 "}"), qwen3 = good("{" QWEN3 "}"),
                        llama = good("{" LLAMA "}");
    CHECK_INT(qwen2.head_dim, 16);
    CHECK_INT(qwen3.head_dim, 128);
    CHECK_INT(llama.head_dim, 16);
    CHECK_INT(llama.kv_heads, 4);
    CHECK(qwen2.qkv_bias && !qwen3.qkv_bias && !llama.qkv_bias);
    CHECK(!qwen2.qk_norm && qwen3.qk_norm && !llama.qk_norm);
    CHECK(!qwen2.tied && qwen2.rope_theta == 10000 && qwen2.rms_eps == 1e-6);
    CHECK_INT(qwen2.max_positions, 32768);
    CHECK_INT(llama.max_positions, 2048);
    CHECK_INT(qwen2.eos, -1);
    CHECK_INT(qwen2.eos_count, 0);
    CHECK_INT(qwen2.dtype, RAIA_F32);
}

TEST(a_null_head_dim_is_the_hidden_size_over_the_heads)
{
    CHECK_INT(good("{" QWEN3 ",\"head_dim\":null}").head_dim, 16);
    CHECK_INT(good("{" LLAMA ",\"head_dim\":null}").head_dim, 16);
    CHECK_INT(good("{" QWEN3 ",\"head_dim\":24}").head_dim, 24);
    CHECK_INT(good("{" LLAMA ",\"num_key_value_heads\":null}").kv_heads, 4);
}

TEST(older_and_newer_spellings_mean_the_same)
{
    struct model_config older =
        good("{" LLAMA ",\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\","
             "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
             "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    struct model_config newer =
        good("{" LLAMA ",\"dtype\":\"bfloat16\",\"layer_types\":[\"full_attention\","
             "\"full_attention\"],\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":32.0,"
             "\"low_freq_factor\":1.0,\"high_freq_factor\":4,\"rope_theta\":500000,"
             "\"original_max_position_embeddings\":8192}}");
    check_same(&older, &newer);
    CHECK_INT(newer.rope_type, ROPE_LLAMA3);
    CHECK(newer.rope_theta == 500000 && newer.rope_factor == 32);
    CHECK_INT(newer.dtype, RAIA_BF16);
}

TEST(spellings_that_disagree_are_refused)
{
    bad("{" LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_type\":\"default\","
        "\"rope_theta\":5e5}}",
        RAIA_EFORMAT, "rope_theta");
    bad("{" LLAMA ",\"torch_dtype\":\"float32\",\"dtype\":\"bfloat16\"}", RAIA_EFORMAT, "disagree");
    bad("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64},"
        "\"rope_parameters\":{\"rope_type\":\"default\"}}",
        RAIA_EFORMAT, "disagree");
}

TEST(end_of_text_may_be_a_number_a_list_or_null)
{
    CHECK_INT(good("{" LLAMA ",\"eos_token_id\":7}").eos, 7);
    struct model_config list = good("{" LLAMA ",\"eos_token_id\":[9,10,11]}");
    CHECK_INT(list.eos, 9);
    CHECK_INT(list.eos_count, 3);
    CHECK_INT(good("{" LLAMA ",\"eos_token_id\":[]}").eos, -1);
    CHECK_INT(good("{" LLAMA ",\"eos_token_id\":null,\"bos_token_id\":null}").bos, -1);
    bad("{" LLAMA ",\"eos_token_id\":[1,\"2\"]}", RAIA_EFORMAT, "eos_token_id");
    bad("{" LLAMA ",\"eos_token_id\":-2}", RAIA_EFORMAT, "eos_token_id");
}

TEST(fields_in_use_that_are_not_supported_are_refused_by_name_and_value)
{
    static const char *const cases[][2] = {
        { "\"hidden_act\":\"gelu\"", "\"hidden_act\": \"gelu\" is not supported for llama" },
        { "\"attention_bias\":true", "\"attention_bias\": true" },
        { "\"mlp_bias\":true", "\"mlp_bias\": true" },
        { "\"attention_dropout\":0.1", "\"attention_dropout\": 0.1" },
        { "\"sliding_window\":4096", "\"sliding_window\": 4096" },
        { "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "sliding_attention" },
        { "\"quantization_config\":{\"bits\":4}", "\"quantization_config\": {\"bits\":4}" },
        { "\"num_local_experts\":8", "\"num_local_experts\": 8" },
        { "\"partial_rotary_factor\":0.5", "\"partial_rotary_factor\": 0.5" },
        { "\"rope_interleaved\":true", "rope_interleaved" },
        { "\"architectures\":[\"LlamaForSequenceClassification\"]", "LlamaForCausalLM" },
        { "\"torch_dtype\":\"float8_e4m3fn\"", "float8_e4m3fn" },
        { "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}", "\"rope_type\": \"yarn\"" },
        { "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", "\"type\": \"linear\"" },
        { "\"rope_parameters\":{\"rope_type\":\"default\",\"mrope_section\":[1]}",
          "mrope_section" },
        { "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}",
          "partial_rotary_factor" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" LLAMA ",%s}", cases[i][0]);
        bad(text, RAIA_EUNSUPPORTED, cases[i][1]);
    }
    bad("{\"model_type\":\"mistral\"}", RAIA_EUNSUPPORTED, "qwen2, qwen3, llama");
    bad("{" QWEN2 ",\"sliding_window\":4096,\"use_sliding_window\":true,\"max_window_layers\":1}",
        RAIA_EUNSUPPORTED, "sliding_window");
    bad("{" QWEN3 ",\"attention_bias\":true}", RAIA_EUNSUPPORTED, "attention_bias");
    bad("{" QWEN2 ",\"num_experts\":60}", RAIA_EUNSUPPORTED, "num_experts");
    bad("{" QWEN2 ",\"use_mrope\":true}", RAIA_EUNSUPPORTED, "use_mrope");
}

TEST(fields_that_are_there_but_idle_are_accepted)
{
    static const char *const cases[] = {
        "\"use_sliding_window\":false,\"sliding_window\":32768,\"max_window_layers\":1",
        "\"use_sliding_window\":true,\"sliding_window\":32768,\"max_window_layers\":2",
        "\"sliding_window\":4096", /* qwen2's switch is off unless said otherwise */
        "\"use_mrope\":false,\"attention_dropout\":0.0,\"quantization_config\":null",
        "\"rope_scaling\":null,\"rope_interleaved\":false,\"is_llama_config\":true",
        "\"pretraining_tp\":1,\"transformers.js_config\":{\"dtype\":\"q4\"}",
        "\"architectures\":[\"Qwen2ForCausalLM\"],\"num_experts\":0,\"use_cache\":true",
        "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6}",
        "\"hidden_act\":\"silu\",\"mlp_bias\":false,\"attention_bias\":true",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" QWEN2 ",%s}", cases[i]);
        good(text);
    }
}

TEST(a_required_field_that_is_missing_is_named)
{
    static const char *const keys[] = { "model_type",          "hidden_size",
                                        "intermediate_size",   "num_hidden_layers",
                                        "num_attention_heads", "num_key_value_heads",
                                        "vocab_size" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *json = parse("{" QWEN2 "}");
        json_object_del(json, keys[i]);
        struct model_config config;
        char text[64];
        snprintf(text, sizeof text, "required field \"%s\" is missing", keys[i]);
        CHECK_ERROR(config_parse(json, "config.json", &config), RAIA_EFORMAT, text);
        json_decref(json);
    }
    bad("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4}}",
        RAIA_EFORMAT, "original_max_position_embeddings");
    bad("{" LLAMA ",\"rope_scaling\":{\"factor\":8}}", RAIA_EFORMAT, "rope_type");
    bad("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64.5}}",
        RAIA_EFORMAT, "not a whole number");
    bad("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
        RAIA_EFORMAT, "is not above");
}

TEST(sizes_that_make_no_sense_are_refused)
{
    static const char *const cases[][3] = {
        { "hidden_size", "0", "outside" },
        { "hidden_size", "-64", "outside" },
        { "hidden_size", "1000000000", "outside" },
        { "hidden_size", "\"64\"", "an integer" },
        { "hidden_size", "64.0", "an integer" },
        { "hidden_size", "true", "an integer" },
        { "hidden_size", "66", "multiple" },
        { "num_hidden_layers", "9223372036854775807", "outside" },
        { "num_key_value_heads", "3", "multiple" },
        { "head_dim", "15", "odd" },
        { "head_dim", "0", "outside" },
        { "vocab_size", "4294967296", "outside" },
        { "rms_norm_eps", "-1", "outside" },
        { "rms_norm_eps", "\"1e-6\"", "a number" },
        { "rope_theta", "0", "outside" },
        { "tie_word_embeddings", "1", "true or false" },
        { "rope_scaling", "[1]", "not an object" },
        { "layer_types", "[\"full_attention\"]", "1 entries for 2 layers" },
        { "use_sliding_window", "\"no\"", "true or false" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json = parse("{" QWEN2 "}");
        json_t *value = json_loads(cases[i][1], JSON_DECODE_ANY, NULL);
        CHECK(value != NULL);
        json_object_set_new(json, cases[i][0], value);
        struct model_config config;
        CHECK_ERROR(config_parse(json, "config.json", &config), RAIA_EFORMAT, cases[i][0]);
        CHECK_ERROR(config_parse(json, "config.json", &config), RAIA_EFORMAT, cases[i][2]);
        json_decref(json);
    }
    bad("{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":1048576,\"vocab_size\":300,"
        "\"head_dim\":4096}",
        RAIA_EFORMAT, "wider than");
    bad("[]", RAIA_EFORMAT, "not a JSON object");
    bad("3", RAIA_EFORMAT, "not a JSON object");
}

TEST(what_is_written_is_read_as_the_same)
{
    static const char *const texts[] = {
        "{" QWEN2 ",\"head_dim\":32,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-6}",
        "{" QWEN3 ",\"head_dim\":24,\"initializer_range\":0.041666666666666664,"
        "\"dtype\":\"float16\"}",
        "{" LLAMA ",\"eos_token_id\":[9,10,11],\"pad_token_id\":3,\"bos_token_id\":4,"
        "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":32.5,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4,\"rope_theta\":500000,\"original_max_position_embeddings\":8192}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct model_config config = good(texts[i]), again;
        json_t *json = NULL;
        CHECK_OK(config_write(&config, &json));
        char *text = json_dumps(json, JSON_REAL_PRECISION(17));
        again = good(text);
        check_same(&config, &again);
        free(text);
        json_decref(json);
    }
}

TEST(it_is_written_in_the_older_spelling)
{
    struct model_config config;
    CHECK_OK(config_preset("llama-3.2-1b", &config));
    json_t *json = NULL;
    CHECK_OK(config_write(&config, &json));
    CHECK(json_object_get(json, "rope_theta") != NULL);
    CHECK_STR(json_string_value(json_object_get(json, "torch_dtype")), "bfloat16");
    CHECK_STR(
        json_string_value(json_object_get(json_object_get(json, "rope_scaling"), "rope_type")),
        "llama3");
    CHECK(json_object_get(json, "rope_parameters") == NULL);
    CHECK(json_is_false(json_object_get(json, "attention_bias")));
    json_decref(json);
    config.dtype = RAIA_I32;
    CHECK_ERROR(config_write(&config, &json), RAIA_EINVAL, "i32");
}

TEST(presets_are_found_by_name_and_pass_their_own_rules)
{
    struct model_config config, again;
    for (const char *const *name = config_preset_names(); *name != NULL; name++) {
        CHECK_OK(config_preset(*name, &config));
        json_t *json = NULL;
        CHECK_OK(config_write(&config, &json));
        CHECK_OK(config_parse(json, *name, &again));
        check_same(&config, &again);
        json_decref(json);
    }
    CHECK_ERROR(config_preset("gpt-5", &config), RAIA_ENOTFOUND, "smollm2-135m");
}

TEST(a_folder_without_config_says_which_file_is_missing)
{
    char *dir;
    CHECK_OK(dir_make_temp("raia-config", &dir));
    struct model_config config;
    CHECK_ERROR(model_load_config(dir, &config), RAIA_ENOTFOUND, "config.json");
    CHECK_OK(config_preset("tiny", &config));
    CHECK_OK(model_save_config(&config, dir));
    struct model_config again;
    CHECK_OK(model_load_config(dir, &again));
    check_same(&config, &again);
    CHECK_OK(dir_remove(dir));
    free(dir);
}

TEST_MAIN
