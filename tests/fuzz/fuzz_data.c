/* fuzz_data: any bytes as a file of tokens and as a file of text. Every token that comes out is
 * below the vocabulary. */
#include "data/data.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 300, SEQ = 7 };

static void read_all(const char *path, size_t vocab)
{
    struct source source;
    uint32_t tokens[SEQ];
    if (source_open(path, vocab, 1, &source) != RAIA_OK) {
        if (raia_error()[0] == '\0')
            abort();
        return;
    }
    for (uint64_t i = 0; i < source.tokens / SEQ && i < 64; i++)
        if (source_sample(&source, i, SEQ, tokens) == RAIA_OK)
            for (int t = 0; t < SEQ; t++)
                if (tokens[t] >= vocab)
                    abort();
    source_close(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/dev/shm/raia-fuzz-XXXXXX";
    if (mkdtemp(folder) == NULL)
        abort();
    char *tokens = path_join(folder, "tokens.bin");
    if (tokens == NULL || file_write(tokens, data, size, 0600) != RAIA_OK)
        abort();
    read_all(tokens, VOCAB);
    read_all(folder, 256); /* a folder is text */
    free(tokens);
    if (dir_remove(folder) != RAIA_OK)
        abort();
    return 0;
}
