/*
 * conform_shapes.c - reads the lines of fixed shapes and makes cases of them.
 */
#include "conform/conform_shapes.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"

#define NONE MICA_REGION_NONE

conform_line *conform_line_add(conform_lines *lines, const char *row, mica_dtype weight, const char *format,
                               ...)
{
    va_list arguments;

    if (lines->count == lines->room) {
        conform_line *more = test_alloc(2 * lines->room + 64, sizeof *more);

        if (lines->count > 0)
            memcpy(more, lines->at, lines->count * sizeof *more);
        free(lines->at);
        lines->at = more;
        lines->room = 2 * lines->room + 64;
    }
    conform_line *line = &lines->at[lines->count++];
    *line = (conform_line){.row = row, .weight = weight};
    va_start(arguments, format);
    const int length = vsnprintf(line->operands, sizeof line->operands, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line->operands) {
        printf("a line of %s is too long: %s\n", row, line->operands);
        abort();
    }
    return line;
}

void conform_line_scalar(conform_lines *lines, mica_scalar scalar, bool gated, const char *type,
                         const char *a, const char *b, const char *y)
{
    const uint8_t f32 = MICA_REGISTER_F32, inputs = b != NULL ? 2 : 1;
    conform_line *line =
        b != NULL ? conform_line_add(lines, "region", MICA_DTYPE_NONE, "a%s, b%s, y %s %s >", a, b, type, y)
                  : conform_line_add(lines, "region", MICA_DTYPE_NONE, "a%s, y %s %s >", a, type, y);
    conform_region *region = &line->params.region;

    region->desc = (mica_region_desc){
        .input_count = inputs, .output_count = 1, .step_count = gated ? 2 : 1, .input = {f32, f32}};
    memset(region->desc.output_imag, NONE, sizeof region->desc.output_imag);
    region->desc.output[0] = (uint8_t)(inputs + region->desc.step_count - 1);
    region->step[0] =
        (mica_region_step){(uint8_t)scalar, f32, {0, inputs == 2 && !gated ? 1 : NONE, NONE}, 0, {0}, {0}};
    region->step[1] = (mica_region_step){MICA_SCALAR_MUL, f32, {inputs, 1, NONE}, 0, {0}, {0}};
}

void conform_lines_free(conform_lines *lines)
{
    free(lines->at);
    *lines = (conform_lines){NULL, 0, 0};
}

/* ---- a case of a line ---- */

typedef struct spec {
    char name[24], type[16], shape[64], how[24];
    uint64_t size[MICA_MAX_DIMS];
    uint32_t ndim;
    test_layout layout;
} spec;

/* Names that outlive a line: tensors keep the pointer, conform_operands looks for them. */
static const char *kept_name(const char *name)
{
    static const char *const names[] = {
        "a",       "add",       "b",      "bias",      "beta",         "c",      "cache",
        "db",      "dlogits",   "dloss",  "dt",        "dt_bias",      "dx",     "dy",
        "factors", "g",         "grid",   "ids",       "indices",      "k",      "keys",
        "labels",  "lengths",   "logits", "loss",      "lse",          "mask",   "next_state",
        "pages",   "positions", "q",      "sequences", "signs",        "sinks",  "skip",
        "slopes",  "state",     "table",  "targets",   "updates",      "v",      "values",
        "weight",  "x",         "y",      "z",         "expert_scale", "weights"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return names[i];
    printf("no operand is called \"%s\"\n", name);
    abort();
}

static bool read_spec(const char *text, spec *s)
{
    *s = (spec){.layout = TEST_CONTIGUOUS};
    if (*text == '-')
        return false;
    sscanf(text, "%23s %15s %63[0-9x] %23[^,]", s->name, s->type, s->shape, s->how);
    const size_t last = strlen(s->name) - 1;
    if (s->name[last] == '/' || s->name[last] == '*') {
        s->layout = s->name[last] == '/' ? TEST_ROWS : TEST_ANY;
        s->name[last] = '\0';
    }
    for (char *at = s->shape; *at != '\0' && s->ndim < MICA_MAX_DIMS;) {
        s->size[s->ndim++] = strtoull(at, &at, 10);
        at += *at == 'x';
    }
    return true;
}

/* Rows of numbers from -3 to 3 that stand apart, in any order; or triangles that are far from singular. */
static void fill_apart(test_tensor *t, test_random *random, bool triangle)
{
    const uint64_t n = t->shape[t->ndim - 1];

    for (uint64_t i = 0; i < t->count; i++) {
        const uint64_t at = i % n, row = i / n % n, other = i - at + test_random_below(random, at + 1);

        if (triangle) {
            test_tensor_set(
                t, i, test_tensor_get(t, i) + (at == row ? copysign((double)n, test_tensor_get(t, i)) : 0));
            continue;
        }
        test_tensor_set(t, i, test_tensor_get(t, other));
        test_tensor_set(t, other, 6 * (double)at / (double)n - 3);
    }
}

static void fill(test_tensor *t, test_random *random, const char *how)
{
    const double value = how[0] != '\0' ? strtod(how + 1, NULL) : 0;

    if (oracle_is_block(t->dtype))
        test_tensor_blocks(t, random);
    else if (how[0] == '<')
        test_tensor_indices(t, random, (uint64_t)value);
    else if (how[0] == 'u' || how[0] == 'n')
        test_tensor_uniform(t, random, how[0] == 'n' ? -1 : 0, how[0] == 'n' ? 0 : 1);
    else if (t->dtype == MICA_DTYPE_I32 || t->dtype == MICA_DTYPE_I64 || t->dtype == MICA_DTYPE_U32 ||
             t->dtype == MICA_DTYPE_I16 || t->dtype == MICA_DTYPE_I8)
        test_tensor_indices(t, random, 100);
    else
        test_tensor_normal(t, random, 1);
    if (how[0] == 'd' || how[0] == 't')
        fill_apart(t, random, how[0] == 't');
    for (uint64_t i = 0; i < t->count && how[0] != '\0' && strchr("=.mhX", how[0]) != NULL; i++) {
        const bool hidden = how[0] == 'm' ? test_random_one_in(random, 3) : how[0] == 'h' && i % 64 >= 32;

        if (how[0] == '=')
            test_tensor_set(t, i, value);
        else if (how[0] == '.')
            test_tensor_set(t, i, value - (double)(t->count - i));
        else if (how[0] == 'X' && (double)(i / (t->count / t->shape[0])) >= value)
            test_tensor_set(t, i, (double)NAN);
        else if (hidden)
            test_tensor_set(t, i, -(double)INFINITY);
    }
}

static void add_operand(conform_case *c, test_random *random, const spec *s)
{
    const char *name = kept_name(s->name);

    if (strcmp(s->type, "W") == 0) {
        conform_add_weight(c, random, name, s->ndim, s->size);
        c->packed = c->packed && !conform_is_turbo(c->row->weight);
        return;
    }
    const mica_dtype type = strcmp(s->type, "T") == 0 ? c->row->weight : mica_dtype_from_name(s->type);
    if (s->how[0] == '>' || s->how[0] == '#') {
        conform_add_output(c, random, name, type, s->ndim, s->size, s->layout, false, 0);
        if (s->how[0] == '#')
            fill(conform_tensor(c, c->output), random, "");
        return;
    }
    conform_operand *operand = conform_add(c, random, name, type, s->ndim, s->size, s->layout);
    operand->written = s->how[0] == '~';
    if (!operand->written || operand->tensor.dtype != MICA_DTYPE_U32)
        fill(&operand->tensor, random, s->how);
}

/* The row says where its line is: make has no other argument. */
typedef struct shape_row {
    conform_row row;
    const conform_line *line;
} shape_row;

static void make_line(conform_case *c, test_random *random)
{
    const conform_line *line = ((const shape_row *)(const void *)c->row)->line;

    c->params = line->params;
    for (const char *at = line->operands; at != NULL;) {
        spec s;

        if (read_spec(at, &s))
            add_operand(c, random, &s);
        else
            conform_add_absent(c);
        at = strstr(at, ", ");
        at = at != NULL ? at + 2 : NULL;
    }
    if (c->row->op == MICA_OP_COPY && oracle_is_block(conform_tensor(c, 0)->dtype))
        c->bits_of = 0;
}

/* Elements that the last operand named has. */
static double outputs_of(const conform_line *line)
{
    const char *at = strchr(line->operands, '>');
    double count = 1;
    spec s;

    while (at != NULL && at > line->operands && strncmp(at - 1, ", ", 2) != 0 && at[-1] != ',')
        at--;
    if (at == NULL || !read_spec(at + strspn(at, ", "), &s))
        return 1;
    for (uint32_t d = 0; d < s.ndim; d++)
        count *= (double)s.size[d];
    return count;
}

bool conform_line_run(const conform_suite *suite, const conform_line *line, uint32_t number, char *why)
{
    shape_row of = {.line = line};

    for (uint32_t i = 0; i < conform_table_count; i++)
        if (strcmp(conform_table[i].name, line->row) == 0)
            of.row = conform_table[i];
    if (of.row.name == NULL) {
        snprintf(why, CONFORM_TEXT, "the table has no row \"%s\"", line->row);
        return false;
    }
    of.row.make = make_line;
    if (line->weight != MICA_DTYPE_NONE)
        of.row.weight = line->weight;
    /* Tolerances of sums are four standard deviations, which one of some ten thousand elements passes: five and a half of them are what a
     * quarter of a million stays within. */
    of.row.factor *= outputs_of(line) > 200000 ? 5.5 / 4 : 1;
    return conform_suite_case(suite, &of.row, number, why);
}
