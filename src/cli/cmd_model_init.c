#include "cli/cli.h"
#include "model/model.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *preset, *config, *dtype;
    int64_t seed, workers;
    bool force;
} options;

static const struct opt opts[] = {
    { .type = OPT_STRING,
      .name = "preset",
      .value = &options.preset,
      .arg = "NAME",
      .help = "shape of a published model, or tiny" },
    { .type = OPT_STRING,
      .name = "config",
      .value = &options.config,
      .arg = "FILE",
      .help = "shape from a config.json" },
    { .type = OPT_CHOICE,
      .name = "dtype",
      .value = &options.dtype,
      .choices = "bf16|f32",
      .help = "type of the weights; the config's unless given" },
    { .type = OPT_I64,
      .name = "seed",
      .value = &options.seed,
      .arg = "N",
      .help = "the same seed makes the same weights, whatever the workers",
      .min = 0,
      .max = INT64_MAX },
    { .type = OPT_I64,
      .name = "workers",
      .value = &options.workers,
      .arg = "N",
      .help = "threads; 0 takes a thread for each core",
      .min = 0,
      .max = 256 },
    { .type = OPT_FLAG,
      .name = "force",
      .value = &options.force,
      .help = "replace the model that is in OUT" },
    { .name = NULL },
};

static const struct opt_spec spec = {
    .usage = "raia model init (--preset NAME | --config FILE) OUT [options]",
    .summary = "Makes a model with random weights: a folder OUT with config.json and "
               "model.safetensors,\nthere whole or not at all. Tokenizers are not part of it.\n"
               "Presets: tiny, qwen2.5-0.5b, qwen2.5-1.5b, qwen3-0.6b, smollm2-135m, "
               "llama-3.2-1b.",
    .opts = opts,
    .examples = "  raia model init --preset tiny /tmp/tiny\n"
                "  raia model init --config my/config.json --dtype bf16 --seed 7 out\n",
};

/* ---- progress: a line once a second on a terminal, one in ten seconds elsewhere ---- */

struct progress {
    struct init_watch watch;
    uint64_t total;
    _Atomic bool done;
    pthread_t thread;
};

/* static, since a signal's handler has no other way to it */
static struct progress progress;

static void show(double seconds, bool terminal)
{
    char written[16], total[16], rate[16];
    uint64_t bytes = progress.watch.written;
    str_bytes(written, bytes);
    str_bytes(total, progress.total);
    str_bytes(rate, (uint64_t)((double)bytes / seconds));
    fprintf(stderr, "%s%s of %s, %.0f %%, %s/s%s", terminal ? "\r\033[K" : "raia: written ",
            written, total, 100.0 * (double)bytes / (double)progress.total, rate,
            terminal ? "" : "\n");
    fflush(stderr);
}

static void *watch_progress(void *arg)
{
    (void)arg;
    bool terminal = isatty(STDERR_FILENO), shown = false;
    double start = clock_s(), next = start + (terminal ? 1 : 10);
    while (!progress.done) {
        clock_sleep_ms(20);
        double now = clock_s();
        if (now < next)
            continue;
        show(now - start, terminal);
        shown = true;
        next = now + (terminal ? 0.5 : 10);
    }
    if (shown && terminal)
        fprintf(stderr, "\r\033[K");
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    progress.watch.stop = true;
}

static raia_status make_watched(const struct model_config *config, const char *out,
                                raia_dtype dtype, int workers)
{
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigaction old[2];
    sigaction(SIGINT, &action, &old[0]);
    sigaction(SIGTERM, &action, &old[1]);
    bool watched = pthread_create(&progress.thread, NULL, watch_progress, NULL) == 0;
    raia_status status = model_init_folder(config, out, dtype, (uint64_t)options.seed, workers,
                                           options.force, &progress.watch);
    progress.done = true;
    if (watched)
        pthread_join(progress.thread, NULL);
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
    return status;
}

/* ---- the command ---- */

static raia_status find_config(struct model_config *config)
{
    if ((options.preset == NULL) == (options.config == NULL))
        return fail(RAIA_EINVAL, "give either --preset NAME or --config FILE");
    if (options.preset != NULL)
        return config_preset(options.preset, config);
    if (dir_exists(options.config))
        return model_load_config(options.config, config);
    json_t *json = NULL;
    raia_status status = json_read_file(options.config, 4 << 20, &json);
    if (status == RAIA_OK)
        status = config_parse(json, options.config, config);
    json_decref(json);
    return status;
}

static raia_status init(const char *out)
{
    struct model_config config = { 0 };
    struct tree tree;
    RAIA_TRY(find_config(&config));
    raia_dtype dtype = config.dtype;
    if (options.dtype != NULL)
        dtype = strcmp(options.dtype, "f32") == 0 ? RAIA_F32 : RAIA_BF16;
    int workers = options.workers > 0 ? (int)options.workers : device_cores();
    RAIA_TRY(tree_build(&config, &tree));
    uint64_t parameters = tree.total;
    tree_release(&tree);
    progress.total = parameters * raia_dtype_size(dtype);
    RAIA_TRY(make_watched(&config, out, dtype, workers));
    char bytes[16];
    printf("%s: %s, %llu parameters, %s in %s\n", out, config_family_name(&config),
           (unsigned long long)parameters, str_bytes(bytes, progress.total),
           raia_dtype_name(dtype));
    return RAIA_OK;
}

const struct opt_spec *cmd_model_init_spec(void)
{
    return &spec;
}

int cmd_model_init(int argc, char **argv)
{
    return cli_run_with_one(&spec, argc, argv, "one folder to write", init);
}
