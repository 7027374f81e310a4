/*
 * conform_shapes.h - cases of fixed shapes: which row of the table runs them, and its operands as a line of text.
 */
#ifndef CONFORM_SHAPES_H
#define CONFORM_SHAPES_H

#include "base/status.h"
#include "conform/conform_rows.h"
#include "conform/conform_suite.h"

/*
 * operands are in the order of the row's cases, with ", " between them: "NAME TYPE SHAPE [HOW]", as "x f16 3x5x64", "- " for one that is absent, or
 * "weight W 512x256" for a weight of the row's type, which is three operands. Behind a name: '/' rows with gaps, '*' any strides. HOW:
 *   none   bell-shaped numbers, or blocks      <n   whole numbers below n            =v   v
 *   .n     n - count .. n - 1, in order        u    from 0 to 1                      n    from -1 to 0
 *   m      one of three is -inf                >    written                          ~    written as well, after what is drawn
 *   Xn     NaN from row n on                         h   of 64 columns the second half is -inf
 *   #      written in part, over what is drawn      d   apart in each row, -3 to 3     t   triangles far from singular
 */
typedef struct conform_line {
    const char *row; /* of conform_table */
    mica_dtype weight;
    conform_params params;
    char operands[360];
} conform_line;

typedef struct conform_lines {
    conform_line *at;
    uint32_t count, room;
} conform_lines;

/* The new line, for its parameters; valid until the next one. */
conform_line *conform_line_add(conform_lines *lines, const char *row, mica_dtype weight, const char *format,
                               ...) MICA__PRINTF(4, 5);
/* One step of f32, or a step and a product with the second operand. */
void conform_line_scalar(conform_lines *lines, mica_scalar scalar, bool gated, const char *type,
                         const char *a, const char *b, const char *y);
/* Runs a line on all forms of a device, in all modes; `number` seeds it. */
bool conform_line_run(const conform_suite *suite, const conform_line *line, uint32_t number, char *why);
void conform_lines_free(conform_lines *lines);

typedef struct conform_family {
    const char *name;
    void (*lines)(conform_lines *lines);
} conform_family;

extern const conform_family conform_dense_shapes[], conform_row_shapes[], conform_image_shapes[],
    conform_attention_shapes[], conform_defect_shapes[]; /* ended by a name that is NULL */

#endif
