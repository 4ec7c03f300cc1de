/* Weights in and out: each rank reads, makes and writes its own slices only, a bounded buffer at a
 * time. */
#include "shard/shard_priv.h"

/* Calls EACH for every run of at most STAGE_ELEMENTS elements of this rank's slices. */
typedef raia_status run_function(struct shard *s, const struct piece *run, void *self);

static raia_status for_runs(struct shard *s, run_function *each, void *self)
{
    for (int i = 0; i < s->layout.pieces; i++) {
        const struct piece *p = &s->layout.piece[i];
        for (uint64_t at = 0; at < p->count; at += STAGE_ELEMENTS) {
            struct piece run = { .param = p->param,
                                 .first = p->first + at,
                                 .count = p->count - at,
                                 .at = p->at + at,
                                 .own_at = p->own_at + at };
            if (run.count > STAGE_ELEMENTS)
                run.count = STAGE_ELEMENTS;
            RAIA_TRY(each(s, &run, self));
        }
    }
    return RAIA_OK;
}

/* Where a run's values are kept in full: the master copy where there is one. */
static void *kept_at(const struct shard *s, const struct piece *run)
{
    return s->master != NULL ? (void *)(s->master + run->own_at) : weight_at(s, run->at);
}

static raia_dtype kept_dtype(const struct shard *s)
{
    return s->master != NULL ? RAIA_F32 : s->dtypes.weight;
}

static raia_status round_master(struct shard *s, const struct piece *run)
{
    if (s->master == NULL)
        return RAIA_OK;
    const struct convert a = { .src = s->master + run->own_at,
                               .dst = weight_at(s, run->at),
                               .count = run->count,
                               .src_dtype = RAIA_F32,
                               .dst_dtype = s->dtypes.weight };
    return s->device->ops->convert(s->device, &a);
}

static raia_status load_run(struct shard *s, const struct piece *run, void *self)
{
    const struct st_folder *folder = self;
    const char *name = s->tree->param[run->param].name;
    const struct st_tensor *tensor = st_find(folder, name);
    if (tensor == NULL)
        return fail(RAIA_ENOTFOUND, "the model folder has no tensor %s", name);
    RAIA_TRY(st_read(folder, tensor, run->first, run->count, kept_dtype(s), s->stage_host));
    RAIA_TRY(s->device->ops->copy(s->device, kept_at(s, run), s->stage_host,
                                  run->count * raia_dtype_size(kept_dtype(s))));
    return round_master(s, run);
}

raia_status shard_load(struct shard *s, const struct st_folder *folder)
{
    return for_runs(s, load_run, (void *)folder);
}

struct init {
    double std;
    uint64_t seed;
};

static raia_status init_run(struct shard *s, const struct piece *run, void *self)
{
    const struct init *init = self;
    RAIA_TRY(param_fill(s->device, &s->tree->param[run->param], init->std, init->seed, run->first,
                        run->count, kept_dtype(s), kept_at(s, run)));
    return round_master(s, run);
}

raia_status shard_init(struct shard *s, const struct model_config *config, uint64_t seed)
{
    struct init init = { .std = config->init_std, .seed = seed };
    return for_runs(s, init_run, &init);
}

struct export
{
    raia_dtype dtype;
    shard_piece *write;
    void *self;
    uint64_t runs; /* so far */
};

static raia_status export_run(struct shard *s, const struct piece *run, void *self)
{
    struct export *export = self;
    if (s->layout.replicated &&
        export->runs++ % (uint64_t)s->layout.size != (uint64_t)s->layout.rank)
        return RAIA_OK; /* replicas share the work */
    const struct convert a = { .src = kept_at(s, run),
                               .dst = s->stage_device,
                               .count = run->count,
                               .src_dtype = kept_dtype(s),
                               .dst_dtype = export->dtype };
    RAIA_TRY(s->device->ops->convert(s->device, &a));
    RAIA_TRY(s->device->ops->copy(s->device, s->stage_host, s->stage_device,
                                  run->count * raia_dtype_size(export->dtype)));
    return export->write(export->self, run->param, run->first, run->count, s->stage_host);
}

raia_status shard_export(struct shard *s, raia_dtype dtype, shard_piece *write, void *self)
{
    struct export export = { .dtype = dtype, .write = write, .self = self };
    return for_runs(s, export_run, &export);
}
