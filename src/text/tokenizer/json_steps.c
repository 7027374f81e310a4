/* json_steps.c: the normaliser, the pre-tokenizer and the decoder of a tokenizer.json. Each is an object with a type,
 * or a Sequence of them. */
#include <string.h>

#include "text/tokenizer/json.h"

#define MOST_TEXT 256 /* bytes of a text that is looked for or put in */

typedef struct reader {
    mica_tokenizer *t;
    const mica__json *json;
    const mica__json_node *node; /* the step that is read */
    mica__steps *steps;
} reader;

typedef mica_status (*read_fn)(reader *r);

typedef struct step_type {
    const char *name;
    read_fn read;
} step_type;

static mica_status add(reader *r, mica__step_kind kind, mica__step **out_step)
{
    *out_step = mica__steps_add(r->steps, kind);
    return *out_step != NULL
               ? MICA_OK
               : mica__fail(MICA_ERR_UNSUPPORTED, "a tokenizer with more than %d steps", MICA__MOST_STEPS);
}

/* A member as text that lives with the tokenizer. */
static mica_status keep_text(reader *r, const mica__json_node *object, const char *key, mica_string *out_text)
{
    mica_string text = {0};
    const mica_status status = mica__tokenizer_json_text(r->json, object, key, &text);
    if (status != MICA_OK)
        return status;
    if (text.length > MOST_TEXT)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\" of the tokenizer has %llu bytes, at most %d are taken", key,
                          (unsigned long long)text.length, MOST_TEXT);
    *out_text = mica__tokenizer_keep(r->t, text.data, (size_t)text.length);
    return out_text->data != NULL ? MICA_OK : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
}

static mica_status flag_of(reader *r, const char *key, bool otherwise, uint32_t flag, uint32_t *flags)
{
    const mica_status status = mica__tokenizer_json_bool(r->json, r->node, key, &otherwise);
    *flags |= otherwise ? flag : 0;
    return status;
}

/* The type of an object, looked up in a table; a Sequence is read item by item. */
static mica_status read_types(reader *r, const mica__json_node *node, const char *what, const char *list_key,
                              const step_type *types, size_t count)
{
    mica_string name = {0};
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    mica_status status = mica__spend(8 + (uint64_t)node->child_count * 4);
    if (status == MICA_OK)
        status = mica__tokenizer_json_text(r->json, node, "type", &name);
    if (status != MICA_OK)
        return status;
    if (strcmp(name.data, "Sequence") == 0) {
        const mica__json_node *list = NULL;
        status = mica__json_get_container(r->json, node, list_key, MICA__JSON_ARRAY, &list);
        const mica__json_node *item = status == MICA_OK ? mica__json_first(list) : NULL;
        for (; item != NULL && status == MICA_OK; item = mica__json_next(r->json, item))
            status = read_types(r, item, what, list_key, types, count);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(name.data, types[i].name) == 0) {
            r->node = node;
            return types[i].read(r);
        }
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "the tokenizer has a %s of type \"%.60s\", which mica does not know", what, name.data);
}

/* ---- normalisers ---------------------------------------------------------------------------------------------------- */

static mica_status read_form(reader *r, mica__step_kind kind)
{
    mica__step *step = NULL;
    return add(r, kind, &step);
}

static mica_status read_nfc(reader *r)
{
    return read_form(r, MICA__STEP_NFC);
}

static mica_status read_nfd(reader *r)
{
    return read_form(r, MICA__STEP_NFD);
}

static mica_status read_nfkc(reader *r)
{
    return read_form(r, MICA__STEP_NFKC);
}

static mica_status read_nfkd(reader *r)
{
    return read_form(r, MICA__STEP_NFKD);
}

static mica_status read_lowercase(reader *r)
{
    return read_form(r, MICA__STEP_LOWERCASE);
}

static mica_status read_accents(reader *r)
{
    return read_form(r, MICA__STEP_STRIP_ACCENTS);
}

static mica_status read_nmt(reader *r)
{
    return read_form(r, MICA__STEP_NMT);
}

static mica_status read_strip(reader *r)
{
    mica__step *step = NULL;
    mica_status status = add(r, MICA__STEP_STRIP, &step);
    if (status == MICA_OK)
        status = flag_of(r, "strip_left", true, MICA__STEP_LEFT, &step->flags);
    return status == MICA_OK ? flag_of(r, "strip_right", true, MICA__STEP_RIGHT, &step->flags) : status;
}

/* {"String": "..."} or {"Regex": "..."}, or a plain text. */
static mica_status read_pattern(reader *r, mica__step_kind regex_kind, mica__step_kind text_kind,
                                mica__step **out_step)
{
    const mica__json_node *pattern = mica__json_get(r->json, r->node, "pattern");
    const mica__json_node *regex = mica__json_get(r->json, pattern, "Regex");
    *out_step = NULL;
    if (regex != NULL && regex->type == MICA__JSON_STRING)
        return mica__steps_add_regex(r->steps, regex_kind, regex->string.data, regex->string.length,
                                     out_step);
    if (pattern == NULL ||
        (pattern->type != MICA__JSON_STRING && mica__json_get(r->json, pattern, "String") == NULL))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "a pattern of the tokenizer is neither \"String\" nor \"Regex\"");
    const mica_status status = add(r, text_kind, out_step);
    if (status != MICA_OK)
        return status;
    return pattern->type == MICA__JSON_STRING ? keep_text(r, r->node, "pattern", &(*out_step)->text)
                                              : keep_text(r, pattern, "String", &(*out_step)->text);
}

static mica_status read_replace(reader *r)
{
    mica__step *step = NULL;
    const mica_status status = read_pattern(r, MICA__STEP_REPLACE, MICA__STEP_REPLACE, &step);
    return status == MICA_OK ? keep_text(r, r->node, "content", &step->with) : status;
}

static mica_status read_prepend(reader *r)
{
    mica__step *step = NULL;
    const mica_status status = add(r, MICA__STEP_PREPEND, &step);
    return status == MICA_OK ? keep_text(r, r->node, "prepend", &step->text) : status;
}

static mica_status read_bert(reader *r)
{
    mica__step *step = NULL;
    mica_status status = add(r, MICA__STEP_BERT, &step);
    if (status == MICA_OK)
        status = flag_of(r, "clean_text", true, MICA__STEP_CLEAN, &step->flags);
    if (status == MICA_OK)
        status = flag_of(r, "handle_chinese_chars", true, MICA__STEP_CHINESE, &step->flags);
    if (status == MICA_OK)
        status = flag_of(r, "lowercase", true, MICA__STEP_LOWER, &step->flags);
    if (status == MICA_OK) /* null: as lowercase */
        status = flag_of(r, "strip_accents", (step->flags & MICA__STEP_LOWER) != 0, MICA__STEP_ACCENTS,
                         &step->flags);
    return status;
}

static int base64_digit(char letter)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *place = letter == '\0' ? NULL : strchr(digits, letter);
    return place == NULL ? -1 : (int)(place - digits);
}

static mica_status read_base64(mica_string text, mica__bytes *out)
{
    uint32_t bits = 0, have = 0;
    while (text.length != 0 && text.data[text.length - 1] == '=')
        text.length--;
    for (uint64_t i = 0; i < text.length; i++) {
        const int digit = base64_digit(text.data[i]);
        if (digit < 0)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"precompiled_charsmap\" of the tokenizer is no base64 at byte %llu",
                              (unsigned long long)i);
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            mica__bytes_add(out, &(char){(char)(bits >> have & 0xff)}, 1);
        }
    }
    return out->failed ? mica__bytes_fail(out) : MICA_OK;
}

static mica_status read_precompiled(reader *r)
{
    mica__step *step = NULL;
    mica_string text = {0};
    mica__bytes map = {0};
    mica_status status = mica__tokenizer_json_text(r->json, r->node, "precompiled_charsmap", &text);
    if (status != MICA_OK || text.length == 0) /* an empty map changes nothing */
        return status;
    status = read_base64(text, &map);
    if (status == MICA_OK)
        status = mica__charsmap_check(map.data, map.size);
    if (status == MICA_OK)
        status = add(r, MICA__STEP_CHARSMAP, &step);
    if (status == MICA_OK) {
        step->flags = MICA__STEP_GRAPHEMES;
        step->text = mica__tokenizer_keep(r->t, map.data, map.size);
        if (step->text.data == NULL)
            status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
    }
    mica__free(map.data);
    return status;
}

static const step_type normalizers[] = {
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Lowercase", read_lowercase},
    {"StripAccents", read_accents},
    {"Strip", read_strip},
    {"Replace", read_replace},
    {"Prepend", read_prepend},
    {"BertNormalizer", read_bert},
    {"Nmt", read_nmt},
    {"Precompiled", read_precompiled},
};

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

static mica_status read_behaviour(reader *r, mica__behaviour *out)
{
    static const struct {
        const char *name;
        mica__behaviour behaviour;
    } names[] = {
        {"isolated", MICA__BEHAVIOUR_ISOLATED},           {"removed", MICA__BEHAVIOUR_REMOVED},
        {"mergedwithprevious", MICA__BEHAVIOUR_PREVIOUS}, {"mergedwithnext", MICA__BEHAVIOUR_NEXT},
        {"contiguous", MICA__BEHAVIOUR_CONTIGUOUS},
    };
    mica_string text = {0};
    char plain[32] = "";
    const mica_status status = mica__tokenizer_json_text(r->json, r->node, "behavior", &text);
    if (status != MICA_OK || text.length == 0)
        return status;
    for (size_t i = 0, k = 0; i < text.length && k + 1 < sizeof plain;
         i++) /* MergedWithNext or merged_with_next */
        if (text.data[i] != '_')
            plain[k++] =
                (char)(text.data[i] >= 'A' && text.data[i] <= 'Z' ? text.data[i] + 32 : text.data[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(plain, names[i].name) == 0) {
            *out = names[i].behaviour;
            return MICA_OK;
        }
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "the tokenizer has the behavior \"%.40s\", which mica does not know", text.data);
}

static mica_status read_split(reader *r)
{
    mica__step *step = NULL;
    mica_status status = read_pattern(r, MICA__STEP_SPLIT_REGEX, MICA__STEP_SPLIT_TEXT, &step);
    if (status == MICA_OK)
        status = flag_of(r, "invert", false, MICA__STEP_INVERT, &step->flags);
    return status == MICA_OK ? read_behaviour(r, &step->behaviour) : status;
}

static mica_status read_metaspace(reader *r)
{
    mica__step *step = NULL, *split = NULL;
    mica_string scheme = {0};
    bool prefix = true, splits = true;
    mica_status status = add(r, MICA__STEP_METASPACE, &step);
    if (status == MICA_OK)
        status = keep_text(r, r->node, "replacement", &step->text);
    if (status == MICA_OK)
        status = mica__tokenizer_json_text(r->json, r->node, "prepend_scheme", &scheme);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(r->json, r->node, "add_prefix_space", &prefix);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(r->json, r->node, "split", &splits);
    if (status != MICA_OK)
        return status;
    if (step->text.length == 0)
        step->text = (mica_string){MICA__MARK, 3};
    if (strcmp(scheme.data, "first") == 0)
        step->flags |= MICA__STEP_FIRST;
    else if (strcmp(scheme.data, "never") != 0 && prefix)
        step->flags |= MICA__STEP_ALWAYS;
    if (splits)
        status = add(r, MICA__STEP_SPLIT_TEXT, &split);
    if (splits && status == MICA_OK) {
        split->text = step->text;
        split->behaviour = MICA__BEHAVIOUR_NEXT;
    }
    return status;
}

static mica_status read_byte_level(reader *r)
{
    mica__step *step = NULL;
    bool prefix = true, regex = true;
    mica_status status = mica__tokenizer_json_bool(r->json, r->node, "add_prefix_space", &prefix);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(r->json, r->node, "use_regex", &regex);
    if (status == MICA_OK && prefix)
        status = add(r, MICA__STEP_BLANK, &step);
    if (status == MICA_OK && regex)
        status = mica__steps_add_regex(r->steps, MICA__STEP_SPLIT_REGEX, MICA__GPT2_PATTERN,
                                       strlen(MICA__GPT2_PATTERN), &step);
    return status == MICA_OK ? add(r, MICA__STEP_BYTES, &step) : status;
}

static mica_status read_whitespace(reader *r)
{
    /* Here, unlike in a pattern of the file, joiners are parts of words. */
    static const char pattern[] = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";
    mica__step *step = NULL;
    const mica_status status =
        mica__steps_add_regex(r->steps, MICA__STEP_SPLIT_REGEX, pattern, sizeof pattern - 1, &step);
    if (status == MICA_OK) {
        step->flags = MICA__STEP_INVERT;
        step->behaviour = MICA__BEHAVIOUR_REMOVED;
    }
    return status;
}

static mica_status read_space_split(reader *r)
{
    mica__step *step = NULL;
    const mica_status status = add(r, MICA__STEP_SPLIT_SPACE, &step);
    if (status == MICA_OK)
        step->behaviour = MICA__BEHAVIOUR_REMOVED;
    return status;
}

static mica_status read_punctuation(reader *r)
{
    mica__step *step = NULL;
    const mica_status status = add(r, MICA__STEP_SPLIT_PUNCTUATION, &step);
    return status == MICA_OK ? read_behaviour(r, &step->behaviour) : status;
}

static mica_status read_digits(reader *r)
{
    mica__step *step = NULL;
    bool each = false;
    mica_status status = add(r, MICA__STEP_SPLIT_NUMBER, &step);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(r->json, r->node, "individual_digits", &each);
    if (status == MICA_OK)
        step->behaviour = each ? MICA__BEHAVIOUR_ISOLATED : MICA__BEHAVIOUR_CONTIGUOUS;
    return status;
}

static mica_status read_bert_split(reader *r)
{
    mica__step *step = NULL;
    const mica_status status = read_space_split(r);
    return status == MICA_OK ? add(r, MICA__STEP_SPLIT_PUNCTUATION, &step) : status;
}

static const step_type pre_tokenizers[] = {
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Metaspace", read_metaspace},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_space_split},
    {"Punctuation", read_punctuation},
    {"Digits", read_digits},
    {"BertPreTokenizer", read_bert_split},
};

mica_status mica__tokenizer_json_steps(mica_tokenizer *t, const mica__json *json)
{
    const mica__json_node *root = mica__json_root(json);
    reader r = {.t = t, .json = json, .steps = &t->normalizer};
    mica_status status = read_types(&r, mica__json_get(json, root, "normalizer"), "normalizer", "normalizers",
                                    normalizers, sizeof normalizers / sizeof normalizers[0]);
    r.steps = &t->splitter;
    return status == MICA_OK
               ? read_types(&r, mica__json_get(json, root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                            pre_tokenizers, sizeof pre_tokenizers / sizeof pre_tokenizers[0])
               : status;
}

/* ---- decoders ----------------------------------------------------------------------------------------------------- */

static mica_status decode_byte_level(reader *r)
{
    r->t->spelling.byte_level = true;
    return MICA_OK;
}

static mica_status decode_metaspace(reader *r)
{
    mica_string scheme = {0};
    bool prefix = true;
    mica_status status = mica__tokenizer_json_text(r->json, r->node, "prepend_scheme", &scheme);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(r->json, r->node, "add_prefix_space", &prefix);
    r->t->spelling.marks = true;
    r->t->spelling.lead = prefix && strcmp(status == MICA_OK ? scheme.data : "", "never") != 0;
    return status;
}

static mica_status decode_wordpiece(reader *r)
{
    mica__spelling *spelling = &r->t->spelling;
    spelling->words = spelling->tidy = spelling->lead = true;
    const mica_status status = mica__tokenizer_json_bool(r->json, r->node, "cleanup", &spelling->tidy);
    return status == MICA_OK ? keep_text(r, r->node, "prefix", &spelling->continued) : status;
}

static mica_status decode_replace(reader *r)
{
    const mica__json_node *pattern = mica__json_get(r->json, r->node, "pattern");
    mica_string from = {0}, to = {0};
    mica_status status = mica__tokenizer_json_text(r->json, pattern, "String", &from);
    if (status == MICA_OK)
        status = mica__tokenizer_json_text(r->json, r->node, "content", &to);
    if (status != MICA_OK)
        return status;
    if (strcmp(from.data, MICA__MARK) != 0 || strcmp(to.data, " ") != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "the tokenizer's decoder replaces \"%.40s\"; mica knows only U+2581 by a blank",
                          from.data);
    r->t->spelling.marks = true;
    return MICA_OK;
}

static mica_status decode_bytes(reader *r)
{
    r->t->spelling.bytes = true;
    return MICA_OK;
}

static mica_status decode_fuse(reader *r)
{
    (void)r; /* tokens are joined anyway */
    return MICA_OK;
}

static mica_status decode_strip(reader *r)
{
    r->t->spelling.lead = true;
    return MICA_OK;
}

static mica_status decode_suffix(reader *r)
{
    return keep_text(r, r->node, "suffix", &r->t->spelling.suffix);
}

static const step_type decoders[] = {
    {"ByteLevel", decode_byte_level}, {"Metaspace", decode_metaspace}, {"WordPiece", decode_wordpiece},
    {"Replace", decode_replace},      {"ByteFallback", decode_bytes},  {"Fuse", decode_fuse},
    {"Strip", decode_strip},          {"BPEDecoder", decode_suffix},
};

mica_status mica__tokenizer_json_decoder(mica_tokenizer *t, const mica__json *json)
{
    reader r = {.t = t, .json = json};
    const mica__json_node *decoder = mica__json_get(json, mica__json_root(json), "decoder");
    if (decoder == NULL || decoder->type == MICA__JSON_NULL)
        t->spelling.spaced = t->spelling.lead = true;
    return read_types(&r, decoder, "decoder", "decoders", decoders, sizeof decoders / sizeof decoders[0]);
}
