/* fuzz_rewrite.c: files that an input changed, written anew: quantised, and converted to a folder and back. What was written can be
 * opened; what was refused leaves nothing behind, on the disk or in memory. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz_checkpoint.h"
#include "mica/format.h"
#include "mica/host.h"
#include "mica/weights.h"
#include "mica/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How far inputs came. */
static struct {
    uint64_t all, quantized, converted, back;
} counts;

__attribute__((destructor)) static void print_counts(void)
{
    if (counts.all != 0)
        fprintf(stderr,
                "fuzz_rewrite: %llu executions; %.1f %% quantised, %.1f %% converted, %.1f %% and back\n",
                (unsigned long long)counts.all, 100.0 * (double)counts.quantized / (double)counts.all,
                100.0 * (double)counts.converted / (double)counts.all,
                100.0 * (double)counts.back / (double)counts.all);
}

static char folder[64];

/* Removes what is in a folder, one level deep. */
static void empty(const char *path)
{
    DIR *open_folder = opendir(path);
    struct dirent *entry;
    char name[400];
    while (open_folder != NULL && (entry = readdir(open_folder)) != NULL) {
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlink(name) != 0) {
            empty(name);
            fuzz_require(rmdir(name) == 0);
        }
    }
    if (open_folder != NULL)
        closedir(open_folder);
}

static uint32_t count_entries(const char *path)
{
    DIR *open_folder = opendir(path);
    uint32_t count = 0;
    while (open_folder != NULL && readdir(open_folder) != NULL)
        count++;
    if (open_folder != NULL)
        closedir(open_folder);
    return count;
}

static const char *in_folder(char *path, size_t size, const char *name)
{
    (void)snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* True for OK. A failure says what it is, and leaves `entries` in the folder as there were. */
static bool went(mica_status status, const char *call, uint32_t entries)
{
    const char *sentence = mica_status_message();
    if (status == MICA_OK)
        return true;
    fuzz_require(status != MICA_ERR_INTERNAL);
    fuzz_require(strncmp(sentence, call, strlen(call)) == 0 && sentence[strlen(call)] == ':');
    fuzz_require(count_entries(folder) == entries);
    return false;
}

/* What mica wrote, mica opens. */
static void open_again(const char *path)
{
    mica_weights *weights = NULL;
    fuzz_require(mica_weights_open(path, NULL, &weights) == MICA_OK);
    mica_weights_release(weights);
}

static void quantize(fuzz_input *in, const char *source)
{
    static const char *const types[] = {"q4_0", "q8_0", "q4_k_m", "f16", "q2_k", "bf16", "q6_k", "mxfp4"};
    const mica_quantize_options options = {
        .type = types[fuzz_below(in, 8)], .threads = 1, .pure = fuzz_below(in, 2)};
    char path[128];
    const uint32_t entries = count_entries(folder);
    if (!went(mica_quantize(source, in_folder(path, sizeof path, "q.gguf"), &options, NULL), "quantize",
              entries))
        return;
    counts.quantized++;
    open_again(path);
}

static void convert(fuzz_input *in, const char *source)
{
    static const mica_dtype types[] = {MICA_DTYPE_NONE, MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};
    const mica_convert_options options = {.type = types[fuzz_below(in, 4)], .threads = 1};
    char out[128], back[128];
    uint32_t entries = count_entries(folder);
    if (!went(mica_convert(source, in_folder(out, sizeof out, "hf"), &options), "convert", entries))
        return;
    counts.converted++;
    open_again(out);
    entries = count_entries(folder);
    if (!went(mica_convert(out, in_folder(back, sizeof back, "back.gguf"), &options), "convert", entries))
        return;
    counts.back++;
    open_again(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_checkpoint checkpoint;
    const mica_limits limits = {.steps = 30000000, .layers = 64, .vocabulary = 4096};
    fuzz_input in = {data, size};
    mica_work *work = NULL;
    char source[128];
    counts.all++;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/dev/shm/mica_rewrite_%ld", (long)getpid());
        (void)mkdir(folder, 0700);
    }
    fuzz_checkpoint_make(&checkpoint, &in);
    FILE *file = fopen(in_folder(source, sizeof source, "source.gguf"), "wb");
    fuzz_require(file != NULL && fwrite(checkpoint.bytes, 1, checkpoint.size, file) == checkpoint.size);
    fclose(file);
    free(checkpoint.bytes);
    fuzz_require(mica_work_create(&limits, &work) == MICA_OK);
    mica_work_use(work);
    if (fuzz_byte(&in) % 2 == 0)
        quantize(&in, source);
    else
        convert(&in, source);
    mica_work_use(NULL);
    mica_work_release(work);
    empty(folder);
    fuzz_require(mica_host_bytes() == 0);
    return 0;
}

__attribute__((destructor)) static void remove_folder(void)
{
    if (folder[0] != '\0')
        (void)rmdir(folder);
}
