/*
 * conform_sample.c - cases of penalize, and of sample: judged once by its ids, once by their log-probabilities, once by
 * the settings and once by the history that it leaves.
 *
 * Settings are drawn again until no decision of a row is so near to its bound that the rounding of f32 could turn it.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_ops.h"
#include "oracle/oracle_sample.h"

#define SURE 2e-5 /* a sum of thousands of f32 terms strays by less */
#define NONE 4294967295.0

enum { P_LOGITS, P_SETTINGS, P_BIAS_IDS, P_BIAS, P_MASK, P_HISTORY, P_Y };
enum { S_LOGITS, S_RAW, S_SETTINGS, S_HISTORY, S_IDS, S_CHANCES };
enum { /* words of a row of settings */
       SEED = 0,
       PICK = 2,
       TEMPERATURE = 4,
       TOP_K,
       TOP_P,
       MIN_P,
       TYPICAL_P,
       KEEP,
       REPEAT,
       PRESENCE,
       FREQUENCY,
       LAST,
       NEXT,
       FLAGS,
       WORDS
};

/* ---- settings ------------------------------------------------------------------------------------------- */

static void set_word(test_tensor *settings, uint64_t row, uint32_t word, uint32_t value)
{
    test_tensor_set(settings, row * WORDS + word, value);
}

static void set_real(test_tensor *settings, uint64_t row, uint32_t word, double value)
{
    float real = (float)value;
    uint32_t bits;

    memcpy(&bits, &real, sizeof bits);
    set_word(settings, row, word, bits);
}

static uint32_t get_word(const test_tensor *settings, uint64_t row, uint32_t word)
{
    return (uint32_t)test_tensor_get(settings, row * WORDS + word);
}

static double get_real(const test_tensor *settings, uint64_t row, uint32_t word)
{
    uint32_t bits = get_word(settings, row, word);
    float real;

    memcpy(&real, &bits, sizeof real);
    return (double)real;
}

static oracle_sampling sampling_of(const test_tensor *s, uint64_t row)
{
    return (oracle_sampling){
        .seed = (uint64_t)get_word(s, row, SEED + 1) << 32 | get_word(s, row, SEED),
        .pick = (uint64_t)get_word(s, row, PICK + 1) << 32 | get_word(s, row, PICK),
        .temperature = get_real(s, row, TEMPERATURE),
        .top_p = get_real(s, row, TOP_P),
        .min_p = get_real(s, row, MIN_P),
        .typical_p = get_real(s, row, TYPICAL_P),
        .top_k = get_word(s, row, TOP_K),
        .keep = get_word(s, row, KEEP),
    };
}

/* One filter alone that few tokens pass, at a temperature at which the last of them is drawn as well: there it shows when
 * a filter takes one token more or less than it should. */
static void draw_tight(test_tensor *s, uint64_t row, test_random *random)
{
    uint64_t filter = test_random_below(random, 6);

    set_real(s, row, TEMPERATURE, test_random_uniform(random, 2, 8));
    set_word(s, row, TOP_K, filter < 3 ? 1 + (uint32_t)test_random_below(random, 5) : 0);
    set_real(s, row, TOP_P, filter == 3 ? test_random_uniform(random, 0.01, 0.1) : 1);
    set_real(s, row, MIN_P, filter == 4 ? test_random_uniform(random, 0.4, 0.9) : 0);
    set_real(s, row, TYPICAL_P, filter == 5 ? test_random_uniform(random, 0.01, 0.1) : 1);
    set_word(s, row, KEEP, 0);
}

static void draw_filters(test_tensor *s, uint64_t row, uint64_t vocabulary, test_random *random)
{
    static const double high[] = {0, 0.1, 0.5, 0.9, 0.95, 0.999}, low[] = {0.01, 0.05, 0.3, 1};

    for (uint32_t word = SEED; word < TEMPERATURE; word++)
        set_word(s, row, word, (uint32_t)test_random_next(random));
    if (test_random_one_in(random, 4))
        set_word(s, row, PICK, UINT32_MAX); /* the carry */
    set_real(s, row, TEMPERATURE, test_random_one_in(random, 8) ? 0 : test_random_uniform(random, 0.1, 2));
    set_word(s, row, TOP_K,
             test_random_one_in(random, 2) ? 0 : 1 + (uint32_t)test_random_below(random, vocabulary + 9));
    set_real(s, row, TOP_P, test_random_one_in(random, 2) ? 1 : high[test_random_below(random, 6)]);
    set_real(s, row, MIN_P, test_random_one_in(random, 2) ? 0 : low[test_random_below(random, 4)]);
    set_real(s, row, TYPICAL_P, test_random_one_in(random, 2) ? 1 : high[test_random_below(random, 6)]);
    set_word(s, row, KEEP, test_random_one_in(random, 3) ? (uint32_t)test_random_below(random, 9) : 0);
    if (test_random_one_in(random, 2))
        draw_tight(s, row, random);
}

static void draw_rest(test_tensor *s, uint64_t row, uint64_t width, test_random *random)
{
    bool none = test_random_one_in(random, 6);

    set_real(s, row, REPEAT, none ? 1 : test_random_uniform(random, 0.5, 2));
    set_real(s, row, PRESENCE, none ? 0 : test_random_uniform(random, -1, 1));
    set_real(s, row, FREQUENCY, none ? 0 : test_random_uniform(random, -1, 1));
    set_word(s, row, LAST, (uint32_t)test_random_below(random, width + 5));
    set_word(s, row, NEXT, (uint32_t)test_random_below(random, 2 * width + 5));
    set_word(s, row, FLAGS, (uint32_t)test_random_below(random, 2));
}

/* Some rows with many equals, some with NaN and both infinities, some with nothing to choose. */
static void draw_logits(test_tensor *x, test_random *random)
{
    test_tensor_normal(x, random, 3);
    for (uint64_t i = 0; i < x->count; i++) {
        uint64_t kind = i / x->shape[1] % 7;

        if (kind == 1)
            test_tensor_set(x, i, floor(test_tensor_get(x, i)));
        if ((kind == 2 || kind == 6) && test_random_one_in(random, 4))
            test_tensor_set(x, i, (double)NAN);
        if (kind == 4 || (kind >= 5 && test_random_one_in(random, 2)))
            test_tensor_set(x, i, -(double)INFINITY);
        if (kind == 5 && test_random_one_in(random, 64))
            test_tensor_set(x, i, (double)INFINITY);
    }
}

/* Tokens, some of them often, some none. With `stray`, now and then one that is none of the vocabulary's. */
static void draw_ids(test_tensor *ids, uint64_t vocabulary, bool stray, test_random *random)
{
    uint64_t few = vocabulary < 5 ? vocabulary : 5;

    for (uint64_t i = 0; i < ids->count; i++) {
        uint64_t below = test_random_one_in(random, 2) ? few : vocabulary;
        double id = (double)test_random_below(random, below);

        if (test_random_one_in(random, 5))
            id = ids->dtype == MICA_DTYPE_I32 ? -1 : NONE;
        if (stray && test_random_one_in(random, 40))
            id = (double)vocabulary + (double)test_random_below(random, 9);
        test_tensor_set(ids, i, id);
    }
}

/* ---- penalize ------------------------------------------------------------------------------------------- */

static void draw_mask(test_tensor *mask, test_random *random)
{
    for (uint64_t i = 0; i < mask->count; i++)
        test_tensor_set(mask, i, test_random_one_in(random, 3) ? NONE : (uint32_t)test_random_next(random));
}

void conform_make_penalize(conform_case *c, test_random *random)
{
    uint64_t rows = c->typical ? 1 : test_random_size(random, 12),
             n = c->typical ? 128000 : test_random_size(random, 3000), width = test_random_size(random, 90),
             slots = test_random_size(random, 12), words = (n + 31) / 32 + test_random_below(random, 3);
    mica_dtype type = c->typical ? MICA_DTYPE_F32 : conform_float(random);
    bool in_place = test_random_one_in(random, 2), stray = !c->typical && test_random_one_in(random, 4);

    conform_add(c, random, "logits", type, 2, (uint64_t[]){rows, n}, in_place ? TEST_ROWS : TEST_ROWS_REPEAT);
    draw_logits(conform_tensor(c, P_LOGITS), random);
    conform_add(c, random, "settings", MICA_DTYPE_U32, 2, (uint64_t[]){rows, WORDS}, TEST_ROWS);
    for (uint64_t row = 0; row < rows; row++) {
        draw_filters(conform_tensor(c, P_SETTINGS), row, n, random);
        draw_rest(conform_tensor(c, P_SETTINGS), row, width, random);
    }
    if (test_random_one_in(random, 3)) {
        conform_add_absent(c);
        conform_add_absent(c);
    } else {
        conform_add(c, random, "bias_ids", conform_index(random), 2, (uint64_t[]){rows, slots},
                    TEST_ROWS_REPEAT);
        draw_ids(conform_tensor(c, P_BIAS_IDS), n, stray, random);
        conform_add(c, random, "bias", conform_float(random), 2, (uint64_t[]){rows, slots}, TEST_ROWS_REPEAT);
        test_tensor_normal(conform_tensor(c, P_BIAS), random, 5);
    }
    if (test_random_one_in(random, 3)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "mask", MICA_DTYPE_U32, 2, (uint64_t[]){rows, words}, TEST_ROWS_REPEAT);
        draw_mask(conform_tensor(c, P_MASK), random);
    }
    if (test_random_one_in(random, 6)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "history", conform_index(random), 2, (uint64_t[]){rows, width},
                    TEST_ROWS_REPEAT);
        draw_ids(conform_tensor(c, P_HISTORY), n, stray, random);
    }
    conform_add_output(c, random, "y", c->typical ? type : conform_float(random), 2, (uint64_t[]){rows, n},
                       TEST_ROWS, in_place, P_LOGITS);
    c->flops = (double)(rows * n);
    c->bytes = conform_bytes(c, P_LOGITS) * 2;
}

mica_status conform_encode_penalize(const conform_case *c, mica_encoder *encoder)
{
    const mica_penalize_operands operands = {.logits = conform_buffer(c, P_LOGITS),
                                             .settings = conform_buffer(c, P_SETTINGS),
                                             .bias_ids = conform_buffer(c, P_BIAS_IDS),
                                             .bias = conform_buffer(c, P_BIAS),
                                             .mask = conform_buffer(c, P_MASK),
                                             .history = conform_buffer(c, P_HISTORY)};

    return mica_penalize(encoder, &operands, conform_buffer(c, P_Y));
}

void conform_oracle_penalize(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, P_LOGITS), *s = conform_tensor(c, P_SETTINGS);
    double *logits = conform_values(c, P_LOGITS), *ids = conform_values(c, P_BIAS_IDS);
    double *bias = conform_values(c, P_BIAS), *mask = conform_values(c, P_MASK);
    double *history = conform_values(c, P_HISTORY);
    uint64_t n = x->shape[1], slots = ids ? conform_tensor(c, P_BIAS_IDS)->shape[1] : 0,
             words = mask ? conform_tensor(c, P_MASK)->shape[1] : 0,
             width = history ? conform_tensor(c, P_HISTORY)->shape[1] : 0;
    uint32_t *bits = test_alloc(words + 1, sizeof *bits);

    for (uint64_t row = 0; row < x->shape[0]; row++) {
        oracle_penalties p = {.count = n,
                              .slots = slots,
                              .bias_ids = ids ? ids + row * slots : NULL,
                              .bias = bias ? bias + row * slots : NULL,
                              .mask = mask && (get_word(s, row, FLAGS) & 1) ? bits : NULL,
                              .width = width,
                              .history = history ? history + row * width : NULL,
                              .last = get_word(s, row, LAST),
                              .next = get_word(s, row, NEXT),
                              .repeat = get_real(s, row, REPEAT),
                              .presence = get_real(s, row, PRESENCE),
                              .frequency = get_real(s, row, FREQUENCY)};

        for (uint64_t w = 0; w < words; w++)
            bits[w] = (uint32_t)mask[row * words + w];
        if (!oracle_penalize(&p, logits + row * n, c->expected + row * n, c->error + row * n))
            c->wanted = MICA_ERR_FAULT;
    }
    free(bits);
    free(logits);
    free(ids);
    free(bias);
    free(mask);
    free(history);
}

/* ---- sample --------------------------------------------------------------------------------------------- */

/* Settings of a row that f32 decides as double precision does; greedy where none is found. */
static void draw_sure(conform_case *c, uint64_t row, uint64_t width, const double *logits,
                      test_random *random)
{
    test_tensor *s = conform_tensor(c, S_SETTINGS);
    uint64_t n = conform_tensor(c, S_LOGITS)->shape[1];
    double margin = 0;

    for (int trial = 0; trial < 30 && margin < SURE; trial++) {
        draw_filters(s, row, n, random);
        const oracle_sampling sampling = sampling_of(s, row);

        (void)oracle_sample_pick(&sampling, n, logits, &margin);
    }
    if (margin < SURE)
        set_real(s, row, TEMPERATURE, 0);
    draw_rest(s, row, width, random);
}

static void make_sample(conform_case *c, test_random *random, uint32_t judged)
{
    /* Mostly many rows: each is another draw. */
    uint64_t rows = c->typical                      ? 1
                    : test_random_one_in(random, 4) ? test_random_size(random, 12)
                                                    : 16 + test_random_below(random, 9),
             n = c->typical ? 128000 : test_random_size(random, 3000), width = test_random_size(random, 40);
    mica_dtype type = c->typical ? MICA_DTYPE_F32 : conform_float(random);
    bool has_history = judged == S_HISTORY || test_random_one_in(random, 2);
    double *logits;

    conform_add(c, random, "logits", type, 2, (uint64_t[]){rows, n}, TEST_ROWS_REPEAT);
    draw_logits(conform_tensor(c, S_LOGITS), random);
    if (test_random_one_in(random, 2)) {
        conform_add_absent(c);
    } else { /* candidates where logits are, at least */
        conform_add(c, random, "raw", conform_float(random), 2, (uint64_t[]){rows, n}, TEST_ROWS_REPEAT);
        test_tensor_normal(conform_tensor(c, S_RAW), random, 3);
    }
    conform_add(c, random, "settings", MICA_DTYPE_U32, 2, (uint64_t[]){rows, WORDS}, TEST_ROWS)->written =
        true;
    logits = conform_values(c, S_LOGITS);
    for (uint64_t row = 0; row < rows; row++)
        draw_sure(c, row, width, logits + row * n, random);
    free(logits);
    if (has_history) {
        conform_add(c, random, "history", conform_index(random), 2, (uint64_t[]){rows, width}, TEST_ROWS)
            ->written = true;
        draw_ids(conform_tensor(c, S_HISTORY), n, false, random);
    } else {
        conform_add_absent(c);
    }
    conform_add(c, random, "ids", conform_index(random), 1, &rows, TEST_ANY)->written = true;
    if (judged == S_CHANCES || test_random_one_in(random, 2))
        conform_add(c, random, "log_probabilities", conform_float(random), 1, &rows, TEST_ROWS)->written =
            true;
    else
        conform_add_absent(c);
    c->output = judged;
    c->flops = 10.0 * (double)(rows * n);
    c->bytes = conform_bytes(c, S_LOGITS);
}

static mica_status encode_sample(const conform_case *c, mica_encoder *encoder)
{
    const mica_sample_operands operands = {.logits = conform_buffer(c, S_LOGITS),
                                           .raw = conform_buffer(c, S_RAW),
                                           .settings = conform_buffer(c, S_SETTINGS),
                                           .history = conform_buffer(c, S_HISTORY)};

    return mica_sample(encoder, &operands, conform_buffer(c, S_IDS), conform_buffer(c, S_CHANCES));
}

static void pick_rows(conform_case *c, int64_t *ids)
{
    const test_tensor *x = conform_tensor(c, S_LOGITS);
    double *logits = conform_values(c, S_LOGITS), margin;

    for (uint64_t row = 0; row < x->shape[0]; row++) {
        const oracle_sampling sampling = sampling_of(conform_tensor(c, S_SETTINGS), row);

        ids[row] = oracle_sample_pick(&sampling, x->shape[1], logits + row * x->shape[1], &margin);
    }
    free(logits);
}

static int64_t *picks_of(conform_case *c)
{
    int64_t *ids = test_alloc(conform_tensor(c, S_LOGITS)->shape[0], sizeof *ids);

    pick_rows(c, ids);
    return ids;
}

void conform_make_sample(conform_case *c, test_random *random)
{
    make_sample(c, random, S_IDS);
}

mica_status conform_encode_sample(const conform_case *c, mica_encoder *encoder)
{
    return encode_sample(c, encoder);
}

void conform_oracle_sample(conform_case *c)
{
    const test_tensor *ids = conform_tensor(c, S_IDS);
    int64_t *picks = picks_of(c);

    for (uint64_t row = 0; row < ids->count; row++) {
        c->expected[row] = picks[row] < 0 && ids->dtype == MICA_DTYPE_U32 ? NONE : (double)picks[row];
        c->error[row] = ORACLE_EXACT;
    }
    free(picks);
}

void conform_make_sample_log(conform_case *c, test_random *random)
{
    make_sample(c, random, S_CHANCES);
}

mica_status conform_encode_sample_log(const conform_case *c, mica_encoder *encoder)
{
    return encode_sample(c, encoder);
}

void conform_oracle_sample_log(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, S_LOGITS);
    double *raw = conform_values(c, c->operand[S_RAW].present ? S_RAW : S_LOGITS);
    int64_t *picks = picks_of(c);

    for (uint64_t row = 0; row < x->shape[0]; row++) {
        c->expected[row] = -(double)INFINITY;
        if (picks[row] >= 0)
            c->expected[row] = oracle_log_probability(x->shape[1], raw + row * x->shape[1],
                                                      (size_t)picks[row], &c->error[row]);
    }
    free(picks);
    free(raw);
}

void conform_make_sample_settings(conform_case *c, test_random *random)
{
    make_sample(c, random, S_SETTINGS);
}

mica_status conform_encode_sample_settings(const conform_case *c, mica_encoder *encoder)
{
    return encode_sample(c, encoder);
}

void conform_oracle_sample_settings(conform_case *c)
{
    const test_tensor *s = conform_tensor(c, S_SETTINGS);
    const uint64_t width = c->operand[S_HISTORY].present ? conform_tensor(c, S_HISTORY)->shape[1] : 0;
    int64_t *picks = picks_of(c);

    for (uint64_t i = 0; i < s->count; i++) {
        c->expected[i] = test_tensor_get(s, i);
        c->error[i] = ORACLE_EXACT;
    }
    for (uint64_t row = 0; row < s->shape[0]; row++) {
        double *words = c->expected + row * WORDS;

        if (picks[row] < 0)
            continue;
        words[PICK + 1] += words[PICK] == NONE ? 1 : 0;
        if (words[PICK + 1] > NONE)
            words[PICK + 1] = 0;
        words[PICK] = words[PICK] == NONE ? 0 : words[PICK] + 1;
        if (width != 0)
            words[NEXT] = fmod(fmod(words[NEXT], (double)width) + 1, (double)width);
    }
    free(picks);
}

void conform_make_sample_history(conform_case *c, test_random *random)
{
    make_sample(c, random, S_HISTORY);
}

mica_status conform_encode_sample_history(const conform_case *c, mica_encoder *encoder)
{
    return encode_sample(c, encoder);
}

void conform_oracle_sample_history(conform_case *c)
{
    const test_tensor *history = conform_tensor(c, S_HISTORY), *s = conform_tensor(c, S_SETTINGS);
    int64_t *picks = picks_of(c);

    for (uint64_t i = 0; i < history->count; i++) {
        c->expected[i] = test_tensor_get(history, i);
        c->error[i] = ORACLE_EXACT;
    }
    for (uint64_t row = 0; row < history->shape[0]; row++)
        if (picks[row] >= 0)
            c->expected[row * history->shape[1] + get_word(s, row, NEXT) % history->shape[1]] =
                (double)picks[row];
    free(picks);
}
