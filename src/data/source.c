#include "data/data.h"
#include "tensor/tensor.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files of a source, one after another. */
struct files {
    struct part {
        char *path;
        int fd;
        uint64_t begin; /* of its first byte in the whole */
    } * part;
    int parts, room;
    uint64_t bytes;
};

struct source_kind {
    const char *name;
    unsigned token_bytes;
    bool (*claims)(const char *spec);
    raia_status (*sample)(const struct source *source, uint64_t index, size_t seq, uint32_t *out);
};

/* ---- random ---- */

static bool claims_random(const char *spec)
{
    return strcmp(spec, "random") == 0;
}

static raia_status sample_random(const struct source *s, uint64_t index, size_t seq, uint32_t *out)
{
    for (size_t t = 0; t < seq; t++)
        out[t] = (uint32_t)(((random_bits(s->seed, index, t) >> 32) * s->vocab) >> 32);
    return RAIA_OK;
}

/* ---- files ---- */

static void files_close(struct files *files)
{
    for (int i = 0; i < files->parts; i++) {
        close(files->part[i].fd);
        free(files->part[i].path);
    }
    free(files->part);
    free(files);
}

static raia_status add_file(struct files *files, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        raia_status status = errno == ENOENT ? RAIA_ENOTFOUND : RAIA_EIO;
        fail(status, "cannot open the data file %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return fail(RAIA_EINVAL, "%s is neither a file nor a folder of data", path);
    }
    if (files->parts == files->room) {
        int room = files->room > 0 ? files->room * 2 : 16;
        struct part *more = realloc(files->part, (size_t)room * sizeof *more);
        if (more == NULL) {
            close(fd);
            return fail(RAIA_ENOMEM, "out of memory: %d data files", room);
        }
        files->part = more;
        files->room = room;
    }
    char *copy = strdup(path);
    files->part[files->parts++] = (struct part){ .path = copy, .fd = fd, .begin = files->bytes };
    files->bytes += (uint64_t)st.st_size;
    return copy != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static raia_status add_folder(struct files *files, const char *path)
{
    struct dirent **list;
    int n = scandir(path, &list, is_visible, alphasort);
    if (n < 0)
        return fail(RAIA_EIO, "cannot read the data folder %s: %s", path, strerror(errno));
    raia_status status = RAIA_OK;
    for (int i = 0; i < n; i++) {
        char *child = path_join(path, list[i]->d_name);
        if (child != NULL && status == RAIA_OK && file_exists(child))
            status = add_file(files, child);
        free(child);
        free(list[i]);
    }
    free(list);
    if (status == RAIA_OK && files->parts == 0)
        return fail(RAIA_ENOTFOUND, "the data folder %s holds no files", path);
    return status;
}

static raia_status files_open(const char *path, struct files **out)
{
    struct files *files;
    RAIA_TRY(MEM_NEW(&files, 1));
    raia_status status = dir_exists(path) ? add_folder(files, path) : add_file(files, path);
    if (status != RAIA_OK) {
        files_close(files);
        return status;
    }
    *out = files;
    return RAIA_OK;
}

static const struct part *part_at(const struct files *files, uint64_t byte)
{
    int low = 0, high = files->parts - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (files->part[mid].begin <= byte)
            low = mid;
        else
            high = mid - 1;
    }
    return &files->part[low];
}

static raia_status files_read(const struct files *files, uint64_t at, void *out, size_t len)
{
    char *p = out;
    while (len > 0) {
        const struct part *part = part_at(files, at);
        uint64_t end = part + 1 < files->part + files->parts ? part[1].begin : files->bytes;
        size_t piece = end - at < len ? (size_t)(end - at) : len;
        RAIA_TRY(file_pread(part->fd, p, piece, at - part->begin, part->path));
        p += piece;
        at += piece;
        len -= piece;
    }
    return RAIA_OK;
}

static raia_status out_of_vocab(const struct source *s, uint64_t place, uint32_t token)
{
    return fail(RAIA_EFORMAT,
                "%s: token %u at position %llu is not in the model's vocabulary of %zu; "
                "was this data made with another tokenizer?",
                s->name, token, (unsigned long long)place, s->vocab);
}

static bool claims_bin(const char *spec)
{
    size_t len = strlen(spec);
    return len > 4 && strcmp(spec + len - 4, ".bin") == 0 && !dir_exists(spec);
}

static raia_status sample_bin(const struct source *s, uint64_t index, size_t seq, uint32_t *out)
{
    RAIA_TRY(files_read(s->impl, index * seq * 4, out, seq * 4));
    for (size_t t = 0; t < seq; t++) {
        out[t] = le32toh(out[t]);
        if (out[t] >= s->vocab)
            return out_of_vocab(s, index * seq + t, out[t]);
    }
    return RAIA_OK;
}

static bool claims_text(const char *spec)
{
    (void)spec;
    return true;
}

static raia_status sample_text(const struct source *s, uint64_t index, size_t seq, uint32_t *out)
{
    /* Bytes are read into the end of OUT and widened from the front, so that no buffer is needed.
     */
    unsigned char *bytes = (unsigned char *)out + 3 * seq;
    RAIA_TRY(files_read(s->impl, index * seq, bytes, seq));
    for (size_t t = 0; t < seq; t++) {
        uint32_t token = bytes[t];
        out[t] = token;
        if (token >= s->vocab)
            return out_of_vocab(s, index * seq + t, token);
    }
    return RAIA_OK;
}

/* The first row that claims a spec takes it. */
static const struct source_kind kinds[] = {
    { "random", 0, claims_random, sample_random },
    { "tokens", 4, claims_bin, sample_bin },
    { "text", 1, claims_text, sample_text },
};

raia_status source_open(const char *spec, size_t vocab, uint64_t seed, struct source *out)
{
    const struct source_kind *kind = kinds;
    while (!kind->claims(spec))
        kind++;
    *out = (struct source){ .kind = kind, .tokens = UINT64_MAX, .vocab = vocab, .seed = seed };
    if (kind->token_bytes > 0) {
        struct files *files;
        RAIA_TRY(files_open(spec, &files));
        if (files->bytes % kind->token_bytes != 0) {
            raia_status status =
                fail(RAIA_EFORMAT, "%s: %llu bytes are not whole tokens of %u bytes", spec,
                     (unsigned long long)files->bytes, kind->token_bytes);
            files_close(files);
            return status;
        }
        out->tokens = files->bytes / kind->token_bytes;
        out->impl = files;
    }
    out->name = strdup(spec);
    if (out->name == NULL) {
        source_close(out);
        return fail(RAIA_ENOMEM, "out of memory");
    }
    return RAIA_OK;
}

void source_close(struct source *source)
{
    if (source->impl != NULL)
        files_close(source->impl);
    free(source->name);
    *source = (struct source){ 0 };
}

raia_status source_sample(const struct source *source, uint64_t index, size_t seq, uint32_t *out)
{
    if (source->tokens != UINT64_MAX && (index + 1) * seq > source->tokens)
        return fail(RAIA_EBUG, "%s has no sample %llu", source->name, (unsigned long long)index);
    return source->kind->sample(source, index, seq, out);
}
