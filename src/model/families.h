/* families: what sets one model family apart from another, as data. Private to src/model. */
#ifndef RAIA_MODEL_FAMILIES_H
#define RAIA_MODEL_FAMILIES_H

#include "model/model.h"

/* A bit for each family, so that a rule can name several. */
enum { FAMILY_QWEN2 = 1, FAMILY_QWEN3 = 2, FAMILY_LLAMA = 4, FAMILY_ALL = 7 };

struct family {
    const char *name;         /* model_type */
    const char *architecture; /* the one class of transformers that raia trains */
    unsigned bit;
    bool qkv_bias; /* q_proj, k_proj and v_proj have biases */
    bool qk_norm;  /* queries and keys are normed for each head */
    /* What transformers takes for a field that the file leaves out; 0: see config.c. */
    size_t head_dim, max_positions;
    bool kv_heads_required;
    /* Fields that an older transformers expects in the file, though they say nothing. */
    bool writes_bias_fields, writes_window_fields;
};

extern const struct family families[]; /* ends with name NULL */

const struct family *family_find(const char *name); /* NULL: none */

/* Refuses the first field of CONFIG that has no counterpart here and is in use, by name. */
raia_status fields_check(const json_t *json, const char *what, const struct family *family,
                         size_t layers);

/* RAIA_EUNSUPPORTED: `WHAT: "KEY": VALUE is not supported for FAMILY (supported: SUPPORTED)`. */
raia_status fields_refuse(const char *what, const char *key, const json_t *value,
                          const struct family *family, const char *supported);

/* rope_theta with rope_scaling, or rope_parameters. */
raia_status rope_parse(const json_t *json, const char *what, struct model_config *out);

/* A number (or integer) that may be missing or null: *FOUND says whether it was there. */
raia_status field_f64(const json_t *json, const char *what, const char *key, double min, double max,
                      double *out, bool *found);
raia_status field_i64(const json_t *json, const char *what, const char *key, int64_t min,
                      int64_t max, int64_t *out, bool *found);

#endif
