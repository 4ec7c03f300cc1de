/* What the files of this room share: where everything lies.
 *
 * A unit is cut into segments: the parts of it whose gradients become whole together (its
 * parameters of one decoder layer; a parameter outside the layers; a block of rows of a vocabulary
 * weight). A segment is gathered, reduced and owned as one piece: each rank owns one slice of it,
 * so that every rank has its share of the work in each reduction, and a unit that spans the layers
 * (the root's remainder) is never in flight whole. */
#ifndef RAIA_SHARD_PRIV_H
#define RAIA_SHARD_PRIV_H

#include "shard/shard.h"

struct segment {
    int unit;
    int home;       /* module at whose leave its gradients are whole; -1: a vocabulary block */
    int next;       /* segment of the same home, -1: none */
    int first_part; /* parts [first_part, first_part + parts) of the layout */
    int parts;
    int param;         /* of a vocabulary block */
    size_t row0, rows; /* of a vocabulary block */
    uint64_t count;    /* elements, with padding */
    uint64_t at;       /* first element among all weights */
    uint64_t own_at;   /* first element of this rank's slice among what it owns */
    size_t *begin;     /* [size + 1] first element of each rank's slice, in the segment */
};
/* Elements [first, first + count) of a parameter, at element `at` of the segment. */
struct part {
    int param;
    uint64_t first, count, at;
};
/* A part of this rank's slice. */
struct piece {
    int param;
    uint64_t first, count; /* in the parameter */
    uint64_t at;           /* among all weights */
    uint64_t own_at;       /* among what the rank owns */
};
struct layout {
    int size, rank;
    bool replicated; /* strategy none: the rank owns all of every segment, and reduces its slice */
    struct segment *segment; /* vocabulary blocks of one parameter follow each other without gaps */
    int segments;
    struct part *part;
    int parts;
    struct piece *piece;
    int pieces;
    int *first_of;         /* [modules]: first segment of that home, -1: none */
    uint64_t *param_at;    /* [params]: first element among all weights */
    size_t row_block;      /* rows of a vocabulary block */
    uint64_t elements;     /* of all weights, with padding */
    uint64_t own_elements; /* of this rank's slices, with padding */
    uint64_t largest;      /* elements of the largest segment */
};
raia_status layout_build(struct layout *layout, const struct tree *tree,
                         const struct unit_list *units, const struct world *world,
                         const struct shard_options *options);
void layout_release(struct layout *layout);
/* The parameter of a vocabulary module; -1: none. */
int vocabulary_param(const struct tree *tree, const char *module);
/* Where this rank's slice of a segment's gradient is summed: element among what it owns. */
uint64_t layout_slice_at(const struct layout *layout, const struct segment *segment);

/* Element types of each precision. */
struct dtypes {
    raia_dtype weight, contribution, grad, state;
    bool master;
};
struct dtypes shard_dtypes(enum precision precision);

/* Gradients on their way: this rank's contributions, which the node's other ranks read. Pushed and
 * popped as modules are entered and left. */
struct stack {
    char *base; /* NULL while the schedule is being recorded */
    size_t at, peak;
};

struct shard {
    struct param_store store; /* first: the decoder's view */
    struct device *device;
    raia_comm *comm;
    const struct tree *tree;
    struct shard_options options;
    struct dtypes dtypes;
    struct unit_list units;
    struct layout layout;
    int embed, head; /* params; equal when tied */

    char *weights;                   /* all of them, shared by the node's ranks unless replicated */
    void *grad;                      /* this rank's slices; of the node when replicated */
    void *m, *v;                     /* this rank's slices; of the device */
    float *master;                   /* NULL unless mixed */
    double *sums;                    /* [pieces] squares; of the device */
    double *host_sums;               /* [pieces] */
    float *scale;                    /* the clipping factor; of the device */
    void *stage_device, *stage_host; /* STAGE_ELEMENTS f32 each, for reading and writing files */

    struct stack stack;
    size_t *stack_at;     /* [segments]: where a contribution lies while it is open */
    uint32_t *all_tokens; /* node-shared: [size * max_tokens], the embedding's gradient */
    char *all_dy;         /* node-shared: [size * max_tokens, hidden] */
    size_t max_tokens;    /* of any rank's step */
    int passes;           /* backward passes since step_begin */
    bool planned;
};

enum { STAGE_ELEMENTS = 1 << 18 };

static inline void *weight_at(const struct shard *s, uint64_t element)
{
    return s->weights + element * raia_dtype_size(s->dtypes.weight);
}
static inline void *state_at(void *base, uint64_t element, raia_dtype dtype)
{
    return (char *)base + element * raia_dtype_size(dtype);
}

/* The store's functions that deal with the vocabulary (vocabulary.c). */
raia_status vocabulary_rows(struct param_store *store, size_t row0, size_t rows, void **grad);
raia_status vocabulary_rows_done(struct param_store *store, size_t row0, size_t rows);
raia_status vocabulary_embed(struct param_store *store, const uint32_t *tokens, const void *dy,
                             size_t count);
raia_status vocabulary_plan_end(struct shard *shard);

/* The stack (events.c). */
void *stack_push(struct stack *stack, size_t bytes);
void stack_pop(struct stack *stack, size_t to);
raia_status event_enter(struct param_store *store, int module, enum pass pass);
raia_status event_leave(struct param_store *store, int module, enum pass pass);
/* Sums a segment's CONTRIBUTION of all ranks into each rank's slice of gradients. */
raia_status reduce_segment(struct shard *shard, const struct segment *segment,
                           const void *contribution);

#endif
