/* Safetensors, one file: what is valid is read, whatever lies is refused with the reason. */
#include "st_make.h"

#include "model/model.h"
#include "tensor/scalar.h"

#include <sys/stat.h>

static struct st_folder *open_good(const char *header, size_t bytes)
{
    struct st_folder *folder = NULL;
    CHECK_OK(st_open(st_make("a.safetensors", header, bytes), &folder));
    return folder;
}

TEST(tensors_are_found_by_name_with_type_shape_and_bytes)
{
    struct st_folder *folder =
        open_good("{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                  "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[28,36]},"
                  "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[36,36]}}   ",
                  36);
    CHECK_INT(st_count(folder), 4);
    CHECK_STR(st_at(folder, 0)->name, "a");
    CHECK_STR(st_at(folder, 1)->name, "b");
    const struct st_tensor *b = st_find(folder, "b");
    CHECK(b != NULL && b->dims == 2 && b->shape[0] == 2 && b->shape[1] == 3);
    CHECK_INT(b->dtype, RAIA_F32);
    CHECK_STR(b->tag, "F32");
    CHECK_INT(b->bytes, 24);
    CHECK_INT(st_find(folder, "s")->dims, 0);
    CHECK_INT(st_find(folder, "none")->bytes, 0);
    CHECK(st_find(folder, "c") == NULL);
    unsigned char raw[24];
    CHECK_OK(st_read(folder, b, 0, 6, RAIA_F32, raw));
    for (int i = 0; i < 24; i++)
        CHECK_INT(raw[i], i + 4);
    CHECK_OK(st_read(folder, b, 5, 1, RAIA_F32, raw));
    CHECK_INT(raw[0], 24);
    CHECK_OK(st_read(folder, b, 6, 0, RAIA_F32, raw));
    st_close(folder);
    st_made_end();
}

TEST(white_space_around_the_header_is_let_through)
{
    st_close(open_good("  {\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}} \n", 1));
    st_close(open_good("{}", 0));
    st_made_end();
}

TEST(a_read_beyond_a_tensor_is_refused)
{
    struct st_folder *folder =
        open_good("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
    float out[4];
    const struct st_tensor *a = st_find(folder, "a");
    CHECK_ERROR(st_read(folder, a, 0, 3, RAIA_F32, out), RAIA_EINVAL, "has 2 elements");
    CHECK_ERROR(st_read(folder, a, 3, 0, RAIA_F32, out), RAIA_EINVAL, "has 2 elements");
    CHECK_ERROR(st_read(folder, a, UINT64_MAX, 2, RAIA_BF16, out), RAIA_EINVAL, "a.safetensors");
    CHECK_ERROR(st_read(folder, a, 0, 1, RAIA_I32, out), RAIA_EUNSUPPORTED, "not read as i32");
    st_close(folder);
    st_made_end();
}

static const struct lie {
    const char *what, *header;
    size_t bytes;
    const char *error;
} lies[] = {
    { "overlap",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
      6, "tensor \"b\": overlaps tensor \"a\"" },
    { "the same bytes twice",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
      4, "overlaps" },
    { "hole",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
      9, "hole of 1 bytes" },
    { "hole at the start", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5,
      "hole of 1 bytes" },
    { "trailing bytes", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5,
      "1 bytes follow the last tensor" },
    { "data without a tensor", "{}", 3, "3 bytes follow" },
    { "truncated data", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 3,
      "ends at byte 4 of the data, but the file has only 3" },
    { "duplicate tensor",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
      2, "duplicate" },
    { "duplicate field",
      "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
      "\"data_offsets\":[0,1]}}",
      1, "duplicate" },
    { "unknown type", "{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
      "dtype \"F99\"" },
    { "wrong type", "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
      "has 4 bytes, but its shape in BF16 takes 2" },
    { "no type", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\" is missing" },
    { "type as a number", "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
      "\"dtype\" is missing" },
    { "no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"shape\" is missing" },
    { "negative dimension", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
      "something else than sizes" },
    { "fractional dimension", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}",
      1, "something else than sizes" },
    { "overflowing shape",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
      "overflows" },
    { "overflowing bits",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[576460752303423489],\"data_offsets\":[0,4]}}", 4,
      "overflows" },
    { "part of a byte", "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
      "within a byte" },
    { "huge integer",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 1,
      "not valid JSON" },
    { "largest integer",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
      "\"data_offsets\":[0,9223372036854775807]}}",
      1, "overflows" },
    { "negative offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1,
      "negative" },
    { "backward offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,0]}}", 1,
      "backwards" },
    { "one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
      "pair of integers" },
    { "fractional offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]}}", 1,
      "pair of integers" },
    { "an entry that is no object", "{\"a\":[1]}", 0, "not an object" },
    { "metadata that is no object", "{\"__metadata__\":\"pt\"}", 0, "__metadata__" },
    { "metadata with a number", "{\"__metadata__\":{\"n\":1}}", 0, "__metadata__" },
    { "a list", "[1]", 0, "does not start with '{'" },
    { "not JSON", "{\"a\":", 0, "not valid JSON" },
    { "more after the object", "{} {}", 0, "not valid JSON" },
    { "not UTF-8", "{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
      "not valid JSON" },
    { "overlong UTF-8", "{\"a\xc0\xaf\":{}}", 0, "not valid JSON" },
};

TEST(files_that_lie_are_refused_with_file_and_reason)
{
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct st_folder *folder;
        const char *path = st_make("lie.safetensors", lies[i].header, lies[i].bytes);
        raia_status status = st_open(path, &folder);
        if (status != RAIA_EFORMAT || strstr(raia_error(), lies[i].error) == NULL ||
            strstr(raia_error(), "lie.safetensors") == NULL)
            CHECK_FAIL("%s: %s: %s", lies[i].what, raia_status_text(status), raia_error());
    }
    st_made_end();
}

TEST(a_header_length_is_checked_before_it_is_believed)
{
    static const uint64_t claims[] = { 3, 100, 100000001, 1ull << 40, UINT64_MAX, UINT64_MAX - 7 };
    struct st_folder *folder;
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++)
        CHECK_ERROR(st_open(st_make_claiming("a.safetensors", claims[i], "{}", 2, 0), &folder),
                    RAIA_EFORMAT, "header claims");
    CHECK_ERROR(st_open(st_make_claiming("a.safetensors", 0, "", 0, 0), &folder), RAIA_EFORMAT,
                "does not start with");
    st_write_text("a.safetensors", "short");
    CHECK_ERROR(st_open(st_made_path("a.safetensors"), &folder), RAIA_EFORMAT, "has 5 bytes");
    st_write_text("a.safetensors", "");
    CHECK_ERROR(st_open(st_made_path("a.safetensors"), &folder), RAIA_EFORMAT, "has 0 bytes");
    st_made_end();
}

TEST(a_giant_header_that_is_really_there_is_refused_by_its_size)
{
    const char *path = st_make_claiming("a.safetensors", 100000001, "{", 1, 0);
    struct st_folder *folder;
    CHECK_INT(truncate(path, 8 + 100000001), 0); /* a sparse file */
    CHECK_ERROR(st_open(path, &folder), RAIA_EFORMAT, "more than the format's 100000000");
    st_made_end();
}

TEST(deep_nesting_is_refused)
{
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 8);
    CHECK(text != NULL);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    text[DEPTH + 5] = '\0';
    struct st_folder *folder;
    CHECK_ERROR(st_open(st_make("a.safetensors", text, 0), &folder), RAIA_EFORMAT, "JSON");
    memset(text + 5, '[', 500);
    memset(text + 505, ']', 500);
    memcpy(text + 1005, "}", 2);
    CHECK_ERROR(st_open(st_make("a.safetensors", text, 0), &folder), RAIA_EFORMAT, "nested");
    free(text);
    st_made_end();
}

TEST(more_dimensions_than_eight_are_not_supported)
{
    struct st_folder *folder;
    CHECK_ERROR(st_open(st_make("a.safetensors",
                                "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
                                "\"data_offsets\":[0,1]}}",
                                1),
                        &folder),
                RAIA_EUNSUPPORTED, "8 dimensions");
    st_made_end();
}

TEST(a_fifo_or_a_missing_path_does_not_hang)
{
    struct st_folder *folder;
    CHECK_ERROR(st_open(st_made_path("none"), &folder), RAIA_ENOTFOUND, "none");
    CHECK_INT(mkfifo(st_made_path("fifo.safetensors"), 0600), 0);
    CHECK_ERROR(st_open(st_made_path("fifo.safetensors"), &folder), RAIA_EINVAL, "regular");
    st_made_end();
}

TEST(a_file_that_shrinks_after_it_was_opened_is_an_error)
{
    struct st_folder *folder =
        open_good("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16);
    CHECK_INT(truncate(st_made_path("a.safetensors"), 70), 0);
    float out[4];
    CHECK_ERROR(st_read(folder, st_find(folder, "a"), 0, 4, RAIA_F32, out), RAIA_EFORMAT,
                "ends at byte");
    CHECK_ERROR(st_read(folder, st_find(folder, "a"), 0, 4, RAIA_BF16, out), RAIA_EFORMAT,
                "ends at byte");
    st_close(folder);
    st_made_end();
}

/* ---- conversion ---- */

static uint16_t to_short(float x, raia_dtype dtype)
{
    return dtype == RAIA_BF16 ? bf16_round(x) : f16_round(x);
}

static float from_short(uint16_t x, raia_dtype dtype)
{
    return dtype == RAIA_BF16 ? bf16_load(x) : f16_load(x);
}

/* Every 16-bit pattern, read as each type. */
static void check_conversion(raia_dtype from)
{
    enum { COUNT = 65536 };
    static const struct {
        raia_dtype dtype;
        const char *name;
    } names[] = { { RAIA_BF16, "BF16" }, { RAIA_F16, "F16" } };
    char header[128];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
             names[from == RAIA_F16].name, COUNT, 2 * COUNT);
    const char *path = st_make("c.safetensors", header, 0);
    FILE *file = fopen(path, "ab");
    CHECK(file != NULL);
    for (int i = 0; i < COUNT; i++) {
        uint16_t x = (uint16_t)i;
        CHECK_INT(fwrite(&x, 2, 1, file), 1);
    }
    fclose(file);
    static float wide[COUNT];
    static uint16_t narrow[COUNT];
    struct st_folder *folder;
    CHECK_OK(st_open(path, &folder));
    const struct st_tensor *a = st_find(folder, "a");
    CHECK_OK(st_read(folder, a, 0, COUNT, RAIA_F32, wide));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(st_read(folder, a, 1, COUNT - 1, names[k].dtype, narrow));
        for (int i = 1; i < COUNT; i++) {
            float exact = from_short((uint16_t)i, from);
            CHECK(memcmp(&wide[i], &exact, 4) == 0);
            if (names[k].dtype == from)
                CHECK_INT(narrow[i - 1], i);
            else
                CHECK_INT(narrow[i - 1], to_short(exact, names[k].dtype));
        }
    }
    st_close(folder);
}

TEST(bf16_and_f16_are_converted_exactly)
{
    check_conversion(RAIA_BF16);
    check_conversion(RAIA_F16);
    st_made_end();
}

TEST_MAIN
