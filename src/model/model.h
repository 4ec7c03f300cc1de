/* model: what a decoder is. Four parts, each its own files:
 *
 * config: config.json (older and newer spellings) and presets into a struct; families are rows of
 * a table.
 *
 * tree: the tree of named modules with named parameters; nothing is allocated for weights.
 *
 * safetensors: reading and writing weights by canonical Hugging Face names, by ranges.
 *
 * decoder: forward and backward over a device, with weights from a param_store. */
#ifndef RAIA_MODEL_INTERNAL_H
#define RAIA_MODEL_INTERNAL_H

#include "base/base.h"
#include "tensor/tensor.h"

#include <raia/model.h>

/* ---- config ---- */

enum rope_type { ROPE_DEFAULT, ROPE_LLAMA3 };

struct family; /* a row of the table in families.c */

struct model_config {
    const struct family *family;
    size_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    double rms_eps, rope_theta, init_std;
    enum rope_type rope_type;
    double rope_factor, rope_low_freq, rope_high_freq, rope_original_max; /* llama3 */
    size_t max_positions;
    bool tied, qkv_bias, qk_norm;
    int64_t bos, eos, pad; /* -1: none; eos is the first of the list */
    int64_t eos_list[16];
    int eos_count;
    raia_dtype dtype; /* of the files */
};

/* From a parsed config.json (borrowed); WHAT names it in errors. A field that is not supported is
 * refused by name. */
raia_status config_parse(const json_t *json, const char *what, struct model_config *out);
raia_status config_preset(const char *name,
                          struct model_config *out); /* RAIA_ENOTFOUND lists the names */
const char *const *config_preset_names(void);        /* NULL-terminated */
const char *config_family_name(const struct model_config *config);
/* "bfloat16"; NULL for a type that is none of a model's. */
const char *config_dtype_name(raia_dtype dtype);
/* config.json in the older spelling that every transformers reads; the caller decref's. */
raia_status config_write(const struct model_config *config, json_t **out);
/* The same as DIR/config.json. */
raia_status model_save_config(const struct model_config *config, const char *dir);

/* Turns NAME (a folder, or ORG/NAME or ORG/NAME@REVISION held by the local hub cache) into a
 * folder; *DIR is the caller's to free. A snapshot must have config.json and every file that its
 * index names. */
raia_status model_resolve(const char *name, char **dir);
raia_status model_load_config(const char *dir, struct model_config *out);
/* The config of a folder, a preset or a hub id, in this order. *DIR is the folder, the caller's to
 * free; NULL for a preset. */
raia_status model_find(const char *name, struct model_config *config, char **dir);

/* ---- tree ---- */

enum param_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS };

struct param {
    char name[96];     /* "model.layers.3.mlp.up_proj.weight" */
    size_t rows, cols; /* cols 0: one dimension of `rows` */
    size_t count;      /* elements */
    int module;        /* the module that owns it (first user when tied) */
    enum param_init init;
};
struct module {
    char name[64];           /* "" for the root, "model", "model.layers", "model.layers.3.mlp" */
    int parent;              /* -1 for the root */
    bool list;               /* nn.ModuleList: never a unit by itself */
    int first_param, params; /* own parameters: tree->own[first_param ..] index into tree->param */
    int end; /* modules of the subtree: [self, end) since modules are in pre-order */
};
/* Modules in the order in which transformers registers them (pre-order): root, model,
 * model.embed_tokens, model.layers, model.layers.0, self_attn, q_proj, k_proj, v_proj, o_proj,
 * (q_norm, k_norm), mlp, gate_proj, up_proj, down_proj, (act_fn has none), input_layernorm,
 * post_attention_layernorm, …, model.norm, lm_head. A tied lm_head shares param 0 of embed_tokens:
 * `own` lists it twice. */
struct tree {
    struct param *param;
    int params;
    struct module *module;
    int modules;
    int *own;
    uint64_t total; /* elements, shared ones once */
};
raia_status tree_build(const struct model_config *config, struct tree *out);
void tree_release(struct tree *tree);
int tree_find_param(const struct tree *tree, const char *name);  /* -1: none */
int tree_find_module(const struct tree *tree, const char *name); /* -1: none */

/* ---- safetensors ---- */

struct st_tensor {
    char *name;
    const char *tag;  /* the type's name in the file: "BF16", "F8_E4M3" */
    raia_dtype dtype; /* RAIA_DTYPE_COUNT: a type that raia knows of but does not compute with */
    int dims;
    uint64_t shape[8];
    int file;        /* index into files */
    uint64_t offset; /* absolute, in that file */
    uint64_t bytes;
};
/* The weights of a folder (model.safetensors, or sharded with an index) or one .safetensors file:
 * headers only, validated in full. Files stay open, are read and never mapped: one that shrinks is
 * an error, not a signal. Any thread may read. */
struct st_folder;
raia_status st_open(const char *path, struct st_folder **out);
void st_close(struct st_folder *folder);
int st_count(const struct st_folder *folder);
/* Tensors of all files, in the order of their names. */
const struct st_tensor *st_at(const struct st_folder *folder, int index);
const struct st_tensor *st_find(const struct st_folder *folder, const char *name); /* NULL: none */
/* Reads COUNT elements from element FIRST of a tensor, converted to DTYPE (f32, bf16, f16 in any
 * pair; else the same type). */
raia_status st_read(const struct st_folder *folder, const struct st_tensor *tensor, uint64_t first,
                    size_t count, raia_dtype dtype, void *out);
/* Every parameter of TREE is there with its shape (a tied head may be there too and must then equal
 * the embedding), and nothing else but rotary_emb.inv_freq: RAIA_EFORMAT names the first that is
 * missing or misshapen, RAIA_EUNSUPPORTED one that is not known. Reads headers only, but for the
 * copy of a tied head, which it reads whole: let one rank call it. */
raia_status st_check(const struct st_folder *folder, const struct tree *tree, bool tied);

/* The layout of an output file or files before any is written: every rank computes the same and
 * writes its own ranges. */
struct st_plan;
/* SHARD: bytes of the largest file (0: 5 GB); one file is model.safetensors, several get an index.
 */
raia_status st_plan_new(const struct tree *tree, raia_dtype dtype, uint64_t shard,
                        struct st_plan **out);
void st_plan_free(struct st_plan *plan);
int st_plan_files(const struct st_plan *plan);
const char *st_plan_file_name(const struct st_plan *plan, int file);
uint64_t st_plan_file_size(const struct st_plan *plan, int file);
/* Header bytes of a file, at offset 0; borrowed. */
const void *st_plan_header(const struct st_plan *plan, int file, size_t *len);
/* Where element 0 of a parameter goes. */
void st_plan_place(const struct st_plan *plan, int param, int *file, uint64_t *offset);
/* model.safetensors.index.json's text, or NULL for one file; borrowed. */
const char *st_plan_index(const struct st_plan *plan);

/* Copies tokenizer and other small files of a model folder (not weights, not config.json). Links
 * are followed within the folder, and within its repository where it is a snapshot of the hub's
 * cache; others are left out with a warning. */
raia_status model_copy_small_files(const char *from, const char *to);
/* Elements [FIRST, FIRST + COUNT) of a parameter of a random model into OUT, memory of DEVICE:
 * normal with STD (the config's init_std), ones or zeros. Values depend on (seed, name, element)
 * alone, through ops->random_normal with str_hash(name) as the tensor. */
raia_status param_fill(struct device *device, const struct param *param, double std, uint64_t seed,
                       uint64_t first, size_t count, raia_dtype dtype, void *out);
/* Shared by the parts of one init and whoever watches: bytes written so far, and a wish to end. */
struct init_watch {
    _Atomic uint64_t written;
    _Atomic bool stop;
};
/* Writes a random model of CONFIG into DIR, this part of PARTS only (0..parts-1; part 0 also writes
 * headers and config): parts may run at the same time, in threads, processes or nodes that share
 * the folder. No part holds more than a bounded buffer. The folder should be new: files that are
 * there keep what is not overwritten. WATCH may be NULL; asked to stop, a part is RAIA_ESTOPPED. */
raia_status model_init_part(const struct model_config *config, const char *dir, raia_dtype dtype,
                            uint64_t seed, int part, int parts, struct init_watch *watch);
/* The whole of it in WORKERS threads, written aside and renamed: OUT is there whole or not at all.
 * A folder that is not empty is RAIA_EINVAL, or with FORCE is replaced if it is a model's. */
raia_status model_init_folder(const struct model_config *config, const char *out, raia_dtype dtype,
                              uint64_t seed, int workers, bool force, struct init_watch *watch);

/* ---- decoder ---- */

enum pass { PASS_FORWARD, PASS_BACKWARD };

/* Where a decoder finds its weights and leaves its gradients: FSDP implements it (src/shard);
 * local_store_* below is the plain one. The decoder calls enter before it first uses anything of a
 * module (or of its children) in a pass, leave after the last use; pairs nest as the modules do,
 * each module once a pass, in the same order every step (written down at the top of decoder.c).
 * weight[p] (compute dtype) is valid between enter and leave of p's module; grad[p] between
 * enter and leave in the backward, where the decoder writes every gradient (never reads: no zeroing
 * needed). A tied head is entered as module lm_head.
 *
 * The vocabulary's weights (embed_tokens, lm_head) are apart, since their gradients may be too
 * large to hold: */
struct param_store {
    void **weight;         /* [params] */
    void **grad;           /* [params], not for vocabulary weights */
    raia_dtype dtype;      /* of weights */
    raia_dtype grad_dtype; /* of gradients */
    raia_status (*enter)(struct param_store *store, int module, enum pass pass);
    raia_status (*leave)(struct param_store *store, int module, enum pass pass);
    /* The head's gradient in blocks of rows: head_rows gives memory for rows [row0, row0+rows)
     * (rows <= row_block), which the decoder writes whole and hands back with head_rows_done.
     * Blocks come in order, cover all rows. */
    size_t row_block;
    raia_status (*head_rows)(struct param_store *store, size_t row0, size_t rows, void **grad);
    raia_status (*head_rows_done)(struct param_store *store, size_t row0, size_t rows);
    /* The embedding's gradient, last of the backward: rows dy[i] (compute dtype, [count, hidden])
     * for tokens[i], both memory of the device. Added to the head's when tied. The module
     * embed_tokens is not entered for it: its weight is not needed. */
    raia_status (*embed_grad)(struct param_store *store, const uint32_t *tokens, const void *dy,
                              size_t count);
};

struct decoder;
struct decoder_options {
    size_t batch, seq;   /* largest samples a step on this rank, tokens a sample */
    size_t logits_bytes; /* budget for logits (0: 128 MiB); beyond it the head is computed twice,
                            block by block */
};
/* Allocates activations and workspace for the largest batch and plans every operation (a dry run of
 * the step on STORE's enter/leave with device->planning set: the store sees the module order before
 * step 0 and may record it). Borrows all arguments. */
raia_status decoder_new(struct decoder **out, struct device *device,
                        const struct model_config *config, const struct tree *tree,
                        struct param_store *store, const struct decoder_options *options);
void decoder_free(struct decoder *decoder);
/* tokens: [batch, seq] in host memory, each < vocab (RAIA_EINVAL names the first that is not).
 * targets[i] is the token that position i predicts, < 0 for none; NULL: the next token of the
 * sample, none for its last. *LOSS_SUM becomes the sum of the cross-entropies (added up in f64),
 * and the store is left with the gradients of SCALE * that sum. batch <= options.batch; with batch
 * 0 the rank still takes part in everything the store does and leaves gradients of zero. After a
 * failure the decoder and its store can only be freed. */
raia_status decoder_forward_backward(struct decoder *decoder, const uint32_t *tokens,
                                     const int32_t *targets, size_t batch, float scale,
                                     double *loss_sum);
/* The same sum without gradients: the forward's events only. */
raia_status decoder_loss(struct decoder *decoder, const uint32_t *tokens, const int32_t *targets,
                         size_t batch, double *loss_sum);
/* Bytes this decoder allocated (activations, statistics, workspace), as its formula says before
 * allocating. */
size_t decoder_bytes(const struct model_config *config, raia_dtype dtype,
                     const struct decoder_options *options);

/* The plain store: all weights and gradients in one rank's memory. */
struct local_store;
raia_status local_store_new(struct local_store **out, struct device *device,
                            const struct tree *tree, raia_dtype dtype, raia_dtype grad_dtype);
void local_store_free(struct local_store *store);
struct param_store *local_store_base(struct local_store *store);
void *local_store_grad(struct local_store *store, int param); /* vocabulary weights too */

#endif
