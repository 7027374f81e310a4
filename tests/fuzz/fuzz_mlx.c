/* fuzz_mlx.c: any text as the config.json or, if it begins with '#', as the index of a fixed model. */
#include "fuzz_archive.h"

#include "format/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* a: 4 bits in groups of 32, or 8 in groups of 16, of 64 values or 32; b: bytes for scales; c: no words. */
static const char header[] = "{\"a.weight\":{\"dtype\":\"U32\",\"shape\":[2,8],\"data_offsets\":[0,64]},"
                             "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[64,72]},"
                             "\"a.biases\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[72,80]},"
                             "\"b.weight\":{\"dtype\":\"U32\",\"shape\":[1,2,8],\"data_offsets\":[80,144]},"
                             "\"b.scales\":{\"dtype\":\"U8\",\"shape\":[1,2,2],\"data_offsets\":[144,148]},"
                             "\"c.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[148,160]}}";

static const uint8_t *input;
static size_t input_size;

static mica_status join(mica__archive *archive)
{
    mica_status status = mica__safetensors_read(archive);
    fuzz_require(status == MICA_OK);
    archive->config = mica__archive_text(archive, input, input_size);
    archive->config_length = input_size;
    return mica__mlx_join(archive);
}

static mica_status check_index(mica__archive *archive)
{
    mica__shards *shards = NULL;
    mica__file *index = NULL;
    mica_status status = mica__safetensors_read(archive);
    fuzz_require(status == MICA_OK);
    fuzz_require(mica__file_from_bytes("index", input, input_size, &index) == MICA_OK);
    status = mica__shards_parse(index, &shards);
    fuzz_require((status == MICA_OK) == (shards != NULL));
    if (status == MICA_OK && mica__shards_count(shards) == 1)
        status = mica__shards_check(shards, archive);
    for (uint32_t i = 0; shards != NULL && i < mica__shards_count(shards); i++)
        fuzz_require(strpbrk(mica__shards_file(shards, i), "/\\") == NULL &&
                     mica__shards_file(shards, i)[0] != '.');
    mica__shards_release(shards);
    mica__file_close(index);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t file[8 + sizeof header - 1 + 160] = {(sizeof header - 1) & 0xff, (sizeof header - 1) >> 8};
    const int index = size > 0 && data[0] == '#';
    memcpy(file + 8, header, sizeof header - 1);
    input = data + index;
    input_size = size - (size_t)index;
    fuzz_read(file, sizeof file, index ? check_index : join);
    return 0;
}
