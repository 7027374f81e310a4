/* test_grammar.c: GBNF: what is read, what is refused, and masks against lists of all texts of a language. */
#include "model/grammar_rig.h"

#include <stdio.h>

typedef struct fixture {
    mica__vocabulary *bytes;
} fixture;

static mica_grammar *make(const char *gbnf)
{
    mica_grammar *grammar = NULL;
    must(mica_grammar_create(gbnf, strlen(gbnf), NULL, &grammar));
    return grammar;
}

static void notation_is_read(void **state)
{
    static const struct {
        const char *gbnf, *text;
        bool matches;
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", "no", true},
        {"root ::= \"yes\" | \"no\"", "ye", false},
        {"root ::= \"a\"?", "", true},
        {"root ::= \"ab\"*", "ababab", true},
        {"root ::= \"ab\"*", "aba", false},
        {"root ::= [a-c]+ \"-\"", "abc-", true},
        {"root ::= [a-c]+ \"-\"", "-", false},
        {"root ::= [^a-c]", "d", true},
        {"root ::= [^a-c]", "b", false},
        {"root ::= [a-]", "-", true},
        {"root ::= [-a]", "-", true},
        {"root ::= \"x\"{3}", "xxx", true},
        {"root ::= \"x\"{3}", "xx", false},
        {"root ::= \"x\"{2,}", "xxxxx", true},
        {"root ::= \"x\"{2,}", "x", false},
        {"root ::= \"x\"{2,3} \"y\"", "xxxy", true},
        {"root ::= \"x\"{2,3} \"y\"", "xxxxy", false},
        {"root ::= \"x\"{0,0} \"y\"", "y", true},
        {"root ::= (\"a\" | \"b\" (\"c\" | \"d\")+){2}", "bcda", true},
        {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", "A\xc3\xa9\xf0\x9f\x98\x80\t\"\\", true},
        {"root ::= [\\x41-\\u00e9]", "\xc3\xa9", true},
        {"root ::= [\\x41-\\u00e9]", "\xc3\xaa", false},
        {"root ::= .", "\xf4\x8f\xbf\xbf", true},
        {"root ::= .", "\xf4\x90\x80\x80", false}, /* past the last code point */
        {"root ::= .", "\xed\xa0\x80", false},     /* a surrogate */
        {"root ::= .", "\xc0\x80", false},         /* overlong */
        {"root ::= .", "\xe0\x80\x80", false},     /* overlong */
        {"root ::= [^x]", "\xe2\x82\xac", true},
        {"# comment\nroot ::= a b # more\n\na ::=\n  \"1\" |\n  \"2\"\nb ::= (\n \"3\"\n )\n", "23", true},
        {"root ::= \"(\" root \")\" | \"\"", "((()))", true},
        {"root ::= \"(\" root \")\" | \"\"", "(()))", false},
        {"root ::= a a a\na ::= \"x\"? \"y\"?", "xyyxy", true},
        {"root ::= (\"a\"?){3} \"b\"", "aab", true},
        {"root ::= (\"a\"?){3} \"b\"", "aaaab", false},
        {"root ::= (\"a\"*)* \"b\"", "aaaab", true},
        {"root ::= (\"a\" | \"ab\") (\"c\" | \"bcd\")", "abcd", true},
        {"root ::= \"a\" | \"b\" never\nnever ::= \"c\" never", "a", true}, /* the other branch never ends */
        {"root ::= \"a\" | \"b\" never\nnever ::= \"c\" never", "b", false},
        {"root ::= \"a\" []* \"b\"", "ab", true},
        {"my-rule ::= \"q\"\nroot ::= my-rule{2}\r\n", "qq", true},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mica_grammar *grammar = make(cases[i].gbnf);
        if (rig_matches(grammar, f->bytes, cases[i].text, strlen(cases[i].text), NULL) != cases[i].matches)
            fail_msg("%s on \"%s\"", cases[i].gbnf, cases[i].text);
        mica_grammar_release(grammar);
    }
}

/* A branch that can never end is not entered: no token leads into it. */
static void dead_ends_are_not_entered(void **state)
{
    fixture *f = *state;
    mica_grammar *grammar = make("root ::= \"a\" | \"b\" never\nnever ::= \"c\" never");
    size_t taken;
    assert_false(rig_matches(grammar, f->bytes, "b", 1, &taken));
    assert_int_equal(taken, 0);
    mica_grammar_release(grammar);
}

static void faults_are_placed(void **state)
{
    static const struct {
        const char *gbnf, *word;
        mica_status code;
    } cases[] = {
        {"", "'root'", MICA_ERR_INVALID_ARGUMENT},
        {"x ::= \"a\"", "'root'", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a", "column 12", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= [a", "column 12", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= (\"a\"", "column 14", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"\nroot ::= \"b\"", "twice", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"\n\n  foo \"b\"", "line 3", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= nothing", "'nothing'", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"{2,1}", "bound", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"{x}", "number", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"{9999999999}", "1,000,000,000", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"\\q\"", "after \\", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"\\xZZ\"", "hexadecimal", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"\\uD800\"", "surrogate", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= [z-a]", "range", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"\xff\"", "UTF-8", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\" )", "')'", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= root \"a\" | \"b\"", "'root'", MICA_ERR_UNSUPPORTED},
        {"root ::= \"x\" a\na ::= b? c \"q\"\nb ::= \"1\"\nc ::= (b* a)", "begin with itself",
         MICA_ERR_UNSUPPORTED},
        {"root ::= (root)*", "'root'", MICA_ERR_UNSUPPORTED},
        {"root ::= \"a\" root", "no text", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= []", "no text", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= [^\\x00-\\U0010FFFF]", "no text", MICA_ERR_INVALID_ARGUMENT},
        {"root ::= \"a\"**********", "fewer", MICA_ERR_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mica_grammar *grammar = (mica_grammar *)&grammar;
        refused(mica_grammar_create(cases[i].gbnf, strlen(cases[i].gbnf), NULL, &grammar), cases[i].code,
                cases[i].word);
        assert_null(grammar);
    }
    mica_grammar *grammar;
    refused(mica_grammar_create(NULL, 0, NULL, &grammar), MICA_ERR_INVALID_ARGUMENT, "gbnf");
    refused(mica_grammar_create("root ::= \"a\"", 12, "start", &grammar), MICA_ERR_INVALID_ARGUMENT,
            "'start'");
    must(mica_grammar_create("start ::= \"a\"", 13, "start", &grammar));
    mica_grammar_release(grammar);
    mica_grammar_release(NULL);
}

/* Cut at every length: a grammar or a sentence, and nothing kept. */
static void cuts_are_survived(void **state)
{
    static const char gbnf[] =
        "root ::= \"a\\x41\" [^b-\\u00e9] (x | \"\xc3\xa9\"{2,3})* . # c\nx ::=\n  \"y\"+ |\n[z]\n";
    (void)state;
    for (size_t cut = 0; cut < sizeof gbnf; cut++) {
        mica_grammar *grammar = NULL;
        const mica_status status = mica_grammar_create(gbnf, cut, NULL, &grammar);
        assert_true((status == MICA_OK) == (grammar != NULL));
        mica_grammar_release(grammar);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

/* ---- masks against lists of texts ----------------------------------------------------------------------- */

#define MOST_TEXTS 3000
#define MOST_LENGTH 48

/* All texts of a finite language, one after the other. */
typedef struct language {
    char texts[MOST_TEXTS][MOST_LENGTH + 1];
    uint32_t count;
    bool too_large;
} language;

static void add_text(language *l, const char *text)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->texts[i], text) == 0)
            return;
    if (l->count == MOST_TEXTS || strlen(text) > MOST_LENGTH) {
        l->too_large = true;
        return;
    }
    strcpy(l->texts[l->count++], text);
}

static void join(language *out, const language *a, const language *b)
{
    char text[2 * MOST_LENGTH + 1];
    out->count = 0;
    out->too_large = a->too_large || b->too_large;
    for (uint32_t i = 0; i < a->count && !out->too_large; i++)
        for (uint32_t k = 0; k < b->count && !out->too_large; k++) {
            strcpy(text, a->texts[i]);
            strcat(text, b->texts[k]);
            add_text(out, text);
        }
}

static const char *const letters[] = {
    "a", "b", "\xc3\xa9", "\xe2\x82\xac", "\xe2\x82\xad", "\xf0\x9f\x98\x80"};

/* A random expression as GBNF and as all it matches. */
static void build(test_random *random, int depth, char *gbnf, language *out)
{
    const uint32_t kind =
        depth == 0 ? (uint32_t)test_random_below(random, 2) : (uint32_t)test_random_below(random, 6);
    out->count = 0;
    out->too_large = false;
    if (kind == 0) { /* a literal */
        const char *letter = letters[test_random_below(random, 6)];
        sprintf(gbnf, "\"%s\"", letter);
        add_text(out, letter);
        return;
    }
    if (kind == 1) { /* a class */
        const uint32_t first = (uint32_t)test_random_below(random, 6),
                       second = (uint32_t)test_random_below(random, 6);
        sprintf(gbnf, "[%s%s]", letters[first], letters[second]);
        add_text(out, letters[first]);
        add_text(out, letters[second]);
        return;
    }
    char *left = malloc(4096), *right = malloc(4096);
    language *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    build(random, depth - 1, left, a);
    build(random, depth - 1, right, b);
    if (kind == 2) {
        sprintf(gbnf, "(%s | %s)", left, right);
        out->too_large = a->too_large || b->too_large;
        for (uint32_t i = 0; i < a->count; i++)
            add_text(out, a->texts[i]);
        for (uint32_t i = 0; i < b->count; i++)
            add_text(out, b->texts[i]);
    } else if (kind < 5) {
        sprintf(gbnf, "%s %s", left, right);
        join(out, a, b);
    } else {
        const uint32_t min = (uint32_t)test_random_below(random, 3),
                       max = min + (uint32_t)test_random_below(random, 3);
        language *power = b, *next = malloc(sizeof *next);
        power->count = 0;
        power->too_large = a->too_large;
        add_text(power, "");
        out->too_large = a->too_large;
        for (uint32_t count = 0; count <= max; count++) {
            for (uint32_t i = 0; count >= min && i < power->count; i++)
                add_text(out, power->texts[i]);
            join(next, power, a);
            memcpy(power, next, sizeof *power);
            out->too_large |= count < max && power->too_large;
        }
        sprintf(gbnf, "(%s){%u,%u}", left, min, max);
        free(next);
    }
    free(left);
    free(right);
    free(a);
    free(b);
}

/* Tokens of the random tests: single bytes, whole letters, several letters, letters cut in the middle. */
static mica__vocabulary *mixed_tokens(test_random *random)
{
    static char bytes[8192];
    static uint32_t offsets[302];
    uint8_t ends[301] = {0};
    uint32_t used = 0;
    mica__vocabulary *vocabulary = NULL;
    for (uint32_t i = 0; i < 300; i++) {
        offsets[i] = used;
        const uint32_t parts = i % 10 == 9 ? 0 : 1 + (uint32_t)test_random_below(random, 3);
        for (uint32_t p = 0; p < parts; p++) {
            const char *letter = letters[test_random_below(random, 6)];
            const size_t length = strlen(letter), from = test_random_below(random, length),
                         size = 1 + test_random_below(random, length - from);
            memcpy(bytes + used, letter + from, size);
            used += (uint32_t)size;
        }
    }
    offsets[300] = offsets[301] = used;
    ends[300] = 1;
    must(mica__vocabulary_create(301, bytes, offsets, ends, &vocabulary));
    return vocabulary;
}

static bool some_begins(const language *l, const char *text, size_t length)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strlen(l->texts[i]) >= length && memcmp(l->texts[i], text, length) == 0)
            return true;
    return false;
}

/* A walk through masks: each bit must say whether some text of the language goes on with that token. */
static void check_walk(test_random *random, mica_grammar *grammar, const mica__vocabulary *v,
                       const language *l)
{
    mica_grammar_state *state = NULL;
    char text[8192];
    size_t length = 0;
    uint32_t mask[10];
    must(mica__grammar_begin(grammar, (mica__vocabulary *)v, &state));
    for (;;) {
        uint32_t legal = 0, pick = 0;
        bool whole = false;
        text[length] = '\0';
        for (uint32_t i = 0; i < l->count; i++)
            whole |= strcmp(l->texts[i], text) == 0;
        assert_int_equal(mica_grammar_may_end(state), whole);
        must(mica_grammar_mask(state, mask, 10));
        assert_int_equal(mask[300 / 32] >> 300 % 32 & 1, whole);
        for (uint32_t id = 0; id < 300; id++) {
            const uint32_t size = v->offsets[id + 1] - v->offsets[id];
            memcpy(text + length, v->bytes + v->offsets[id], size);
            const bool expected = size != 0 && some_begins(l, text, length + size);
            assert_int_equal(mask[id / 32] >> id % 32 & 1, expected);
            if (!expected)
                assert_int_equal(mica_grammar_accept(state, id), MICA_ERR_INVALID_ARGUMENT);
            if (expected && test_random_below(random, ++legal) == 0)
                pick = id;
        }
        if (legal == 0)
            break;
        must(mica_grammar_accept(state, pick));
        memcpy(text + length, v->bytes + v->offsets[pick], v->offsets[pick + 1] - v->offsets[pick]);
        length += v->offsets[pick + 1] - v->offsets[pick];
    }
    mica_grammar_state_release(state);
}

static void masks_are_exact(void **state)
{
    test_random random = test_random_from(4711);
    char *gbnf = malloc(1 << 16);
    language *l = malloc(sizeof *l);
    uint32_t done = 0;
    (void)state;
    while (done < 80) {
        mica_grammar *grammar, *again;
        char *printed;
        uint64_t length;
        strcpy(gbnf, "root ::= ");
        build(&random, 4, gbnf + 9, l);
        if (l->too_large)
            continue;
        grammar = make(gbnf);
        mica__vocabulary *v = mixed_tokens(&random);
        check_walk(&random, grammar, v, l);
        must(mica_grammar_print(grammar, &printed, &length));
        assert_int_equal(strlen(printed), length);
        again = make(printed); /* what is printed means the same */
        check_walk(&random, again, v, l);
        mica_text_free(printed);
        mica_grammar_release(again);
        mica_grammar_release(grammar);
        mica__vocabulary_release(v);
        done++;
    }
    free(gbnf);
    free(l);
    assert_true(done == 80);
}

/* What is printed reads back to the same print, whatever characters are in it. */
static void print_is_stable(void **state)
{
    static const char *const texts[] = {
        "root ::= [^\\x00-\\x1F\\\"\\\\\\]\\[^-] . | \"\" | x? y{2} (\"a-b^c\" | )\nx ::= [\\uE000-\\uF000] "
        "| [^\\uD7FF]\ny ::= [^\\uE000] [\\U0010FFFF]",
        "root ::= ([a]+ | \"\\n\" root2{3,}){0,2}\nroot2 ::= \"\\\"\\\\\" [\\-\\]]"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        mica_grammar *first = make(texts[i]), *second;
        char *a, *b;
        uint64_t a_length, b_length;
        must(mica_grammar_print(first, &a, &a_length));
        second = make(a);
        must(mica_grammar_print(second, &b, &b_length));
        assert_string_equal(a, b);
        mica_text_free(a);
        mica_text_free(b);
        mica_grammar_release(first);
        mica_grammar_release(second);
    }
}

/* ---- the state ------------------------------------------------------------------------------------------ */

static void end_tokens_end(void **state)
{
    fixture *f = *state;
    mica_grammar *grammar = make("root ::= \"ab\" \"c\"?");
    mica_grammar_state *s = NULL;
    uint32_t mask[12];
    must(mica__grammar_begin(grammar, f->bytes, &s));
    mica_grammar_release(grammar); /* the state keeps it */
    refused(mica_grammar_accept(s, RIG_END), MICA_ERR_INVALID_ARGUMENT, "may not end");
    refused(mica_grammar_accept(s, 300), MICA_ERR_INVALID_ARGUMENT, "300");
    refused(mica_grammar_mask(s, mask, 8), MICA_ERR_INVALID_ARGUMENT, "words");
    must(mica_grammar_accept(s, 'a'));
    refused(mica_grammar_accept(s, 'a'), MICA_ERR_INVALID_ARGUMENT, "does not admit");
    must(mica_grammar_accept(s, 'b'));
    must(mica_grammar_accept(s, RIG_END));
    memset(mask, 0xff, sizeof mask);
    must(mica_grammar_mask(s, mask, 12));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(mask[i], i == RIG_END / 32 ? 1u << RIG_END % 32 : 0);
    refused(mica_grammar_accept(s, 'c'), MICA_ERR_INVALID_ARGUMENT, "does not admit");
    mica_grammar_reset(s);
    assert_false(mica_grammar_may_end(s));
    must(mica_grammar_accept(s, 'a'));
    mica_grammar_state_release(s);
    mica_grammar_state_release(NULL);
}

/* More states than are kept: what is forgotten is found again, and counting stays exact. */
static void long_texts_are_counted(void **state)
{
    fixture *f = *state;
    mica_grammar *grammar = make("root ::= [a-z]{70000} \"!\"");
    mica_grammar_state *s = NULL;
    uint32_t mask[9];
    must(mica__grammar_begin(grammar, f->bytes, &s));
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 70000; i++) {
            if (i % 9973 == 0) {
                must(mica_grammar_mask(s, mask, 9));
                assert_int_equal(mask['!' / 32] >> '!' % 32 & 1, 0);
                assert_int_equal(mask['q' / 32] >> 'q' % 32 & 1, 1);
            }
            must(mica_grammar_accept(s, 'a' + i % 26));
        }
        must(mica_grammar_mask(s, mask, 9));
        assert_int_equal(mask['!' / 32] >> '!' % 32 & 1, 1);
        assert_int_equal(mask['q' / 32] >> 'q' % 32 & 1, 0);
        must(mica_grammar_accept(s, '!'));
        assert_true(mica_grammar_may_end(s));
        mica_grammar_reset(s);
    }
    mica_grammar_state_release(s);
    mica_grammar_release(grammar);
}

/* ---- hostile -------------------------------------------------------------------------------------------- */

static char *repeat_text(const char *begin, const char *middle, uint32_t times, const char *end)
{
    const size_t size = strlen(middle);
    char *text = malloc(strlen(begin) + size * times + strlen(end) + 1), *at = text + strlen(begin);
    strcpy(text, begin);
    for (uint32_t i = 0; i < times; i++, at += size)
        memcpy(at, middle, size);
    strcpy(at, end);
    return text;
}

static void hostile_grammars_are_bounded(void **state)
{
    fixture *f = *state;
    mica_grammar *grammar = NULL;
    mica_grammar_state *s = NULL;
    mica_status status = MICA_OK;
    char *text = repeat_text("root ::= ", "(", 100000, "");
    refused(mica_grammar_create(text, strlen(text), NULL, &grammar), MICA_ERR_BUDGET, "groups");
    free(text);
    /* Nested counts are counted, not written out. */
    grammar = make("root ::= (((\"a\"{1000}){1000}){1000} \"b\"){1000}");
    assert_false(rig_matches(grammar, f->bytes, "aaaa", 4, NULL));
    mica_grammar_release(grammar);
    /* Counts that can be shared out in many ways meet a limit with a sentence. */
    grammar = make("root ::= (((\"a\"{1,1000}){1,1000}){1,1000}){1,1000}");
    must(mica__grammar_begin(grammar, f->bytes, &s));
    for (uint32_t i = 0; i < 3000 && status == MICA_OK; i++)
        status = mica_grammar_accept(s, 'a');
    refused(status, MICA_ERR_BUDGET, "too many ways");
    mica_grammar_state_release(s);
    mica_grammar_release(grammar);
    /* A megabyte of characters. */
    text = repeat_text("root ::= \"", "abcdefg", 150000, "\"");
    grammar = make(text);
    assert_false(rig_matches(grammar, f->bytes, "abcdefga", 8, NULL));
    mica_grammar_release(grammar);
    free(text);
}

/* A megabyte of alternatives. */
static void many_words_are_known(void **state)
{
    fixture *f = *state;
    const uint32_t words = 60000;
    char *text = malloc(words * 20 + 64), *at = text + sprintf(text, "root ::= \"\"");
    mica_grammar *grammar;
    for (uint32_t i = 0; i < words; i++)
        at += sprintf(at, " | \"word-%u\"", i * 7);
    grammar = make(text);
    assert_true(rig_matches(grammar, f->bytes, "word-77", 7, NULL));
    assert_true(rig_matches(grammar, f->bytes, "word-419993", 11, NULL));
    assert_false(rig_matches(grammar, f->bytes, "word-419992", 11, NULL));
    mica_grammar_release(grammar);
    free(text);
}

/* Chains of rules are walked without recursion. */
static void long_chains_are_walked(void **state)
{
    fixture *f = *state;
    const uint32_t rules = 40000;
    char *text = malloc(rules * 32 + 64), *at = text + sprintf(text, "root ::= r0\n");
    mica_grammar *grammar;
    for (uint32_t i = 0; i < rules; i++)
        at += sprintf(at, "r%u ::= r%u\n", i, i + 1);
    sprintf(at, "r%u ::= \"z\"", rules);
    grammar = make(text);
    assert_true(rig_matches(grammar, f->bytes, "z", 1, NULL));
    mica_grammar_release(grammar);
    sprintf(at, "r%u ::= r17 | \"z\"", rules);
    refused(mica_grammar_create(text, strlen(text), NULL, &grammar), MICA_ERR_UNSUPPORTED, "left recursion");
    free(text);
}

static mica_status play(void *context)
{
    static const char gbnf[] =
        "root ::= item (\",\" item){0,5} | [^a-z\xc3\xa9]\nitem ::= \"[\" root? \"]\" | [0-9]+";
    char bytes[] = "[]0,1]";
    const uint32_t offsets[] = {0, 1, 2, 3, 4, 6, 6};
    const uint8_t ends[] = {0, 0, 0, 0, 0, 1};
    const uint32_t path[] = {0, 2, 3, 0, 4};
    mica_grammar *grammar = NULL;
    mica_grammar_state *s = NULL;
    mica__vocabulary *v = NULL;
    uint32_t mask[1];
    char *text = NULL;
    uint64_t length;
    mica_status status = mica_grammar_create(gbnf, sizeof gbnf - 1, NULL, &grammar);
    (void)context;
    if (status == MICA_OK)
        status = mica__vocabulary_create(6, bytes, offsets, ends, &v);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, v, &s);
    for (size_t i = 0; i < sizeof path / sizeof *path && status == MICA_OK; i++) {
        status = mica_grammar_mask(s, mask, 1);
        if (status == MICA_OK)
            status = mica_grammar_accept(s, path[i]);
    }
    if (status == MICA_OK)
        status = mica_grammar_print(grammar, &text, &length);
    mica_text_free(text);
    mica_grammar_state_release(s);
    mica__vocabulary_release(v);
    mica_grammar_release(grammar);
    return status;
}

static void allocations_may_fail(void **state)
{
    fixture *f = *state;
    mica__vocabulary_release(f->bytes); /* nothing may live while the allocator changes */
    assert_true(rig_fail_allocations(play, NULL) > 20);
    f->bytes = rig_bytes();
}

static int set_up(void **state)
{
    static fixture f;
    f.bytes = rig_bytes();
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    mica__vocabulary_release(((fixture *)*state)->bytes);
    return mica_host_bytes() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(notation_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(dead_ends_are_not_entered, set_up, tear_down),
        cmocka_unit_test(faults_are_placed),
        cmocka_unit_test(cuts_are_survived),
        cmocka_unit_test(masks_are_exact),
        cmocka_unit_test(print_is_stable),
        cmocka_unit_test_setup_teardown(end_tokens_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_texts_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_grammars_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_words_are_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_chains_are_walked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocations_may_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
