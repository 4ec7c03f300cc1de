/* driver: runs a fuzz target without libFuzzer. Replays the seeds of a folder, then feeds inputs
 * that are made of them by small changes; the same ones each time. TAP on stdout.
 *
 *   fuzz_NAME SEEDS [RUNS]
 *
 * The target runs in a child; what ends the child is written to the temporary folder as a file and
 * named. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEEDS_MAX = 256, INPUT_MAX = 1 << 16, LIMIT_S = 10 };

struct input {
    size_t len;
    uint8_t data[INPUT_MAX];
};
static struct input *seeds, *now; /* NOW is shared with the child */
static size_t nseeds;
static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static int add_seed(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || nseeds == SEEDS_MAX)
        return -1;
    struct input *seed = &seeds[nseeds++];
    seed->len = fread(seed->data, 1, sizeof seed->data, file);
    return fclose(file);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_seeds(const char *folder)
{
    struct dirent **found;
    int count = scandir(folder, &found, NULL, by_name), failed = count < 0;
    for (int i = 0; i < count; i++) {
        if (found[i]->d_name[0] != '.')
            failed |= add_seed(folder, found[i]->d_name) != 0;
        free(found[i]);
    }
    if (count >= 0)
        free(found);
    return failed || nseeds == 0 ? -1 : 0;
}

/* ---- changes ---- */

static void flip(struct input *in)
{
    in->data[draw(in->len)] ^= (uint8_t)(1u << draw(8));
}

static void set(struct input *in)
{
    static const uint8_t bytes[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', '/', '.', '-', '9' };
    in->data[draw(in->len)] = bytes[draw(sizeof bytes)];
}

static void number(struct input *in)
{
    static const uint64_t values[] = { 0,   1,         2,          8,         255,
                                       256, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX };
    size_t width = (size_t)1 << draw(4);
    uint64_t value = values[draw(sizeof values / sizeof values[0])];
    if (in->len >= width)
        memcpy(in->data + draw(in->len - width + 1), &value, width);
}

static void cut(struct input *in)
{
    size_t at = draw(in->len), len = 1 + draw(draw(2) == 0 ? 4 : in->len - at);
    if (len > in->len - at)
        len = in->len - at;
    memmove(in->data + at, in->data + at + len, in->len - at - len);
    in->len -= len;
}

static void truncate_end(struct input *in)
{
    in->len = draw(in->len);
}

static void insert(struct input *in, const uint8_t *data, size_t len)
{
    size_t at = draw(in->len + 1);
    if (len > INPUT_MAX - in->len)
        len = INPUT_MAX - in->len;
    memmove(in->data + at + len, in->data + at, in->len - at);
    memcpy(in->data + at, data, len);
    in->len += len;
}

static void join(struct input *in)
{
    const struct input *other = &seeds[draw(nseeds)];
    if (other->len > 0) {
        size_t from = draw(other->len);
        insert(in, other->data + from, 1 + draw(other->len - from));
    }
}

static void double_up(struct input *in)
{
    uint8_t part[64];
    size_t from = draw(in->len), len = 1 + draw(sizeof part);
    if (len > in->len - from)
        len = in->len - from;
    memcpy(part, in->data + from, len);
    insert(in, part, len);
}

static void make_input(struct input *out)
{
    static void (*const changes[])(struct input *) = { flip,         set,  number,   cut,
                                                       truncate_end, join, double_up };
    *out = seeds[draw(nseeds)];
    for (size_t n = 1 + draw(4); n > 0; n--)
        if (out->len > 0)
            changes[draw(sizeof changes / sizeof changes[0])](out);
        else
            join(out);
}

/* ---- running ---- */

static void feed(const struct input *in)
{
    uint8_t *exact = malloc(in->len > 0 ? in->len : 1); /* so that a checker sees its end */
    memcpy(exact, in->data, in->len);
    LLVMFuzzerTestOneInput(exact, in->len);
    free(exact);
}

static void run_seeds(size_t unused)
{
    (void)unused;
    for (size_t i = 0; i < nseeds; i++) {
        alarm(LIMIT_S);
        *now = seeds[i];
        feed(now);
    }
}

static void run_changed(size_t runs)
{
    for (size_t i = 0; i < runs; i++) {
        alarm(LIMIT_S);
        make_input(now);
        feed(now);
    }
}

static void keep(const char *name)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s-%d", folder != NULL ? folder : "/tmp", name, (int)getpid());
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return;
    fwrite(now->data, 1, now->len, file);
    fclose(file);
    printf("# the input is %s (%zu bytes)\n", path, now->len);
}

static int run(const char *name, const char *what, void (*body)(size_t), size_t runs, int number_of)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        body(runs);
        exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s %d - %s: %zu %s\n", status == 0 ? "ok" : "not ok", number_of, name, runs, what);
    if (WIFSIGNALED(status))
        printf("# ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (status != 0)
        keep(name);
    return status != 0;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash != NULL ? slash + 1 : argv[0];
    seeds = calloc(SEEDS_MAX, sizeof *seeds);
    now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || seeds == NULL || now == MAP_FAILED || load_seeds(argv[1]) != 0) {
        printf("Bail out! %s: cannot read the seeds\n", name);
        return 1;
    }
    size_t runs = argc > 2 ? strtoul(argv[2], NULL, 10) : 3000;
    int failed = run(name, "seeds end well", run_seeds, nseeds, 1);
    failed |= run(name, "changed inputs end well", run_changed, runs, 2);
    printf("1..2\n");
    free(seeds);
    return failed;
}
