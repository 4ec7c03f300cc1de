/* What a rank will hold, by the formulas and before anything is allocated. */
#include "shard/shard_priv.h"

/* Payload of a step between nodes: of every byte of a unit, a node lacks all but its 1/N. */
static uint64_t wire_out(const struct layout *l, const struct shard_options *o,
                         const struct dtypes *d, const struct world *world)
{
    if (world->nodes < 2)
        return 0;
    uint64_t gathers = o->strategy == SHARD_FULL ? 2 : o->strategy == SHARD_GRAD ? 1 : 0;
    raia_dtype wire = o->reduce_f32 ? RAIA_F32 : d->contribution;
    /* Replicas gather the summed gradients instead of the weights. */
    uint64_t grads = o->strategy == SHARD_NONE ? 2 : 1;
    uint64_t bytes =
        l->elements * (gathers * raia_dtype_size(d->weight) + grads * raia_dtype_size(wire));
    return bytes / (uint64_t)world->nodes * (uint64_t)(world->nodes - 1);
}

/* The most that is on its way at once: all segments of one layer, or a block of the vocabulary. */
static uint64_t in_flight(const struct layout *l, const struct tree *tree)
{
    uint64_t most = l->largest;
    for (int m = 0; m < tree->modules; m++) {
        uint64_t sum = 0, nested = 0;
        if (tree->module[m].parent < 0 || !tree->module[tree->module[m].parent].list)
            continue;
        for (int i = 0; i < l->segments; i++) {
            const struct segment *s = &l->segment[i];
            if (s->home == m)
                sum += s->count;
            else if (s->home > m && s->home < tree->module[m].end && s->count > nested)
                nested = s->count;
        }
        most = sum + nested > most ? sum + nested : most;
    }
    return most;
}

raia_status shard_measure(const struct tree *tree, const struct unit_list *units,
                          const struct shard_options *options, const struct world *world,
                          struct shard_bytes *out)
{
    struct layout l;
    const struct dtypes d = shard_dtypes(options->precision);
    raia_status status = layout_build(&l, tree, units, world, options);
    if (status == RAIA_OK) {
        uint64_t master = d.master ? sizeof(float) : 0;
        uint64_t sharing = (uint64_t)world->local_size;
        *out = (struct shard_bytes){
            .weights = l.elements * raia_dtype_size(d.weight) / (l.replicated ? 1 : sharing),
            .gradients = l.own_elements * raia_dtype_size(d.grad) / (l.replicated ? sharing : 1),
            .state = l.own_elements * (2 * raia_dtype_size(d.state) + master),
            .transient = in_flight(&l, tree) * raia_dtype_size(d.contribution),
            .wire_out = wire_out(&l, options, &d, world),
        };
    }
    layout_release(&l);
    return status;
}
