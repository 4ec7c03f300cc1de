#include "cli/cli.h"
#include "shard/shard.h"

#include <stdlib.h>
#include <string.h>

static struct {
    const char *wrap;
    int64_t min_unit_params;
    bool json;
} options = { .min_unit_params = 10000000 };

static const struct opt opts[] = {
    { .type = OPT_CHOICE,
      .name = "wrap",
      .value = &options.wrap,
      .choices = "size|block",
      .help = "units under this policy alone" },
    { .type = OPT_I64,
      .name = "min-unit-params",
      .value = &options.min_unit_params,
      .arg = "N",
      .help = "smallest unit of the size policy",
      .min = 1,
      .max = INT64_MAX },
    { .type = OPT_FLAG, .name = "json", .value = &options.json, .help = "print one JSON object" },
    { .name = NULL },
};

static const struct opt_spec spec = {
    .usage = "raia model info (DIR | ORG/NAME[@REVISION] | PRESET) [options]",
    .summary = "Prints a model's shape, its parameters and bytes, and the units that FSDP would "
               "shard.\nA hub id is looked up in the local Hugging Face cache.",
    .opts = opts,
    .examples = "  raia model info qwen2.5-1.5b\n"
                "  raia model info Qwen/Qwen2.5-0.5B --wrap size --min-unit-params 1000000\n",
};

/* What is known of a model, gathered before any of it is printed. */
struct info {
    const char *name;
    char *dir; /* NULL: a preset */
    struct model_config config;
    struct tree tree;
    struct st_folder *weights; /* NULL: none in the folder */
};

enum { POLICIES = 2 };
static const struct policy {
    enum wrap_policy policy;
    const char *name;
} policies[POLICIES] = { { WRAP_SIZE, "size" }, { WRAP_BLOCK, "block" } };

static const raia_dtype dtypes[] = { RAIA_F32, RAIA_BF16 };

/* Bytes a parameter of weights, gradients and AdamW's state. */
static const struct training {
    const char *precision;
    unsigned bytes;
} training[] = { { "bf16", 8 }, { "f32", 16 }, { "mixed", 16 } };

/* ---- files ---- */

static raia_status open_weights(struct info *info)
{
    if (info->dir == NULL)
        return RAIA_OK;
    raia_status status = st_open(info->dir, &info->weights);
    if (status == RAIA_ENOTFOUND) {
        info->weights = NULL; /* a folder with a config alone can be described, too */
        log_info("%s", raia_error());
        return RAIA_OK;
    }
    RAIA_TRY(status);
    return st_check(info->weights, &info->tree, info->config.tied);
}

/* {"BF16": bytes, …} of the tensors in the files; NULL when out of memory. */
static json_t *file_bytes(const struct st_folder *weights)
{
    json_t *sums = json_object();
    for (int i = 0; i < st_count(weights); i++) {
        const struct st_tensor *tensor = st_at(weights, i);
        json_int_t sum = json_integer_value(json_object_get(sums, tensor->tag));
        if (json_object_set_new(sums, tensor->tag, json_integer(sum + (json_int_t)tensor->bytes)) !=
            0) {
            json_decref(sums);
            return NULL;
        }
    }
    return sums;
}

/* ---- JSON ---- */

static json_t *units_json(const struct info *info, const struct unit_list *list)
{
    json_t *units = json_array();
    for (int u = 0; u < list->units; u++)
        json_array_append_new(units, json_pack("{s:s, s:I}", "module",
                                               info->tree.module[list->unit[u].module].name,
                                               "parameters", (json_int_t)list->unit[u].count));
    return units;
}

static raia_status add_units(const struct info *info, json_t *to)
{
    for (int i = 0; i < POLICIES; i++) {
        struct unit_list list;
        if (options.wrap != NULL && strcmp(options.wrap, policies[i].name) != 0)
            continue;
        RAIA_TRY(
            units_build(&info->tree, policies[i].policy, (uint64_t)options.min_unit_params, &list));
        json_object_set_new(to, policies[i].name, units_json(info, &list));
        units_release(&list);
    }
    return RAIA_OK;
}

static json_t *shape_json(const struct info *info)
{
    const struct model_config *c = &info->config;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:s, s:I, "
                     "s:i}",
                     "name", info->name, "family", config_family_name(c), "hidden",
                     (json_int_t)c->hidden, "intermediate", (json_int_t)c->intermediate, "layers",
                     (json_int_t)c->layers, "heads", (json_int_t)c->heads, "kv_heads",
                     (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim, "vocab",
                     (json_int_t)c->vocab, "max_positions", (json_int_t)c->max_positions,
                     "rope_theta", c->rope_theta, "rope_type",
                     c->rope_type == ROPE_LLAMA3 ? "llama3" : "default", "tied", (int)c->tied,
                     "dtype", raia_dtype_name(c->dtype), "parameters", (json_int_t)info->tree.total,
                     "tensors", info->tree.params);
}

static raia_status print_json(const struct info *info)
{
    json_t *json = shape_json(info), *bytes = json_object(), *train = json_object();
    json_t *units = json_object();
    raia_status status = RAIA_OK;
    if (json == NULL || bytes == NULL || train == NULL || units == NULL)
        status = fail(RAIA_ENOMEM, "no memory to describe the model");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        json_object_set_new(
            bytes, raia_dtype_name(dtypes[i]),
            json_integer((json_int_t)(info->tree.total * raia_dtype_size(dtypes[i]))));
    for (size_t i = 0; i < sizeof training / sizeof training[0]; i++)
        json_object_set_new(train, training[i].precision,
                            json_integer((json_int_t)(info->tree.total * training[i].bytes)));
    if (status == RAIA_OK)
        status = add_units(info, units);
    json_object_set_new(json, "bytes", bytes);
    json_object_set_new(json, "training_bytes", train);
    json_object_set_new(json, "units", units);
    if (info->weights != NULL)
        json_object_set_new(json, "file_bytes", file_bytes(info->weights));
    char *text = status == RAIA_OK ? json_dumps(json, JSON_COMPACT) : NULL;
    if (text != NULL)
        puts(text);
    else if (status == RAIA_OK)
        status = fail(RAIA_ENOMEM, "no memory to describe the model");
    free(text);
    json_decref(json);
    return status;
}

/* ---- text ---- */

/* 1543714304 as "1,543,714,304" into OUT (at least 32 bytes), which is returned. */
static const char *grouped(char *out, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static void print_shape(const struct info *info)
{
    const struct model_config *c = &info->config;
    char n[32];
    printf("%s: %s\n", info->name, config_family_name(c));
    if (info->dir != NULL && strcmp(info->dir, info->name) != 0)
        printf("  folder       %s\n", info->dir);
    printf("  shape        %zu layers, hidden %zu, intermediate %zu, %zu heads of %zu on %zu "
           "key-value heads\n",
           c->layers, c->hidden, c->intermediate, c->heads, c->head_dim, c->kv_heads);
    printf("  vocabulary   %zu, head %s\n", c->vocab, c->tied ? "tied to it" : "of its own");
    printf("  positions    %zu, rotary base %.10g%s\n", c->max_positions, c->rope_theta,
           c->rope_type == ROPE_LLAMA3 ? ", scaled as llama3" : "");
    printf("  parameters   %s in %d tensors\n", grouped(n, info->tree.total), info->tree.params);
}

static void print_bytes(const struct info *info)
{
    char n[16];
    printf("  weights     ");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        printf(" %s %s%s", raia_dtype_name(dtypes[i]),
               str_bytes(n, info->tree.total * raia_dtype_size(dtypes[i])), i == 0 ? "," : "\n");
    printf("  training    ");
    for (size_t i = 0; i < sizeof training / sizeof training[0]; i++)
        printf(" %s in %s (%u bytes a parameter),",
               str_bytes(n, info->tree.total * training[i].bytes), training[i].precision,
               training[i].bytes);
    printf(" over all ranks\n");
    if (info->weights == NULL)
        return;
    json_t *sums = file_bytes(info->weights), *sum;
    const char *tag;
    json_object_foreach(sums, tag, sum)
    {
        printf("  files        %s of %s, %d tensors in all\n",
               str_bytes(n, (uint64_t)json_integer_value(sum)), tag, st_count(info->weights));
    }
    json_decref(sums);
}

/* Units of the same module in every layer are one line. */
struct group {
    char pattern[64];
    uint64_t parameters;
    int count;
};

/* "model.layers.3.mlp" as "model.layers.*.mlp", the root as "(root)". */
static void make_pattern(char *out, size_t size, const char *name)
{
    size_t at = 0;
    bool start = true;
    for (const char *p = name; *p != '\0' && at + 1 < size; p++) {
        bool digit = *p >= '0' && *p <= '9';
        if (!digit || !start)
            out[at++] = *p;
        else {
            out[at++] = '*';
            p += strspn(p, "0123456789") - 1;
        }
        start = *p == '.';
    }
    out[at] = '\0';
    if (at == 0)
        snprintf(out, size, "(root)");
}

static void print_units(const struct info *info, const struct policy *policy,
                        const struct unit_list *list, struct group *groups)
{
    int count = 0;
    char n[32];
    for (int u = 0; u < list->units; u++) {
        char pattern[sizeof groups->pattern];
        make_pattern(pattern, sizeof pattern, info->tree.module[list->unit[u].module].name);
        int g = 0;
        while (g < count && (strcmp(groups[g].pattern, pattern) != 0 ||
                             groups[g].parameters != list->unit[u].count))
            g++;
        if (g == count) {
            groups[count] = (struct group){ .parameters = list->unit[u].count };
            memcpy(groups[count++].pattern, pattern, sizeof pattern);
        }
        groups[g].count++;
    }
    printf("  units        %d by --wrap %s", list->units, policy->name);
    if (policy->policy == WRAP_SIZE)
        printf(" --min-unit-params %lld", (long long)options.min_unit_params);
    printf("\n");
    for (int g = 0; g < count; g++)
        printf("    %5d x %15s  %s\n", groups[g].count, grouped(n, groups[g].parameters),
               groups[g].pattern);
}

static raia_status print_policy(const struct info *info, const struct policy *policy)
{
    struct unit_list list;
    struct group *groups = NULL;
    RAIA_TRY(units_build(&info->tree, policy->policy, (uint64_t)options.min_unit_params, &list));
    raia_status status = MEM_NEW(&groups, (size_t)list.units);
    if (status == RAIA_OK)
        print_units(info, policy, &list, groups);
    free(groups);
    units_release(&list);
    return status;
}

static raia_status print_text(const struct info *info)
{
    print_shape(info);
    print_bytes(info);
    for (int i = 0; i < POLICIES; i++)
        if (options.wrap == NULL || strcmp(options.wrap, policies[i].name) == 0)
            RAIA_TRY(print_policy(info, &policies[i]));
    return RAIA_OK;
}

/* ---- the command ---- */

static raia_status describe(const char *name)
{
    struct info info = { .name = name };
    RAIA_TRY(model_find(name, &info.config, &info.dir));
    raia_status status = tree_build(&info.config, &info.tree);
    if (status == RAIA_OK)
        status = open_weights(&info);
    if (status == RAIA_OK)
        status = options.json ? print_json(&info) : print_text(&info);
    st_close(info.weights);
    tree_release(&info.tree);
    free(info.dir);
    return status;
}

const struct opt_spec *cmd_model_info_spec(void)
{
    return &spec;
}

int cmd_model_info(int argc, char **argv)
{
    return cli_run_with_one(&spec, argc, argv, "one model", describe);
}
