/* charsmap.c: sentencepiece's precompiled map of characters: a double array that finds the texts to replace, and
 * the texts to put in their place.
 *
 * The map: 4 bytes with the size of the array, the array of 32-bit units, then texts that each end with NUL; all little
 * endian. It comes from a file: every index is checked at every step. */
#include <string.h>

#include <utf8proc.h>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

/* Longest text that tokenizer.json's reader of maps looks up as a whole: its clusters are shorter than this. */
#define CLUSTER_BYTES 6

/* No text that a map replaces is longer; one that leads round in a circle would be walked to the end of the text. */
#define LONGEST 256

static uint32_t word_at(const char *bytes)
{
    const unsigned char *at = (const unsigned char *)bytes;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

typedef struct charsmap {
    const char *units; /* [count * 4] */
    uint32_t count;
    const char *texts; /* [size] */
    size_t size;
} charsmap;

mica_status mica__charsmap_check(const char *map, size_t length)
{
    if (length < 4 || word_at(map) > length - 4 || word_at(map) % 4 != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the tokenizer's precompiled_charsmap has %zu bytes, which do not hold its array",
                          length);
    if (length == 4 + (size_t)word_at(map) || map[length - 1] != '\0')
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the tokenizer's precompiled_charsmap does not end with NUL");
    return MICA_OK;
}

/* Looks `text` up; `longest` chooses among the entries that it begins with. The replacement, NULL if there is none. */
static const char *look_up(const charsmap *map, const char *text, size_t length, bool longest,
                           size_t *out_taken)
{
    const char *found = NULL;
    uint32_t node = 0;
    if (map->count == 0)
        return NULL;
    uint32_t unit = word_at(map->units);
    node ^= (unit >> 10) << ((unit & 0x200u) >> 6);
    for (size_t i = 0; i < length && text[i] != '\0'; i++) {
        node ^= (unsigned char)text[i];
        if (node >= map->count)
            break;
        unit = word_at(map->units + (size_t)node * 4);
        if ((unit & 0x800000ffu) != (unsigned char)text[i])
            break;
        node ^= (unit >> 10) << ((unit & 0x200u) >> 6);
        if (node >= map->count)
            break;
        if ((unit >> 8 & 1) == 0)
            continue;
        const uint32_t place = word_at(map->units + (size_t)node * 4) & 0x7fffffffu;
        if (place >= map->size)
            break;
        found = map->texts + place;
        *out_taken = i + 1;
        if (!longest)
            break;
    }
    return found;
}

/* Bytes of the cluster (what a reader sees as one character) at the beginning of a text. */
static size_t cluster_length(const char *text, size_t length)
{
    size_t bytes = 0, at = 0;
    utf8proc_int32_t state = 0;
    uint32_t last = mica__char_at(text, &bytes);
    for (at = bytes; at < length; at += bytes) {
        const uint32_t code = mica__char_at(text + at, &bytes);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)code, &state))
            break;
        last = code;
    }
    return at;
}

static size_t replace_cluster(const charsmap *map, const char *text, size_t length, mica__bytes *out)
{
    const size_t cluster = cluster_length(text, length);
    size_t taken = 0;
    const char *with = cluster < CLUSTER_BYTES ? look_up(map, text, cluster, false, &taken) : NULL;
    if (with != NULL) {
        mica__bytes_add(out, with, strlen(with));
        return cluster;
    }
    for (size_t i = 0, bytes; i < cluster; i += bytes) {
        mica__char_at(text + i, &bytes);
        with = look_up(map, text + i, bytes, false, &taken);
        mica__bytes_add(out, with != NULL ? with : text + i, with != NULL ? strlen(with) : bytes);
    }
    return cluster;
}

mica_status mica__normalize_charsmap(mica__encoder *encoder, const mica__step *step, const char *text,
                                     size_t length, mica__bytes *out)
{
    const uint32_t bytes = word_at(step->text.data);
    const charsmap map = {step->text.data + 4, bytes / 4, step->text.data + 4 + bytes,
                          (size_t)step->text.length - 4 - bytes};
    for (size_t i = 0; i < length && !out->failed && mica__encoder_spend(encoder, 4);) {
        size_t taken = 0;
        if ((step->flags & MICA__STEP_GRAPHEMES) != 0) {
            i += replace_cluster(&map, text + i, length - i, out);
            continue;
        }
        const char *with = look_up(&map, text + i, length - i < LONGEST ? length - i : LONGEST, true, &taken);
        if (with == NULL)
            mica__char_at(text + i, &taken);
        mica__encoder_spend(encoder, taken);
        mica__bytes_add(out, with != NULL ? with : text + i, with != NULL ? strlen(with) : taken);
        i += taken;
    }
    return MICA_OK;
}
