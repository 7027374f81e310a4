/*
 * values.c - what kinds of nodes have of their own in a text: operands of leaves, attributes, parameters of ops, steps of regions.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "graph/custom.h"
#include "graph/text/reader.h"

/* ---- attributes ---- */

/* The value of an attribute, which is used with that; NULL where it is not there. */
static const mica__span *value_of(mica__line *line, const char *key)
{
    for (uint32_t i = 0; i < line->attribute_count; i++)
        if (mica__span_is(line->attribute[i].key, key)) {
            line->attribute[i].used = true;
            return &line->attribute[i].value;
        }
    return NULL;
}

/* A number without a sign; 0 where it is not there. */
static bool number_of(mica__reader *reader, mica__line *line, const char *key, uint64_t most, uint64_t *out)
{
    const mica__span *value = value_of(line, key);
    *out = 0;
    if (value == NULL)
        return true;
    mica__reader inner = mica__reader_of(reader, *value);
    const bool fits = mica__reader_uint(&inner, most, out) && mica__reader_ends(&inner);
    return fits || mica__reader_wrong(reader, "attribute '%s' is no number up to %llu", key,
                                      (unsigned long long)most);
}

static bool signed_of(mica__reader *reader, int64_t least, int64_t most, int64_t *out)
{
    uint64_t size = 0;
    const bool negative = mica__reader_takes(reader, "-");
    const uint64_t limit = negative ? 0 - (uint64_t)least : (uint64_t)most;
    if (!mica__reader_uint(reader, limit, &size))
        return false;
    *out = negative ? (int64_t)(0 - size) : (int64_t)size;
    return true;
}

static bool shape_of(mica__reader *reader, mica__line *line, uint32_t *ndim, uint64_t *shape)
{
    const mica__span *value = value_of(line, "shape");
    if (value == NULL)
        return mica__reader_wrong(reader, "attribute 'shape' is missing");
    mica__reader inner = mica__reader_of(reader, *value);
    const bool fits = mica__reader_shape(&inner, line->graph, ndim, shape) && mica__reader_ends(&inner);
    return fits || mica__reader_wrong(reader, "attribute 'shape' is no shape");
}

static bool takes_exactly(mica__reader *reader, const mica__line *line, uint32_t count)
{
    return line->takes_count == count ||
           mica__reader_wrong(reader, "'%.*s' takes %u tensors, not %u", (int)line->name.length,
                              line->name.at, count, line->takes_count);
}

/* A token of a list, up to a comma or a space. */
static mica__span token_of(mica__reader *reader)
{
    (void)mica__reader_takes(reader, "");
    const char *begin = reader->at;
    while (reader->at < reader->end && *reader->at != ',' && *reader->at != ' ' && *reader->at != '/')
        reader->at++;
    return (mica__span){begin, (size_t)(reader->at - begin)};
}

/* ---- parameters of ops ---- */

static bool field_value(mica__reader *reader, const mica__field *field, char *to)
{
    int64_t whole = 0;
    float f32 = 0;
    double f64 = 0;
    bool fits = false;
    if (field->form == MICA__FORM_F32) {
        const mica__span token = token_of(reader);
        fits = mica__f32_read(token.at, token.length, &f32);
        memcpy(to, &f32, sizeof f32);
    } else if (field->form == MICA__FORM_F64) {
        const mica__span token = token_of(reader);
        fits = mica__f64_read(token.at, token.length, &f64);
        memcpy(to, &f64, sizeof f64);
    } else if (field->form == MICA__FORM_I64) {
        fits = signed_of(reader, INT64_MIN, INT64_MAX, &whole);
        memcpy(to, &whole, sizeof whole);
    } else {
        fits = field->form == MICA__FORM_U32 ? signed_of(reader, 0, UINT32_MAX, &whole)
                                             : signed_of(reader, INT32_MIN, INT32_MAX, &whole);
        const uint32_t bits = (uint32_t)whole;
        memcpy(to, &bits, sizeof bits);
    }
    return fits;
}

static bool read_field(mica__reader *reader, const mica__field *field, const mica__span *value, char *params)
{
    const size_t each = field->form == MICA__FORM_I64 || field->form == MICA__FORM_F64 ? 8 : 4;
    mica__reader inner = mica__reader_of(reader, *value);
    bool fits = true;
    for (uint32_t i = 0; fits; i++) {
        fits = i < field->count && field_value(&inner, field, params + field->offset + i * each);
        if (!fits || !mica__reader_takes(&inner, ","))
            break;
    }
    return (fits && mica__reader_ends(&inner)) ||
           mica__reader_wrong(reader, "attribute '%s' has a value that it cannot have", field->name);
}

/* as=(f32 [2, 3], -, - [4]) */
static bool read_asked(mica__reader *reader, mica__line *line, mica_operand_desc *asked)
{
    const mica__span *value = value_of(line, "as");
    if (value == NULL)
        return true;
    mica__reader inner = mica__reader_of(reader, *value);
    for (uint32_t i = 0; i < line->gives_count; i++) {
        const mica__span type = token_of(&inner);
        char name[32] = {0};
        asked[i].ndim = MICA_RANK_UNKNOWN;
        if (!mica__span_is(type, "-")) {
            memcpy(name, type.at, type.length < sizeof name ? type.length : 0);
            asked[i].dtype = mica_dtype_from_name(name);
            if (asked[i].dtype == MICA_DTYPE_NONE)
                return mica__reader_wrong(reader, "attribute 'as' has a type that is none");
        }
        (void)mica__reader_takes(&inner, "");
        if (inner.at < inner.end && *inner.at == '[' &&
            !mica__reader_shape(&inner, line->graph, &asked[i].ndim, asked[i].shape))
            return mica__reader_wrong(reader, "attribute 'as' has a shape that is none");
        if (i + 1 < line->gives_count && !mica__reader_takes(&inner, ","))
            return mica__reader_wrong(reader, "attribute 'as' has %u types, not %u", i + 1,
                                      line->gives_count);
    }
    return mica__reader_ends(&inner) || mica__reader_wrong(reader, "attribute 'as' has too many types");
}

enum { MOST_OUTPUTS = 24, MOST_PARAMS = 256 };

static bool build_op(mica__reader *reader, mica__line *line, mica_op op)
{
    _Alignas(16) char params[MOST_PARAMS] = {0};
    mica_operand_desc asked[MOST_OUTPUTS] = {{.ndim = 0}};
    mica_tensor outputs[MOST_OUTPUTS];
    uint32_t wanted = 0;
    if (line->gives_count > MOST_OUTPUTS)
        return mica__reader_wrong(reader, "%u outputs, over %d", line->gives_count, MOST_OUTPUTS);
    for (uint32_t i = 0; i < line->gives_count; i++)
        wanted |= (uint32_t)(line->gives[i] != 0) << i;
    for (const mica__field *field = mica__fields_of(op); field->name != NULL; field++) {
        const mica__span *value = value_of(line, field->name);
        if (value != NULL && !read_field(reader, field, value, params))
            return false;
    }
    if (!read_asked(reader, line, asked))
        return false;
    static const mica_tensor none = 0;
    (void)mica_graph_op(line->graph, op, params, line->takes_count == 0 ? &none : line->takes,
                        line->takes_count, wanted, asked, outputs, line->gives_count);
    return true;
}

/* ---- regions ---- */

/* "mul f32 0 1", "constant f32 1.5", "index i32 @1" */
static bool read_step(mica__reader *reader, mica_region_step *step)
{
    mica__span name, type;
    uint32_t code = 0, values = 0;
    uint64_t number = 0;
    memset(step, 0, sizeof *step);
    memset(step->value, MICA_REGION_NONE, sizeof step->value);
    if (!mica__reader_word(reader, &name) || !mica__reader_word(reader, &type))
        return false;
    for (code = 1; code < MICA_SCALAR_COUNT && !mica__span_is(name, mica_scalar_name(code)); code++)
        ;
    for (step->type = 1; step->type < MICA_REGISTER_COUNT; step->type++)
        if (mica__span_is(type, mica_register_name((mica_register)step->type)))
            break;
    if (code == MICA_SCALAR_COUNT || code > UINT8_MAX || step->type == MICA_REGISTER_COUNT)
        return false;
    step->scalar = (uint8_t)code;
    if (code == MICA_SCALAR_CONSTANT) {
        const mica__span token = token_of(reader);
        mica__reader inner = mica__reader_of(reader, token);
        if (step->type == MICA_REGISTER_F32)
            return mica__f32_read(token.at, token.length, &step->constant.f32);
        if (step->type == MICA_REGISTER_F64)
            return mica__f64_read(token.at, token.length, &step->constant.f64);
        if (step->type == MICA_REGISTER_I32 || step->type == MICA_REGISTER_I64)
            return signed_of(&inner, INT64_MIN, INT64_MAX, &step->constant.i64);
        return mica__reader_uint(&inner, UINT64_MAX, &step->constant.u64);
    }
    while (!mica__reader_ends(reader) && *reader->at >= '0' && *reader->at <= '9') {
        if (values == 3 || !mica__reader_uint(reader, MICA_REGION_NONE - 1, &number))
            return false;
        step->value[values++] = (uint8_t)number;
    }
    if (mica__reader_takes(reader, "@")) {
        if (!mica__reader_uint(reader, MICA_MAX_DIMS - 1, &number))
            return false;
        step->axis = (uint8_t)number;
    }
    return true;
}

static bool read_steps(mica__reader *reader, mica__line *line, mica_region_desc *desc,
                       mica_region_step *steps)
{
    const mica__span *value = value_of(line, "steps"), *gives = value_of(line, "gives");
    uint64_t number = 0;
    if (value == NULL || gives == NULL)
        return mica__reader_wrong(reader, "'steps' or 'gives' is missing");
    mica__reader inner = mica__reader_of(reader, *value);
    while (!mica__reader_ends(&inner)) {
        if (desc->step_count == MICA_REGION_STEPS || !read_step(&inner, &steps[desc->step_count]))
            return mica__reader_wrong(reader, "step %u of the region is none", desc->step_count);
        desc->step_count++;
        if (!mica__reader_takes(&inner, ",") && !mica__reader_ends(&inner))
            return mica__reader_wrong(reader, "a step of the region goes on where it should end");
    }
    inner = mica__reader_of(reader, *gives);
    memset(desc->output_imag, MICA_REGION_NONE, sizeof desc->output_imag);
    do {
        if (desc->output_count == MICA_REGION_OUTPUTS ||
            !mica__reader_uint(&inner, MICA_REGION_NONE - 1, &number))
            return mica__reader_wrong(reader, "attribute 'gives' has no value, or too many");
        desc->output[desc->output_count] = (uint8_t)number;
        if (mica__reader_takes(&inner, "/")) {
            if (!mica__reader_uint(&inner, MICA_REGION_NONE - 1, &number))
                return mica__reader_wrong(reader, "attribute 'gives' has no second value");
            desc->output_imag[desc->output_count] = (uint8_t)number;
        }
        desc->output_count++;
    } while (mica__reader_takes(&inner, ","));
    return mica__reader_ends(&inner) || mica__reader_wrong(reader, "attribute 'gives' goes on");
}

static bool build_region(mica__reader *reader, mica__line *line)
{
    mica_region_step steps[MICA_REGION_STEPS];
    mica_region_desc desc = {.input_count = line->takes_count, .step = steps};
    mica_region *region = NULL;
    mica_dtype dtypes[MICA_REGION_OUTPUTS];
    if (line->takes_count > MICA_REGION_INPUTS)
        return mica__reader_wrong(reader, "a region of %u inputs", line->takes_count);
    for (uint32_t i = 0; i < line->takes_count; i++) {
        const mica__type *type = mica__graph_takes(line->graph, "region", "an input", line->takes[i]);
        if (type == NULL)
            return true; /* the graph has failed */
        desc.input[i] = (uint8_t)mica_register_of(type->dtype);
    }
    if (!read_steps(reader, line, &desc, steps))
        return false;
    if (line->type_count != desc.output_count || line->gives_count != desc.output_count)
        return mica__reader_wrong(reader, "a region of %u outputs with %u types", desc.output_count,
                                  line->type_count);
    for (uint32_t i = 0; i < desc.output_count; i++)
        dtypes[i] = line->type[i].dtype;
    const mica_status status = mica_region_create(&desc, &region);
    if (status != MICA_OK)
        return mica__reader_wrong(reader, "%.200s", mica_status_message());
    (void)mica_graph_region(line->graph, region, line->takes, dtypes, NULL);
    mica_region_release(region);
    return true;
}

/* ---- constants ---- */

static bool read_element(mica__reader *reader, mica_dtype dtype, unsigned char *to)
{
    const mica__span token = token_of(reader);
    mica__reader inner = mica__reader_of(reader, token);
    const uint32_t size = mica_dtype_block_bytes(dtype), bits = 8 * size;
    float f32 = 0;
    double f64 = 0;
    int64_t whole = 0;
    uint64_t word = 0;
    if (dtype == MICA_DTYPE_F64) {
        const bool fits = mica__f64_read(token.at, token.length, &f64);
        memcpy(to, &f64, size);
        return fits;
    }
    if (mica_register_of(dtype) == MICA_REGISTER_F32) {
        const bool fits = mica__f32_read(token.at, token.length, &f32);
        const uint16_t half = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(f32) : mica__f32_to_bf16(f32);
        if (size == 2)
            memcpy(to, &half, sizeof half);
        else
            memcpy(to, &f32, sizeof f32);
        return fits;
    }
    if (dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_I16 || dtype == MICA_DTYPE_I32 ||
        dtype == MICA_DTYPE_I64) {
        const int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
        const bool fits = signed_of(&inner, -most - 1, most, &whole) && mica__reader_ends(&inner);
        memcpy(to, &whole, size);
        return fits;
    }
    const bool fits =
        mica__reader_uint(&inner, UINT64_MAX >> (64 - bits), &word) && mica__reader_ends(&inner);
    memcpy(to, &word, size);
    return fits;
}

static bool read_hex(mica__span span, unsigned char *to, uint64_t bytes)
{
    if (span.length != 1 + 2 * bytes)
        return false;
    for (uint64_t i = 0; i < bytes; i++) {
        const int high = mica__hex_digit(span.at[1 + 2 * i]), low = mica__hex_digit(span.at[2 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool read_numbers(mica__reader *reader, mica_dtype dtype, unsigned char *to, uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++)
        if ((i != 0 && !mica__reader_takes(reader, ",")) ||
            !read_element(reader, dtype, to + i * mica_dtype_block_bytes(dtype)))
            return false;
    return mica__reader_ends(reader);
}

/* Bytes of a constant of a file. */
static bool fetch_constant(mica__reader *reader, mica__line *line, uint64_t number, uint64_t bytes)
{
    reader->status = reader->fetch(reader->context, (uint32_t)number, &line->type[0], NULL, bytes);
    if (reader->status != MICA_OK)
        return false; /* nothing is allocated for what is not there */
    mica__blob *blob = mica__blob_create(NULL, bytes);
    if (blob == NULL) {
        reader->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_load: no memory for %llu bytes",
                                    (unsigned long long)bytes);
        return false;
    }
    reader->status = reader->fetch(reader->context, (uint32_t)number, &line->type[0],
                                   (void *)(uintptr_t)blob->data, bytes);
    if (reader->status == MICA_OK)
        (void)mica__graph_constant_blob(line->graph, &line->type[0], blob);
    else
        mica__blob_release(blob);
    return reader->status == MICA_OK;
}

static bool build_constant(mica__reader *reader, mica__line *line)
{
    const mica__type *type = line->type; /* NULL where the line says none */
    mica__reader inner = mica__reader_of(reader, line->operands);
    unsigned char data[MICA__TEXT_ELEMENTS * 16];
    uint64_t number = 0;
    if (line->type_count != 1 || type->group_size != 0 || !takes_exactly(reader, line, 0))
        return mica__reader_wrong(reader, "a constant has one type, and takes nothing");
    for (uint32_t d = 0; d < type->ndim; d++)
        if (!mica__size_known(type->shape[d]) || type->shape[d] == MICA_SIZE_REST)
            return mica__reader_wrong(reader, "a constant has a size that is no number");
    char name[MICA_GRAPH_NAME_BYTES] = "constant ";
    mica__words digits = {.data = NULL};
    if (mica__reader_takes(&inner, "..")) {
        mica__words_uint(&digits, line->gives[0]);
        if (digits.data != NULL)
            memcpy(name + 9, digits.data, digits.length + 1);
        mica__words_free(&digits);
        (void)mica_graph_parameter(line->graph, name, type->dtype, type->ndim, type->shape);
        return true;
    }
    uint64_t elements = 1;
    for (uint32_t d = 0; d < type->ndim; d++) {
        if (type->shape[d] != 0 && elements > (1ull << 40) / type->shape[d])
            return mica__reader_wrong(reader, "a constant of over 2^40 elements");
        elements *= type->shape[d];
    }
    const uint64_t bytes = mica__type_bytes(type);
    const bool file = reader->fetch != NULL && mica__reader_takes(&inner, "c");
    if (file && mica__reader_uint(&inner, UINT32_MAX, &number) && mica__reader_ends(&inner))
        return fetch_constant(reader, line, number, bytes);
    if (file || elements > MICA__TEXT_ELEMENTS || bytes > sizeof data)
        return mica__reader_wrong(reader, "a constant of %llu elements is not in a text",
                                  (unsigned long long)elements);
    inner = mica__reader_of(reader, line->operands);
    (void)mica__reader_takes(&inner, "");
    const mica__span rest = {inner.at, (size_t)(inner.end - inner.at)};
    const bool hex = rest.length != 0 && *rest.at == 'x';
    if (hex ? !read_hex(rest, data, bytes)
            : !mica__has_numbers(type->dtype) || !read_numbers(&inner, type->dtype, data, elements))
        return mica__reader_wrong(reader, "the constant has other elements than its type takes");
    (void)mica_graph_constant(line->graph, type->dtype, type->ndim, type->shape, data, bytes);
    return true;
}

/* ---- all other kinds ---- */

static bool build_leaf(mica__reader *reader, mica__line *line, mica_node_kind kind)
{
    char name[MICA_GRAPH_NAME_BYTES];
    const mica__type *type = line->type;
    mica__reader inner = mica__reader_of(reader, line->operands);
    if (line->type_count != 1 || !takes_exactly(reader, line, 0))
        return mica__reader_wrong(reader, "an input or parameter has one type");
    const bool fits = mica__reader_string(&inner, name) && mica__reader_ends(&inner);
    if (!fits)
        return mica__reader_wrong(reader, "an input or parameter has one name, in quotes");
    if (kind == MICA_NODE_INPUT && type->group_size != 0)
        return mica__reader_wrong(reader, "an input has no table of scales");
    if (kind == MICA_NODE_INPUT)
        (void)mica_graph_input(line->graph, name, type->dtype, type->ndim, type->shape);
    else
        (void)mica_graph_parameter_scaled(line->graph, name, type->dtype, type->ndim, type->shape,
                                          type->group_size, type->scale_dtype);
    return true;
}

static bool build_shaped(mica__reader *reader, mica__line *line, mica_node_kind kind)
{
    uint64_t shape[MICA_MAX_DIMS], axis = 0;
    uint32_t ndim = 0;
    if (!shape_of(reader, line, &ndim, shape) ||
        !takes_exactly(reader, line, kind == MICA_NODE_INDEX ? 0 : 1))
        return false;
    if (kind == MICA_NODE_RESHAPE)
        (void)mica_graph_reshape(line->graph, line->takes[0], ndim, shape);
    else if (kind == MICA_NODE_EXPAND)
        (void)mica_graph_expand(line->graph, line->takes[0], ndim, shape);
    else if (line->type_count != 1 || !number_of(reader, line, "axis", MICA_MAX_DIMS, &axis))
        return mica__reader_wrong(reader, "an index has one type and an axis");
    else
        (void)mica_graph_index(line->graph, line->type[0].dtype, ndim, shape, (uint32_t)axis);
    return true;
}

static bool build_permute(mica__reader *reader, mica__line *line)
{
    const mica__span *value = value_of(line, "order");
    uint32_t order[MICA_MAX_DIMS] = {0}, count = 0;
    uint64_t number = 0;
    if (value == NULL || !takes_exactly(reader, line, 1))
        return mica__reader_wrong(reader, "attribute 'order' is missing");
    mica__reader inner = mica__reader_of(reader, *value);
    do {
        if (count == MICA_MAX_DIMS || !mica__reader_uint(&inner, MICA_MAX_DIMS, &number))
            return mica__reader_wrong(reader, "attribute 'order' is no order");
        order[count++] = (uint32_t)number;
    } while (mica__reader_takes(&inner, ","));
    const mica__type *type = mica__graph_takes(line->graph, "permute", "x", line->takes[0]);
    if (type != NULL && (type->ndim != count || !mica__reader_ends(&inner)))
        return mica__reader_wrong(reader, "attribute 'order' has %u dimensions, not %u", count, type->ndim);
    (void)mica_graph_permute(line->graph, line->takes[0], order);
    return true;
}

static bool build_slice(mica__reader *reader, mica__line *line)
{
    uint64_t axis = 0, start = 0, count = 0, step = 0;
    if (!takes_exactly(reader, line, 1) || !number_of(reader, line, "axis", MICA_MAX_DIMS, &axis) ||
        !number_of(reader, line, "start", 1ull << 48, &start) ||
        !number_of(reader, line, "count", 1ull << 48, &count) ||
        !number_of(reader, line, "step", 1ull << 48, &step))
        return false;
    (void)mica_graph_slice(line->graph, line->takes[0], (uint32_t)axis, start, count, (int64_t)step);
    return true;
}

static bool build_concat(mica__reader *reader, mica__line *line)
{
    uint64_t axis = 0;
    if (!number_of(reader, line, "axis", MICA_MAX_DIMS, &axis))
        return false;
    (void)mica_graph_concat(line->graph, line->takes, line->takes_count, (uint32_t)axis);
    return true;
}

static bool build_one(mica__reader *reader, mica__line *line, mica_node_kind kind)
{
    if (!takes_exactly(reader, line, 1))
        return false;
    if (kind == MICA_NODE_STOP_GRADIENT)
        (void)mica_graph_stop_gradient(line->graph, line->takes[0]);
    else if (line->type_count != 1)
        return mica__reader_wrong(reader, "a cast has one type");
    else if (kind == MICA_NODE_CAST)
        (void)mica_graph_cast(line->graph, line->takes[0], line->type[0].dtype);
    else
        (void)mica_graph_bits(line->graph, line->takes[0], line->type[0].dtype);
    return true;
}

static bool build_body(mica__reader *reader, mica__line *line, mica_node_kind kind)
{
    uint64_t flags = 0, carried = 0, scanned = 0, reverse = 0;
    mica__body_data data = {.body = {NULL, NULL}};
    if (!number_of(reader, line, "flags", MICA_CALL_CHECKPOINT, &flags) ||
        !number_of(reader, line, "most", UINT64_MAX, &data.most) ||
        !number_of(reader, line, "carried", MICA_GRAPH_INPUTS, &carried) ||
        !number_of(reader, line, "scanned", MICA_GRAPH_INPUTS, &scanned) ||
        !number_of(reader, line, "reverse", 1, &reverse) ||
        !number_of(reader, line, "length", 1ull << 32, &data.scan.length))
        return false;
    const uint32_t wanted = kind == MICA_NODE_IF || kind == MICA_NODE_WHILE ? 2 : 1;
    const uint32_t found = (line->body[0] != NULL) + (uint32_t)(line->body[1] != NULL);
    const bool loop = kind == MICA_NODE_SCAN;
    if (found < wanted || (loop && found != 1) || (kind == MICA_NODE_IF && line->takes_count == 0))
        return mica__reader_wrong(reader, "'%.*s' has %u sub-graphs and takes %u tensors",
                                  (int)line->name.length, line->name.at, found, line->takes_count);
    if ((!loop && (scanned | reverse | data.scan.length) != 0) ||
        (loop && carried + scanned > line->takes_count) || (kind != MICA_NODE_CALL && flags != 0) ||
        (kind != MICA_NODE_WHILE && data.most != 0) || (!loop && kind != MICA_NODE_WHILE && carried != 0))
        return mica__reader_wrong(reader, "'%.*s' has an attribute that it cannot have",
                                  (int)line->name.length, line->name.at);
    data.flags = (uint32_t)flags;
    if (loop)
        data.scan = (mica_scan_desc){.carried = (uint32_t)carried,
                                     .scanned = (uint32_t)scanned,
                                     .others = line->takes_count - (uint32_t)(carried + scanned),
                                     .reverse = (uint32_t)reverse,
                                     .length = data.scan.length};
    else
        data.carried = (uint32_t)carried;
    memcpy(data.body, line->body, sizeof data.body);
    line->body[0] = line->body[1] = NULL; /* the graph takes them over */
    mica_tensor *outputs = mica__alloc((line->gives_count + 1) * sizeof *outputs);
    if (outputs == NULL) {
        mica_graph_release(data.body[0]);
        mica_graph_release(data.body[1]);
        reader->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_parse: no memory");
        return false;
    }
    (void)mica__graph_body_node(line->graph, kind, &data, line->takes, line->takes_count, outputs,
                                line->gives_count);
    mica__free(outputs);
    return true;
}

/* A caller's op, which has no functions until it is bound. */
static bool build_custom(mica__reader *reader, mica__line *line)
{
    const mica__span *name = value_of(line, "name"), *params = value_of(line, "params");
    const uint64_t bytes = params == NULL ? 0 : params->length / 2;
    if (name == NULL || name->length == 0 || name->length >= MICA_CUSTOM_NAME_BYTES ||
        memchr(name->at, '\0', name->length) != NULL)
        return mica__reader_wrong(reader, "a custom op has a name of up to %u bytes",
                                  MICA_CUSTOM_NAME_BYTES - 1);
    if (line->gives_count > MICA_CUSTOM_TENSORS || line->type_count != line->gives_count)
        return mica__reader_wrong(reader, "a custom op of %u outputs with %u types", line->gives_count,
                                  line->type_count);
    for (uint32_t i = 0; i < line->type_count; i++)
        if (line->type[i].group_size != 0 || mica_dtype_block_elements(line->type[i].dtype) != 1)
            return mica__reader_wrong(reader, "a custom op gives no blocks");
    mica__custom_data *data = bytes <= MICA_CUSTOM_PARAM_BYTES ? mica__calloc(1, sizeof *data + bytes) : NULL;
    if (data == NULL)
        return mica__reader_wrong(reader, "a custom op has up to %u bytes of parameters",
                                  MICA_CUSTOM_PARAM_BYTES);
    memcpy(data->name, name->at, name->length);
    data->params_bytes = (uint32_t)bytes;
    const bool fits =
        strspn(data->name, MICA__CUSTOM_LETTERS) == name->length &&
        (params == NULL || (*params->at == 'x' && bytes != 0 && read_hex(*params, data->params, bytes)));
    if (fits)
        (void)mica__graph_custom_node(line->graph, data, line->takes, line->takes_count, line->type, NULL,
                                      line->gives_count);
    mica__free(data);
    return fits || mica__reader_wrong(reader, "a custom op has a name or parameters that it cannot have");
}

static bool build_kind(mica__reader *reader, mica__line *line, mica_node_kind kind, uint32_t code)
{
    switch (kind) {
    case MICA_NODE_INPUT:
    case MICA_NODE_PARAMETER: return build_leaf(reader, line, kind);
    case MICA_NODE_CONSTANT: return build_constant(reader, line);
    case MICA_NODE_SCALAR:
        if (line->takes_count == 0 || line->takes_count > 3)
            return takes_exactly(reader, line, 1);
        (void)mica_graph_scalar(line->graph, (mica_scalar)code, line->takes[0],
                                line->takes_count > 1 ? line->takes[1] : 0,
                                line->takes_count > 2 ? line->takes[2] : 0);
        return true;
    case MICA_NODE_OP: return build_op(reader, line, (mica_op)code);
    case MICA_NODE_REGION: return build_region(reader, line);
    case MICA_NODE_CAST:
    case MICA_NODE_BITS:
    case MICA_NODE_STOP_GRADIENT: return build_one(reader, line, kind);
    case MICA_NODE_INDEX:
    case MICA_NODE_RESHAPE:
    case MICA_NODE_EXPAND: return build_shaped(reader, line, kind);
    case MICA_NODE_PERMUTE: return build_permute(reader, line);
    case MICA_NODE_SLICE: return build_slice(reader, line);
    case MICA_NODE_CONCAT: return build_concat(reader, line);
    case MICA_NODE_CALL:
    case MICA_NODE_IF:
    case MICA_NODE_WHILE:
    case MICA_NODE_SCAN: return build_body(reader, line, kind);
    case MICA_NODE_CUSTOM: return build_custom(reader, line);
    default:
        return mica__reader_wrong(reader, "'%.*s' is no node of a text", (int)line->name.length,
                                  line->name.at);
    }
}

/* That the node gives what the line says: numbers, types, and no attribute that nobody asked for. */
static bool is_as_stated(mica__reader *reader, const mica__line *line, uint32_t nodes)
{
    const mica_graph *graph = line->graph;
    const mica__node *node = graph->node_count == 0 ? NULL : &graph->node[graph->node_count - 1];
    uint32_t type = 0;
    if (graph->status != MICA_OK)
        return true;
    if (graph->node_count != nodes + 1 || node->output_count != line->gives_count ||
        node->input_count != line->takes_count)
        return mica__reader_wrong(reader, "the node is another than '%.*s' of so many tensors",
                                  (int)line->name.length, line->name.at);
    for (uint32_t i = 0; i < line->attribute_count; i++)
        if (!line->attribute[i].used)
            return mica__reader_wrong(reader, "'%.*s' has no attribute '%.*s'", (int)line->name.length,
                                      line->name.at, (int)line->attribute[i].key.length,
                                      line->attribute[i].key.at);
    for (uint32_t i = 0; i < line->gives_count; i++) {
        const mica_tensor tensor = mica__node_outputs(graph, node)[i];
        if (tensor != line->gives[i])
            return mica__reader_wrong(reader, "it gives %%%u, but the next tensor is %%%u", line->gives[i],
                                      tensor);
        if (tensor == 0 || line->type_count == 0)
            continue;
        const mica__type *is = mica__type_of(graph, tensor), *stated = &line->type[type];
        if (type++ >= line->type_count || is->dtype != stated->dtype || is->ndim != stated->ndim ||
            memcmp(is->shape, stated->shape, is->ndim * sizeof is->shape[0]) != 0)
            return mica__reader_wrong(reader, "%%%u has another type or shape", tensor);
    }
    return type == line->type_count ||
           mica__reader_wrong(reader, "there are types of %u tensors, not %u", line->type_count, type);
}

bool mica__line_build(mica__reader *reader, mica__line *line)
{
    mica_node_kind kind = MICA_NODE_NONE;
    uint32_t code = 0;
    uint64_t round = 0, place = 0;
    const uint32_t nodes = line->graph->node_count;
    if (!mica__node_named(line->name.at, line->name.length, &kind, &code))
        return mica__reader_wrong(reader, "there is no node called '%.*s'", (int)line->name.length,
                                  line->name.at);
    if (line->body[0] != NULL && (kind < MICA_NODE_CALL || kind > MICA_NODE_SCAN))
        return mica__reader_wrong(reader, "'%.*s' has no sub-graphs", (int)line->name.length, line->name.at);
    mica__reader operands = mica__reader_of(reader, line->operands);
    if (kind > MICA_NODE_CONSTANT && line->takes_count == 0 && !mica__reader_ends(&operands))
        return mica__reader_wrong(reader, "'%.*s' takes tensors", (int)line->name.length, line->name.at);
    if (!number_of(reader, line, "round", UINT16_MAX, &round) ||
        !number_of(reader, line, "place", MICA_GRAPH_PLACES - 1, &place))
        return false;
    (void)mica_graph_label(line->graph, line->label);
    line->graph->round = (uint16_t)round;
    line->graph->place = (uint8_t)place;
    const bool fits = build_kind(reader, line, kind, code);
    line->graph->round = 0;
    line->graph->place = 0;
    return fits && is_as_stated(reader, line, nodes);
}
