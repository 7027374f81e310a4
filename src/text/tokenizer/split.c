/* split.c: the steps that cut a text into pieces. The model sees each piece alone. */
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to split a text");
}

/* ---- cutting ---------------------------------------------------------------------------------------------------- */

/* Collects what a step finds in one piece, in order, matches and what is between them. */
typedef struct cutter {
    mica__spans *out;
    mica__behaviour behaviour;
    bool invert;
    bool has_last, last_match; /* of the part before */
    size_t start, end;         /* the part that is not written yet */
} cutter;

static void write_part(cutter *c)
{
    if (c->has_last)
        mica__spans_add(c->out, c->start, c->end);
    c->has_last = false;
}

static void cut(cutter *c, size_t start, size_t end, bool match)
{
    match = match != c->invert;
    const bool joins = c->behaviour == MICA__BEHAVIOUR_CONTIGUOUS ? match == c->last_match
                       : c->behaviour == MICA__BEHAVIOUR_PREVIOUS ? match && !c->last_match
                       : c->behaviour == MICA__BEHAVIOUR_NEXT     ? c->last_match && !match
                                                                  : false;
    if (!joins || !c->has_last) {
        write_part(c);
        c->start = start;
    }
    c->end = end;
    c->has_last = !(match && c->behaviour == MICA__BEHAVIOUR_REMOVED);
    c->last_match = match;
}

#define PIECE 4096 /* bytes between two looks at the limits */

typedef bool (*char_class)(uint32_t code);

static void cut_class(mica__encoder *encoder, cutter *c, char_class is_member, const char *text,
                      mica__span piece)
{
    size_t gap = piece.start, asked = 0;
    for (size_t i = piece.start, bytes; i < piece.end; i += bytes) {
        if (i >= asked) {
            const size_t more = piece.end - i < PIECE ? piece.end - i : PIECE;
            if (!mica__encoder_spend(encoder, more))
                break;
            asked = i + more;
        }
        if (!is_member(mica__char_at(text + i, &bytes)))
            continue;
        if (gap < i)
            cut(c, gap, i, false);
        cut(c, i, i + bytes, true);
        gap = i + bytes;
    }
    if (gap < piece.end)
        cut(c, gap, piece.end, false);
}

static void cut_text(mica__encoder *encoder, cutter *c, mica_string what, const char *text, mica__span piece)
{
    size_t gap = piece.start;
    const char *found = NULL;
    mica__encoder_spend(encoder, (piece.end - piece.start) / 8);
    while (what.length != 0 && mica__encoder_spend(encoder, 2) &&
           (found = mica__text_find(text, piece.end, gap, what)) != NULL) {
        const size_t start = (size_t)(found - text);
        if (gap < start)
            cut(c, gap, start, false);
        gap = start + (size_t)what.length;
        cut(c, start, gap, true);
    }
    if (gap < piece.end)
        cut(c, gap, piece.end, false);
}

/* A piece is a text of its own: nothing is seen behind or before it. */
static mica_status cut_regex(cutter *c, mica__encoder *encoder, const mica__regex *regex, const char *text,
                             mica__span piece)
{
    const char *base = text + piece.start;
    const size_t length = piece.end - piece.start;
    size_t gap = 0, from = 0;
    while (from <= length) {
        bool found = false;
        size_t start = 0, end = 0, bytes = 1;
        const mica_status status =
            mica__encoder_find(encoder, regex, base, length, from, &found, &start, &end);
        if (status != MICA_OK)
            return status;
        if (!found)
            break;
        from = end;
        if (start == end) {
            if (end < length)
                mica__char_at(base + end, &bytes);
            from += bytes;
        }
        if (gap < start)
            cut(c, piece.start + gap, piece.start + start, false);
        cut(c, piece.start + start, piece.start + end, true);
        gap = end;
    }
    if (gap < length)
        cut(c, piece.start + gap, piece.end, false);
    return MICA_OK;
}

static mica_status cut_piece(mica__encoder *encoder, const mica__step *step, const char *text,
                             mica__span piece, mica__spans *out)
{
    cutter c = {.out = out, .behaviour = step->behaviour, .invert = (step->flags & MICA__STEP_INVERT) != 0};
    mica_status status = MICA_OK;
    switch (step->kind) {
    case MICA__STEP_SPLIT_REGEX: status = cut_regex(&c, encoder, step->regex, text, piece); break;
    case MICA__STEP_SPLIT_TEXT: cut_text(encoder, &c, step->text, text, piece); break;
    case MICA__STEP_SPLIT_SPACE: cut_class(encoder, &c, mica__char_is_space, text, piece); break;
    case MICA__STEP_SPLIT_NUMBER: cut_class(encoder, &c, mica__char_is_number, text, piece); break;
    default: cut_class(encoder, &c, mica__char_is_punctuation, text, piece); break;
    }
    write_part(&c);
    return status == MICA_OK ? encoder->status : status;
}

/* ---- rewriting ---------------------------------------------------------------------------------------------------- */

static bool begins(const char *text, size_t length, mica_string with)
{
    return with.length != 0 && length >= with.length && memcmp(text, with.data, (size_t)with.length) == 0;
}

static void write_metaspace(const mica__step *step, const char *text, size_t length, bool first, bool fresh,
                            mica__bytes *out)
{
    const bool wanted =
        (step->flags & MICA__STEP_ALWAYS) != 0 || ((step->flags & MICA__STEP_FIRST) != 0 && first);
    if (wanted && fresh && !begins(text, length, step->text) && text[0] != ' ')
        mica__bytes_add(out, step->text.data, (size_t)step->text.length);
    for (size_t i = 0; i < length; i++)
        mica__bytes_add(out, text[i] == ' ' ? step->text.data : text + i,
                        text[i] == ' ' ? (size_t)step->text.length : 1);
}

static void write_letters(const char *text, size_t length, mica__bytes *out)
{
    for (size_t i = 0; i < length; i++) {
        char *end = mica__bytes_grow(out, 4);
        if (end != NULL)
            out->size += mica__utf8_put(mica__byte_letter((unsigned char)text[i]), end);
    }
}

static void rewrite_piece(const mica__step *step, const char *text, mica__span piece, mica__text_place place,
                          mica__bytes *out)
{
    const char *base = text + piece.start;
    const size_t length = piece.end - piece.start;
    const bool fresh = place.fresh || piece.start != 0;
    if (step->kind == MICA__STEP_METASPACE) {
        write_metaspace(step, base, length, place.first && piece.start == 0, fresh, out);
    } else if (step->kind == MICA__STEP_BYTES) {
        write_letters(base, length, out);
    } else {
        if (fresh && base[0] != ' ')
            mica__bytes_add(out, " ", 1);
        mica__bytes_add(out, base, length);
    }
}

static bool rewrites(const mica__step *step)
{
    return step->kind == MICA__STEP_METASPACE || step->kind == MICA__STEP_BLANK ||
           step->kind == MICA__STEP_BYTES;
}

mica_status mica__split(mica__encoder *encoder, const char *text, size_t length, mica__text_place place,
                        const char **out_text, const mica__spans **out_spans)
{
    const mica__steps *steps = &encoder->tokenizer->splitter;
    mica__spans *from = &encoder->spans[0], *to = &encoder->spans[1];
    mica__bytes *other = &encoder->split[0];
    from->count = 0;
    mica__spans_add(from, 0, length);
    for (uint32_t i = 0; i < steps->count; i++) {
        const mica__step *step = &steps->step[i];
        mica_status status = MICA_OK;
        to->count = 0;
        mica__bytes_restart(other, length);
        for (size_t k = 0; k < from->count && status == MICA_OK && mica__encoder_spend(encoder, 2); k++) {
            const size_t start = other->size;
            if (!rewrites(step)) {
                status = cut_piece(encoder, step, text, from->data[k], to);
                continue;
            }
            rewrite_piece(step, text, from->data[k], place, other);
            mica__spans_add(to, start, other->size);
        }
        mica__encoder_spend(encoder, other->size / 2);
        if (status == MICA_OK)
            status = encoder->status;
        if (status != MICA_OK || other->failed)
            return status != MICA_OK ? status : mica__bytes_fail(other);
        if (to->failed || from->failed)
            return no_memory();
        if (rewrites(step)) {
            text = other->data != NULL ? other->data : "";
            other = other == &encoder->split[0] ? &encoder->split[1] : &encoder->split[0];
        }
        mica__spans *swap = from;
        from = to;
        to = swap;
    }
    *out_text = text;
    *out_spans = from;
    return from->failed ? no_memory() : MICA_OK;
}
