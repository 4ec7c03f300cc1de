/* st_plan: where every parameter goes in the files of a model, and their headers. Splits as
 * huggingface_hub does, and orders within a file as the safetensors library does: by alignment,
 * which is one for all since a plan has one type, then by name. */
#include "model/st_priv.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_SHARD 5000000000u

struct plan_file {
    char name[64];
    struct buf header;
    uint64_t size;
    int first, count; /* its parameters: plan->order[first ..] */
};
struct place {
    int file;
    uint64_t offset;
};
struct st_plan {
    const struct tree *tree; /* used only while the plan is made */
    size_t element;
    const char *tag;
    struct plan_file *file;
    int files;
    int *order; /* parameters, file by file */
    struct place *place;
    uint64_t total;
    struct buf index;
};

void st_plan_free(struct st_plan *plan)
{
    if (plan == NULL)
        return;
    for (int i = 0; i < plan->files; i++)
        buf_release(&plan->file[i].header);
    buf_release(&plan->index);
    free(plan->file);
    free(plan->order);
    free(plan->place);
    free(plan);
}

static uint64_t bytes_of(const struct st_plan *plan, int param)
{
    return plan->tree->param[param].count * plan->element;
}

/* The file being filled: its bytes, and its parameters among [first, ..), marked IN_CURRENT. */
enum { IN_CURRENT = -1 };
struct filling {
    uint64_t bytes;
    int first;
};

static void close_current(struct st_plan *plan, int *file_of, struct filling *current, int end)
{
    if (current->bytes == 0)
        return;
    for (int p = current->first; p < end; p++)
        if (file_of[p] == IN_CURRENT)
            file_of[p] = plan->files;
    plan->files++;
    *current = (struct filling){ .first = end };
}

/* Fills files in order; one that would grow beyond SHARD is closed, and a parameter that is larger
 * by itself gets a file of its own at once. Files are numbered as they are closed. */
static void split(struct st_plan *plan, uint64_t shard, int *file_of)
{
    struct filling current = { 0 };
    int params = plan->tree->params;
    for (int p = 0; p < params; p++) {
        uint64_t bytes = bytes_of(plan, p);
        plan->total += bytes;
        if (bytes > shard) {
            file_of[p] = plan->files++;
            continue;
        }
        if (current.bytes + bytes > shard)
            close_current(plan, file_of, &current, p);
        current.bytes += bytes;
        file_of[p] = IN_CURRENT;
    }
    close_current(plan, file_of, &current, params);
}

static int by_name(const void *a, const void *b, void *tree)
{
    const struct param *param = ((const struct tree *)tree)->param;
    return strcmp(param[*(const int *)a].name, param[*(const int *)b].name);
}

static void order_files(struct st_plan *plan, const int *file_of)
{
    int params = plan->tree->params, used = 0;
    for (int p = 0; p < params; p++)
        plan->file[file_of[p]].count++;
    for (int f = 0; f < plan->files; f++) {
        struct plan_file *file = &plan->file[f];
        if (plan->files == 1)
            snprintf(file->name, sizeof file->name, "model.safetensors");
        else
            snprintf(file->name, sizeof file->name, "model-%05d-of-%05d.safetensors", f + 1,
                     plan->files);
        file->first = used;
        used += file->count;
        file->count = 0;
    }
    for (int p = 0; p < params; p++) {
        struct plan_file *file = &plan->file[file_of[p]];
        plan->order[file->first + file->count++] = p;
    }
    for (int f = 0; f < plan->files; f++)
        qsort_r(plan->order + plan->file[f].first, (size_t)plan->file[f].count, sizeof *plan->order,
                by_name, (void *)plan->tree);
}

static raia_status write_header(struct st_plan *plan, struct plan_file *file)
{
    struct buf *buf = &file->header;
    uint64_t offset = 0;
    buf->max = (size_t)ST_HEADER_MAX + 8;
    RAIA_TRY(buf_append(buf, "\0\0\0\0\0\0\0", 8));
    /* some loaders refuse a file without this */
    RAIA_TRY(buf_printf(buf, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int i = 0; i < file->count; i++) {
        const struct param *param = &plan->tree->param[plan->order[file->first + i]];
        uint64_t end = offset + bytes_of(plan, plan->order[file->first + i]);
        RAIA_TRY(buf_printf(buf, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", param->name, plan->tag,
                            param->rows));
        if (param->cols > 0)
            RAIA_TRY(buf_printf(buf, ",%zu", param->cols));
        RAIA_TRY(buf_printf(buf, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                            (unsigned long long)end));
        offset = end;
    }
    RAIA_TRY(buf_printf(buf, "}"));
    while (buf->len % 8 != 0)
        RAIA_TRY(buf_append(buf, " ", 1));
    uint64_t len = buf->len - 8;
    for (int i = 0; i < 8; i++)
        buf->data[i] = (char)(len >> (8 * i) & 0xff);
    file->size = buf->len + offset;
    return RAIA_OK;
}

static void set_places(struct st_plan *plan, int f)
{
    const struct plan_file *file = &plan->file[f];
    uint64_t offset = file->header.len;
    for (int i = 0; i < file->count; i++) {
        int p = plan->order[file->first + i];
        plan->place[p] = (struct place){ .file = f, .offset = offset };
        offset += bytes_of(plan, p);
    }
}

static raia_status write_index(struct st_plan *plan, int *sorted)
{
    int params = plan->tree->params;
    for (int p = 0; p < params; p++)
        sorted[p] = p;
    qsort_r(sorted, (size_t)params, sizeof *sorted, by_name, (void *)plan->tree);
    RAIA_TRY(buf_printf(&plan->index,
                        "{\n  \"metadata\": {\n    \"total_parameters\": %llu,\n"
                        "    \"total_size\": %llu\n  },\n  \"weight_map\": {\n",
                        (unsigned long long)(plan->total / plan->element),
                        (unsigned long long)plan->total));
    for (int i = 0; i < params; i++)
        RAIA_TRY(
            buf_printf(&plan->index, "    \"%s\": \"%s\"%s\n", plan->tree->param[sorted[i]].name,
                       plan->file[plan->place[sorted[i]].file].name, i + 1 < params ? "," : ""));
    return buf_printf(&plan->index, "  }\n}\n");
}

/* SCRATCH: [params] */
static raia_status fill_plan(struct st_plan *plan, uint64_t shard, int *scratch)
{
    split(plan, shard, scratch);
    RAIA_TRY(MEM_NEW(&plan->file, (size_t)plan->files));
    RAIA_TRY(MEM_NEW(&plan->order, (size_t)plan->tree->params));
    RAIA_TRY(MEM_NEW(&plan->place, (size_t)plan->tree->params));
    order_files(plan, scratch);
    for (int f = 0; f < plan->files; f++) {
        RAIA_TRY(write_header(plan, &plan->file[f]));
        set_places(plan, f);
    }
    return plan->files > 1 ? write_index(plan, scratch) : RAIA_OK;
}

raia_status st_plan_new(const struct tree *tree, raia_dtype dtype, uint64_t shard,
                        struct st_plan **out)
{
    struct st_plan *plan;
    int *scratch = NULL;
    if (st_type_tag(dtype) == NULL)
        return fail(RAIA_EINVAL, "safetensors has no type for %s", raia_dtype_name(dtype));
    RAIA_TRY(MEM_NEW(&plan, 1));
    *plan = (struct st_plan){ .tree = tree,
                              .element = raia_dtype_size(dtype),
                              .tag = st_type_tag(dtype) };
    raia_status status = MEM_NEW(&scratch, (size_t)tree->params);
    if (status == RAIA_OK)
        status = fill_plan(plan, shard > 0 ? shard : DEFAULT_SHARD, scratch);
    free(scratch);
    if (status != RAIA_OK) {
        st_plan_free(plan);
        return status;
    }
    plan->tree = NULL;
    *out = plan;
    return RAIA_OK;
}

int st_plan_files(const struct st_plan *plan)
{
    return plan->files;
}

const char *st_plan_file_name(const struct st_plan *plan, int file)
{
    return plan->file[file].name;
}

uint64_t st_plan_file_size(const struct st_plan *plan, int file)
{
    return plan->file[file].size;
}

const void *st_plan_header(const struct st_plan *plan, int file, size_t *len)
{
    *len = plan->file[file].header.len;
    return plan->file[file].header.data;
}

void st_plan_place(const struct st_plan *plan, int param, int *file, uint64_t *offset)
{
    *file = plan->place[param].file;
    *offset = plan->place[param].offset;
}

const char *st_plan_index(const struct st_plan *plan)
{
    return plan->index.data;
}
