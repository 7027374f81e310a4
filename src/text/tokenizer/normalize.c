/* normalize.c: the steps that rewrite a text before it is cut. Each reads valid UTF-8 and writes valid UTF-8, and stops early
 * when the encoder has no steps left: its status says so. */
#include <string.h>

#include <utf8proc.h>

#include "base/sort.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to normalise a text");
}

/* ---- the four forms ------------------------------------------------------------------------------------------ */

#define MOST_PARTS 32 /* of one character; U+FDFA has 18 */

static const utf8proc_option_t forms[] = {
    [MICA__STEP_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [MICA__STEP_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [MICA__STEP_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [MICA__STEP_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

static bool reserve_codes(mica__encoder *encoder, size_t count)
{
    if (count <= encoder->code_room)
        return true;
    int32_t *codes = mica__realloc(encoder->codes, (count + count / 2) * sizeof *codes);
    if (codes == NULL)
        return false;
    encoder->codes = codes;
    encoder->code_room = count + count / 2;
    return true;
}

static int class_of(int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

static int compare_classes(const void *a, const void *b)
{
    const int32_t *left = a, *right = b;
    return class_of(*left) - class_of(*right);
}

/* The characters that a text is made of, in the encoder's codes. */
static mica_status decompose(mica__encoder *encoder, utf8proc_option_t form, const char *text, size_t length,
                             size_t *out_count)
{
    size_t count = 0;
    int boundclass = 0;
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(encoder, 2); i += bytes) {
        const uint32_t code = mica__char_at(text + i, &bytes);
        if (!reserve_codes(encoder, count + MOST_PARTS))
            return no_memory();
        const utf8proc_ssize_t parts = utf8proc_decompose_char((utf8proc_int32_t)code, encoder->codes + count,
                                                               MOST_PARTS, form, &boundclass);
        if (parts < 0 || parts > MOST_PARTS)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "a text cannot be normalised: %s",
                              utf8proc_errmsg(parts));
        count += (size_t)parts;
    }
    *out_count = count;
    return encoder->status;
}

/* Marks behind a character in the order of their classes. Sorted, since a stranger chooses how many there are. */
static mica_status order_marks(mica__encoder *encoder, size_t count)
{
    int32_t *codes = encoder->codes;
    mica_status status = MICA_OK;
    for (size_t i = 0, end; i < count && status == MICA_OK; i = end) {
        for (end = i; end < count && mica__encoder_spend(encoder, 1) && class_of(codes[end]) != 0;)
            end++;
        status = encoder->status;
        if (end - i > 1 && status == MICA_OK)
            status = mica__sort(codes + i, end - i, sizeof *codes, compare_classes);
        end = end == i ? i + 1 : end;
    }
    return status;
}

/* Below U+10000 only marks and the vowels and finals of Hangul join with what stands before them: compositions of
 * characters that exist are fixed for ever. */
static bool may_join(int32_t code, const utf8proc_property_t *property)
{
    return code >= 0x10000 || code >> 8 == 0x11 || property->category == UTF8PROC_CATEGORY_MN ||
           property->category == UTF8PROC_CATEGORY_MC;
}

/* What the second makes of the first when it stands behind it: 0 = they stay two. */
static int32_t join(int32_t first, int32_t second, utf8proc_option_t form)
{
    utf8proc_int32_t pair[2] = {first, second};
    return utf8proc_normalize_utf32(pair, 2, form) == 1 ? pair[0] : 0;
}

/* Joins what can be joined with the last character of class 0 before it, unless one of its own class or of none stands
 * between. utf8proc would do it for the whole text at once, which nobody could stop. */
static void compose(mica__encoder *encoder, utf8proc_option_t form, size_t *inout_count)
{
    int32_t *codes = encoder->codes, *base = NULL;
    int highest = -1; /* class of what stands behind the base */
    size_t kept = 0;
    for (size_t i = 0; i < *inout_count && mica__encoder_spend(encoder, 1); i++) {
        const utf8proc_property_t *property = utf8proc_get_property(codes[i]);
        const int class = property->combining_class;
        const bool may = base != NULL && class > highest && may_join(codes[i], property);
        const int32_t joined = may ? join(*base, codes[i], form) : 0;
        if (joined != 0) {
            *base = joined;
            continue;
        }
        if (class == 0)
            base = codes + kept;
        highest = class == 0 ? -1 : class;
        codes[kept++] = codes[i];
    }
    *inout_count = kept;
}

static mica_status normalize_part(mica__encoder *encoder, utf8proc_option_t form, const char *text,
                                  size_t length, mica__bytes *out)
{
    size_t count = 0;
    mica_status status = reserve_codes(encoder, length + MOST_PARTS)
                             ? decompose(encoder, form, text, length, &count)
                             : no_memory();
    if (status == MICA_OK)
        status = order_marks(encoder, count);
    if (status == MICA_OK && (form & UTF8PROC_COMPOSE) != 0)
        compose(encoder, form, &count);
    char *bytes = (char *)encoder->codes; /* a code has 4 bytes, as UTF-8 at most 4 */
    size_t size = 0;
    for (size_t i = 0; status == MICA_OK && i < count && mica__encoder_spend(encoder, 1); i++)
        size += mica__utf8_put((uint32_t)encoder->codes[i], bytes + size);
    mica__bytes_add(out, bytes, size);
    return status == MICA_OK ? encoder->status : status;
}

/* ASCII is the same in all forms, and what stands before an ASCII character never changes with it: only the runs of other
 * characters, each with the one before, are worked on. */
static mica_status normalize_form(mica__encoder *encoder, const mica__step *step, const char *text,
                                  size_t length, mica__bytes *out)
{
    size_t at = 0;
    mica_status status = MICA_OK;
    while (at < length && status == MICA_OK) {
        size_t plain = at;
        while (plain < length && (unsigned char)text[plain] < 0x80)
            plain++;
        const size_t start = plain > at && plain < length ? plain - 1 : plain;
        mica__bytes_add(out, text + at, start - at);
        size_t end = plain;
        while (end < length && (unsigned char)text[end] >= 0x80)
            end++;
        if (end > start)
            status = normalize_part(encoder, forms[step->kind], text + start, end - start, out);
        at = end;
    }
    return status;
}

/* ---- character by character --------------------------------------------------------------------------------- */

static void put_lower(mica__bytes *out, uint32_t code)
{
    char *end = mica__bytes_grow(out, 8);
    if (end != NULL)
        out->size += mica__char_lower(code, end);
}

static void lowercase(mica__encoder *encoder, const char *text, size_t length, mica__bytes *out)
{
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(encoder, 1); i += bytes)
        put_lower(out, mica__char_at(text + i, &bytes));
}

static void strip_marks(mica__encoder *encoder, const char *text, size_t length, bool all, mica__bytes *out)
{
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(encoder, 1); i += bytes)
        if (!mica__char_is_mark(mica__char_at(text + i, &bytes), all))
            mica__bytes_add(out, text + i, bytes);
}

static void strip_blanks(mica__encoder *encoder, const mica__step *step, const char *text, size_t length,
                         mica__bytes *out)
{
    size_t start = 0, bytes = 0;
    while ((step->flags & MICA__STEP_LEFT) != 0 && start < length && mica__encoder_spend(encoder, 1) &&
           mica__char_is_space(mica__char_at(text + start, &bytes)))
        start += bytes;
    while ((step->flags & MICA__STEP_RIGHT) != 0 && length > start && mica__encoder_spend(encoder, 1)) {
        const size_t before = mica__char_before(text, length);
        if (!mica__char_is_space(mica__char_at(text + before, &bytes)))
            break;
        length = before;
    }
    mica__bytes_add(out, text + start, length - start);
}

static void squeeze(mica__encoder *encoder, const char *text, size_t length, mica__bytes *out)
{
    bool blank = false;
    for (size_t i = 0; i < length && mica__encoder_spend(encoder, 1); i++) {
        if (text[i] == ' ') {
            blank = out->size != 0;
            continue;
        }
        if (blank)
            mica__bytes_add(out, " ", 1);
        blank = false;
        mica__bytes_add(out, text + i, 1);
    }
}

/* What sentencepiece's rule "nmt" drops, and what it makes a blank. */
static void nmt(mica__encoder *encoder, const char *text, size_t length, mica__bytes *out)
{
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(encoder, 1); i += bytes) {
        const uint32_t code = mica__char_at(text + i, &bytes);
        if ((code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f ||
            code == 0x8f || code == 0x9f)
            continue;
        const bool blank = code == 9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                           (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                           code == 0x2581 || code == 0xfeff || code == 0xfffd;
        mica__bytes_add(out, blank ? " " : text + i, blank ? 1 : bytes);
    }
}

static mica_status replace(mica__encoder *encoder, const mica__step *step, const char *text, size_t length,
                           mica__bytes *out)
{
    size_t at = 0, from = 0;
    while (at <= length) {
        size_t start = 0, end = 0;
        bool found = false;
        if (step->regex != NULL) {
            const mica_status status =
                mica__encoder_find(encoder, step->regex, text, length, from, &found, &start, &end);
            if (status != MICA_OK)
                return status;
        } else if (step->text.length != 0) {
            const char *place = mica__text_find(text, length, from, step->text);
            found = place != NULL;
            start = found ? (size_t)(place - text) : 0;
            end = start + (size_t)step->text.length;
        }
        if (!found || out->failed || !mica__encoder_spend(encoder, 2))
            break;
        mica__bytes_add(out, text + at, start - at);
        mica__bytes_add(out, step->with.data, (size_t)step->with.length);
        at = end;
        from = end;
        if (start == end) { /* an empty match: one character on */
            if (from == length)
                break;
            size_t bytes = 0;
            mica__char_at(text + from, &bytes);
            from += bytes;
        }
    }
    mica__bytes_add(out, text + at, length - at);
    return MICA_OK;
}

/* ---- BERT -------------------------------------------------------------------------------------------------------- */

static void clean(mica__encoder *encoder, const mica__step *step, const char *text, size_t length,
                  mica__bytes *out)
{
    const bool wash = (step->flags & MICA__STEP_CLEAN) != 0,
               chinese = (step->flags & MICA__STEP_CHINESE) != 0;
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(encoder, 1); i += bytes) {
        const uint32_t code = mica__char_at(text + i, &bytes);
        const bool control = mica__char_is_other(code) && code != '\t' && code != '\n' && code != '\r';
        if (wash && (code == 0 || code == 0xfffd || control))
            continue;
        if (wash && mica__char_is_space(code)) {
            mica__bytes_add(out, " ", 1);
        } else if (chinese && mica__char_is_cjk(code)) {
            mica__bytes_add(out, " ", 1);
            mica__bytes_add(out, text + i, bytes);
            mica__bytes_add(out, " ", 1);
        } else {
            mica__bytes_add(out, text + i, bytes);
        }
    }
}

/* Cleaned, decomposed and without accents, in lower case: whichever of them the step has. */
static mica_status normalize_bert(mica__encoder *encoder, const mica__step *step, const char *text,
                                  size_t length, mica__bytes *out)
{
    mica__bytes part[2] = {{0}};
    mica_status status = MICA_OK;
    clean(encoder, step, text, length, &part[0]);
    const mica__bytes *last = &part[0];
    if ((step->flags & MICA__STEP_ACCENTS) != 0 && !part[0].failed) {
        status = normalize_form(encoder, &(mica__step){.kind = MICA__STEP_NFD}, part[0].data, part[0].size,
                                &part[1]);
        part[0].size = 0;
        if (status == MICA_OK && !part[1].failed)
            strip_marks(encoder, part[1].data, part[1].size, false, &part[0]);
    }
    if (status == MICA_OK && !last->failed) {
        if ((step->flags & MICA__STEP_LOWER) != 0)
            lowercase(encoder, last->data, last->size, out);
        else
            mica__bytes_add(out, last->data, last->size);
    }
    for (size_t i = 0; i < 2; i++)
        if (status == MICA_OK && part[i].failed)
            status = mica__bytes_fail(&part[i]);
    mica__free(part[0].data);
    mica__free(part[1].data);
    return status;
}

/* ---- all of them -------------------------------------------------------------------------------------------------- */

static mica_status run_step(mica__encoder *encoder, const mica__step *step, const char *text, size_t length,
                            mica__text_place place, mica__bytes *out)
{
    switch (step->kind) {
    case MICA__STEP_NFC:
    case MICA__STEP_NFD:
    case MICA__STEP_NFKC:
    case MICA__STEP_NFKD: return normalize_form(encoder, step, text, length, out);
    case MICA__STEP_LOWERCASE: lowercase(encoder, text, length, out); break;
    case MICA__STEP_STRIP_ACCENTS: strip_marks(encoder, text, length, true, out); break;
    case MICA__STEP_STRIP: strip_blanks(encoder, step, text, length, out); break;
    case MICA__STEP_REPLACE: return replace(encoder, step, text, length, out);
    case MICA__STEP_PREPEND:
        if (length != 0 && place.fresh)
            mica__bytes_add(out, step->text.data, (size_t)step->text.length);
        mica__bytes_add(out, text, length);
        break;
    case MICA__STEP_BERT: return normalize_bert(encoder, step, text, length, out);
    case MICA__STEP_NMT: nmt(encoder, text, length, out); break;
    case MICA__STEP_CHARSMAP: return mica__normalize_charsmap(encoder, step, text, length, out);
    case MICA__STEP_SQUEEZE: squeeze(encoder, text, length, out); break;
    default: mica__bytes_add(out, text, length); break;
    }
    return MICA_OK;
}

mica_status mica__normalize(mica__encoder *encoder, const char *text, size_t length, mica__text_place place,
                            const char **out_text, size_t *out_length)
{
    const mica__steps *steps = &encoder->tokenizer->normalizer;
    const size_t original = length;
    for (uint32_t i = 0; i < steps->count; i++) {
        mica__bytes *out = &encoder->normal[i % 2];
        mica__bytes_restart(out, original);
        if (!mica__encoder_spend(encoder, length / 2 + 2))
            return encoder->status;
        const mica_status status = run_step(encoder, &steps->step[i], text, length, place, out);
        if (status != MICA_OK || out->failed)
            return status != MICA_OK ? status : mica__bytes_fail(out);
        if (!mica__encoder_spend(encoder, out->size / 2))
            return encoder->status;
        text = out->data != NULL ? out->data : "";
        length = out->size;
    }
    *out_text = text;
    *out_length = length;
    return MICA_OK;
}
