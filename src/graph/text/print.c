/*
 * print.c - a graph as text (text.h), and for Graphviz.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "graph/custom.h"
#include "graph/text/text.h"

/* What is being written. */
typedef struct printing {
    mica__words *words;
    const mica_graph *graph;
    mica__text_blobs *blobs;
    uint32_t indent;
} printing;

static void put(printing *p, const char *text)
{
    mica__words_text(p->words, text);
}

static void put_tensor(printing *p, mica_tensor tensor, const char *absent)
{
    if (tensor == 0) {
        put(p, absent);
        return;
    }
    mica__words_add(p->words, "%", 1);
    mica__words_uint(p->words, tensor);
}

static bool is_word(const char *name)
{
    if (strspn(name, "0123456789") != 0 || strcmp(name, "rest") == 0)
        return false;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] == 0;
}

static void put_symbol(printing *p, const char *name)
{
    if (is_word(name))
        put(p, name);
    else
        mica__words_quoted(p->words, name);
}

static void put_size(printing *p, uint64_t size)
{
    if (mica__size_known(size) && size != MICA_SIZE_REST)
        mica__words_uint(p->words, size);
    else if (size == MICA_SIZE_REST)
        put(p, "rest");
    else if (size == MICA_SIZE_UNKNOWN)
        put(p, "?");
    else
        put_symbol(p, mica_graph_symbol_name(p->graph, size));
}

static void put_shape(printing *p, uint32_t ndim, const uint64_t *shape)
{
    put(p, "[");
    for (uint32_t d = 0; d < ndim; d++) {
        if (d != 0)
            put(p, ", ");
        put_size(p, shape[d]);
    }
    put(p, "]");
}

static void put_type(printing *p, const mica__type *type)
{
    put(p, mica_dtype_name(type->dtype));
    put(p, " ");
    put_shape(p, type->ndim, type->shape);
    if (type->group_size != 0) {
        put(p, " group ");
        mica__words_uint(p->words, type->group_size);
        put(p, " ");
        put(p, mica_dtype_name(type->scale_dtype));
    }
}

/* ---- attributes ---- */

static void put_key(printing *p, const char *key)
{
    put(p, " ");
    put(p, key);
    put(p, "=");
}

static void put_attribute(printing *p, const char *key, uint64_t value)
{
    if (value == 0)
        return;
    put_key(p, key);
    mica__words_uint(p->words, value);
}

static void put_field_value(printing *p, const mica__field *field, const char *at)
{
    union {
        uint32_t u32;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } value;
    memcpy(&value, at, field->form == MICA__FORM_I64 || field->form == MICA__FORM_F64 ? 8 : 4);
    if (field->form == MICA__FORM_U32)
        mica__words_uint(p->words, value.u32);
    else if (field->form == MICA__FORM_I32)
        mica__words_int(p->words, value.i32);
    else if (field->form == MICA__FORM_I64)
        mica__words_int(p->words, value.i64);
    else if (field->form == MICA__FORM_F32)
        mica__words_f32(p->words, value.f32);
    else
        mica__words_f64(p->words, value.f64);
}

static void put_field(printing *p, const mica__field *field, const char *params)
{
    static const char zeros[64] = {0};
    const size_t each = field->form == MICA__FORM_I64 || field->form == MICA__FORM_F64 ? 8 : 4;
    const char *at = params + field->offset;
    uint32_t count = field->count;
    while (count > 0 && memcmp(at + (count - 1) * each, zeros, each) == 0)
        count--;
    if (count == 0)
        return;
    put_key(p, field->name);
    if (field->count != 1)
        put(p, "(");
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0)
            put(p, ", ");
        put_field_value(p, field, at + i * each);
    }
    if (field->count != 1)
        put(p, ")");
}

/* What outputs were asked to be: "-" for what follows by itself. */
static void put_asked(printing *p, const mica__node *node, const mica__op_data *data)
{
    bool any = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        any |= data->asked[i].dtype != MICA_DTYPE_NONE ||
               (data->asked[i].ndim != 0 && data->asked[i].ndim != MICA_RANK_UNKNOWN);
    if (!any)
        return;
    put(p, " as=(");
    for (uint32_t i = 0; i < node->output_count; i++) {
        const mica_operand_desc *asked = &data->asked[i];
        const bool shaped =
            asked->ndim != MICA_RANK_UNKNOWN && (asked->ndim != 0 || asked->dtype != MICA_DTYPE_NONE);
        if (i != 0)
            put(p, ", ");
        put(p, asked->dtype == MICA_DTYPE_NONE ? "-" : mica_dtype_name(asked->dtype));
        if (!shaped)
            continue;
        put(p, " ");
        put_shape(p, asked->ndim, asked->shape);
    }
    put(p, ")");
}

static void put_op(printing *p, const mica__node *node)
{
    const char *params = mica__op_params(node);
    for (const mica__field *f = mica__fields_of((mica_op)node->code); params != NULL && f->name != NULL; f++)
        put_field(p, f, params);
    put_asked(p, node, node->data);
}

static void put_constant_value(printing *p, const mica_region_step *step)
{
    put(p, " ");
    if (step->type == MICA_REGISTER_F32)
        mica__words_f32(p->words, step->constant.f32);
    else if (step->type == MICA_REGISTER_F64)
        mica__words_f64(p->words, step->constant.f64);
    else if (step->type == MICA_REGISTER_I32 || step->type == MICA_REGISTER_I64)
        mica__words_int(p->words, step->constant.i64);
    else
        mica__words_uint(p->words, step->constant.u64);
}

/* steps=(mul f32 0 1, constant f32 1.5, index i32 @0) gives=(3, 4/5): values by number, that of a step behind those of the inputs. */
static void put_region(printing *p, const mica__node *node)
{
    const mica__region_program *program = node->data;
    put(p, " steps=(");
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        if (s != 0)
            put(p, ", ");
        put(p, mica_scalar_name(step->scalar));
        put(p, " ");
        put(p, mica_register_name((mica_register)step->type));
        for (uint32_t i = 0; i < 3 && step->value[i] != MICA_REGION_NONE; i++) {
            put(p, " ");
            mica__words_uint(p->words, step->value[i]);
        }
        if (step->scalar == MICA_SCALAR_CONSTANT)
            put_constant_value(p, step);
        if (step->axis != 0) {
            put(p, " @");
            mica__words_uint(p->words, step->axis);
        }
    }
    put(p, ") gives=(");
    for (uint32_t i = 0; i < program->output_count; i++) {
        if (i != 0)
            put(p, ", ");
        mica__words_uint(p->words, program->output[i]);
        if (program->output_imag[i] != MICA_REGION_NONE) {
            put(p, "/");
            mica__words_uint(p->words, program->output_imag[i]);
        }
    }
    put(p, ")");
}

static void put_body_attributes(printing *p, const mica__node *node)
{
    const mica__body_data *data = node->data;
    put_attribute(p, "flags", data->flags);
    put_attribute(p, "most", data->most);
    put_attribute(p, "carried", node->kind == MICA_NODE_SCAN ? data->scan.carried : data->carried);
    put_attribute(p, "scanned", data->scan.scanned);
    put_attribute(p, "reverse", data->scan.reverse);
    put_attribute(p, "length", data->scan.length);
}

static void put_view(printing *p, const mica__node *node)
{
    const mica__shape_data *shape = node->data;
    const mica__slice_data *slice = node->data;
    if (node->kind == MICA_NODE_PERMUTE) {
        const uint32_t ndim = mica__type_of(p->graph, *mica__node_inputs(p->graph, node))->ndim;
        put(p, " order=(");
        for (uint32_t d = 0; d < ndim; d++) {
            if (d != 0)
                put(p, ", ");
            mica__words_uint(p->words, ((const mica__permute_data *)node->data)->order[d]);
        }
        put(p, ")");
    } else if (node->kind == MICA_NODE_SLICE) {
        put_attribute(p, "axis", slice->axis);
        put_attribute(p, "start", slice->start);
        put_key(p, "count");
        mica__words_uint(p->words, slice->count);
        put_key(p, "step");
        mica__words_int(p->words, slice->step);
    } else if (node->kind == MICA_NODE_CONCAT) {
        put_attribute(p, "axis", ((const mica__concat_data *)node->data)->axis);
    } else {
        put_key(p, "shape");
        put_shape(p, shape->ndim, shape->shape);
        put_attribute(p, "axis", node->kind == MICA_NODE_INDEX ? shape->axis : 0);
    }
}

static void put_bytes(printing *p, const unsigned char *data, uint64_t bytes)
{
    static const char hex[] = "0123456789abcdef";
    put(p, "x");
    for (uint64_t i = 0; i < bytes; i++)
        mica__words_add(p->words, (const char[]){hex[data[i] >> 4], hex[data[i] & 15]}, 2);
}

static void put_custom(printing *p, const mica__node *node)
{
    const mica__custom_data *data = node->data;
    put_key(p, "name");
    put(p, data->name);
    if (data->params_bytes == 0)
        return;
    put_key(p, "params");
    put_bytes(p, data->params, data->params_bytes);
}

static void put_attributes(printing *p, const mica__node *node)
{
    if (node->kind == MICA_NODE_OP)
        put_op(p, node);
    else if (node->kind == MICA_NODE_REGION)
        put_region(p, node);
    else if (node->kind == MICA_NODE_CUSTOM)
        put_custom(p, node);
    else if (node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN)
        put_body_attributes(p, node);
    else if (node->kind == MICA_NODE_INDEX ||
             (node->kind >= MICA_NODE_RESHAPE && node->kind <= MICA_NODE_CONCAT))
        put_view(p, node);
    put_attribute(p, "round", node->round);
    put_attribute(p, "place", node->place);
}

/* ---- what goes in ---- */

static void put_element(printing *p, mica_dtype dtype, const unsigned char *at)
{
    uint64_t bits = 0;
    float f32;
    double f64;
    const uint32_t size = mica_dtype_block_bytes(dtype), shift = 64 - 8 * size;
    memcpy(&bits, at, size); /* of numbers of 8 bytes and less, on machines whose least byte is first */
    const int64_t whole = (int64_t)(bits << shift) >> shift;
    memcpy(&f32, at, size < 4 ? 0 : 4);
    memcpy(&f64, at, size < 8 ? 0 : 8);
    if (dtype == MICA_DTYPE_F32)
        mica__words_f32(p->words, f32);
    else if (dtype == MICA_DTYPE_F64)
        mica__words_f64(p->words, f64);
    else if (dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_I16 || dtype == MICA_DTYPE_I32 ||
             dtype == MICA_DTYPE_I64)
        mica__words_int(p->words, whole);
    else
        mica__words_uint(p->words, bits);
}

/* f16 and bf16 as numbers, where that says all of them. */
static bool put_half(printing *p, mica_dtype dtype, const unsigned char *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    const float value = dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(bits) : mica__bf16_to_f32(bits);
    if (value != value)
        return false;
    mica__words_f32(p->words, value);
    return true;
}

static void put_numbers(printing *p, const mica__blob *blob, mica_dtype dtype)
{
    const uint32_t size = mica_dtype_block_bytes(dtype);
    const bool half = dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
    const size_t begin = p->words->length;
    for (uint64_t i = 0; i < blob->bytes / size; i++) {
        const unsigned char *at = (const unsigned char *)blob->data + i * size;
        if (i != 0)
            put(p, ", ");
        if (half && !put_half(p, dtype, at)) {
            p->words->length = begin;
            put_bytes(p, blob->data, blob->bytes);
            return;
        }
        if (!half)
            put_element(p, dtype, at);
    }
}

static void put_constant(printing *p, const mica__node *node)
{
    const mica__blob *blob = ((const mica__constant_data *)node->data)->blob;
    const mica__type *type = mica__type_of(p->graph, *mica__node_outputs(p->graph, node));
    mica__text_blobs *blobs = p->blobs;
    const bool few = mica__type_elements(type) <= MICA__TEXT_ELEMENTS;
    if (few && mica__has_numbers(type->dtype)) {
        put_numbers(p, blob, type->dtype);
    } else if (few) {
        put_bytes(p, blob->data, blob->bytes);
    } else if (blobs == NULL) {
        put(p, "..");
    } else {
        if (blobs->count == blobs->capacity) {
            const uint32_t capacity = blobs->capacity < 64 ? 64 : blobs->capacity * 2;
            void *list = mica__realloc(blobs->list, capacity * sizeof *blobs->list);
            p->words->failed |= list == NULL;
            if (list == NULL)
                return;
            blobs->list = list;
            blobs->capacity = capacity;
        }
        put(p, "c");
        mica__words_uint(p->words, blobs->count);
        blobs->list[blobs->count++] = (mica__text_blob){.type = type, .blob = blob};
    }
}

static void put_operands(printing *p, const mica__node *node)
{
    const mica_tensor *inputs = mica__node_inputs(p->graph, node);
    if (node->kind == MICA_NODE_INPUT || node->kind == MICA_NODE_PARAMETER) {
        mica__words_quoted(p->words, p->graph->text + ((const mica__leaf_data *)node->data)->name);
        return;
    }
    if (node->kind == MICA_NODE_CONSTANT) {
        put_constant(p, node);
        return;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (i != 0)
            put(p, ", ");
        put_tensor(p, inputs[i], "-");
    }
}

/* ---- lines ---- */

static void put_indent(printing *p)
{
    for (uint32_t i = 0; i < p->indent; i++)
        mica__words_add(p->words, "  ", 2);
}

static void put_label(printing *p, const mica__node *node)
{
    const char *label = p->graph->text + node->label;
    if (*label == 0)
        return;
    put(p, "  # ");
    for (const char *c = label; *c != 0; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f || *label == '"' || *label == ' ') {
            mica__words_quoted(p->words, label);
            return;
        }
    if (label[strlen(label) - 1] == ' ')
        mica__words_quoted(p->words, label);
    else
        put(p, label);
}

static void put_graph(printing *p);

static void put_bodies(printing *p, const mica__node *node)
{
    const mica__body_data *data = node->data;
    for (uint32_t i = 0; i < 2 && data->body[i] != NULL; i++) {
        printing inner = {
            .words = p->words, .graph = data->body[i], .blobs = p->blobs, .indent = p->indent + 1};
        put(p, " {");
        if (i == 0)
            put_label(p, node);
        put(p, "\n");
        put_graph(&inner);
        put_indent(p);
        put(p, "}");
    }
}

static void put_node(printing *p, const mica__node *node)
{
    const mica_tensor *outputs = mica__node_outputs(p->graph, node);
    bool first = true;
    put_indent(p);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (i != 0)
            put(p, ", ");
        put_tensor(p, outputs[i], "_");
    }
    put(p, " = ");
    put(p, mica__node_name(node));
    put(p, "(");
    put_operands(p, node);
    put(p, ")");
    put_attributes(p, node);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (outputs[i] == 0)
            continue;
        put(p, first ? " : " : ", ");
        first = false;
        put_type(p, mica__type_of(p->graph, outputs[i]));
    }
    if (node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN)
        put_bodies(p, node);
    else
        put_label(p, node);
    put(p, "\n");
}

static void put_graph(printing *p)
{
    const mica_graph *graph = p->graph;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        if (i == 0)
            put_indent(p);
        put(p, i == 0 ? "symbols " : ", ");
        put_symbol(p, graph->text + graph->symbol[i]);
        if (i + 1 == graph->symbol_count)
            put(p, "\n");
    }
    for (uint32_t i = 0; i < graph->node_count && !p->words->failed; i++)
        put_node(p, &graph->node[i]);
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        put_indent(p);
        put(p, "output ");
        mica__words_quoted(p->words, graph->text + graph->outputs.list[i].name);
        put(p, " = ");
        put_tensor(p, graph->outputs.list[i].tensor, "-");
        put(p, "\n");
    }
    for (uint32_t i = 0; i < graph->outputs.count;
         i++) { /* behind all of them: one may count an earlier one */
        uint32_t axis = 0;
        const char *count = mica_graph_get_output_rows(graph, i, &axis);
        if (count == NULL)
            continue;
        put_indent(p);
        put(p, "rows ");
        mica__words_quoted(p->words, graph->text + graph->outputs.list[i].name);
        put(p, " along ");
        mica__words_uint(p->words, axis);
        put(p, " = ");
        mica__words_quoted(p->words, count);
        put(p, "\n");
    }
}

mica_status mica__graph_write(const mica_graph *graph, mica__words *words, mica__text_blobs *blobs)
{
    printing p = {.words = words, .graph = graph, .blobs = blobs};
    put_graph(&p);
    return words->failed ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_print: no memory for %zu bytes of text",
                                      words->length)
                         : MICA_OK;
}

/* ---- for Graphviz ---- */

/* "a [label=TEXT];" */
static void put_titled(printing *p, const char *between, uint32_t to, const char *text)
{
    put(p, between);
    mica__words_uint(p->words, to);
    put(p, " [label=");
    mica__words_quoted(p->words, text == NULL ? "" : text);
    put(p, "];\n");
}

static void put_dot_node(printing *p, uint32_t i)
{
    const mica_graph *graph = p->graph;
    const mica__node *node = &graph->node[i];
    mica__words line = {.data = NULL};
    printing inner = {.words = &line, .graph = graph};
    put(&inner, mica__node_name(node));
    if (node->input_count == 0) {
        put(&inner, " ");
        put_operands(&inner, node);
    }
    put_attributes(&inner, node);
    put_label(&inner, node);
    put_titled(p, "  n", i, line.data);
    for (uint32_t k = 0; k < node->input_count; k++) {
        const mica_tensor tensor = mica__node_inputs(graph, node)[k];
        if (tensor == 0)
            continue;
        line.length = 0;
        put_type(&inner, mica__type_of(graph, tensor));
        put(p, "  n");
        mica__words_uint(p->words, graph->tensor[tensor].node);
        put_titled(p, " -> n", i, line.data);
    }
    p->words->failed |= line.failed;
    mica__words_free(&line);
}

/* One node a box, one operand an edge with its type. Sub-graphs are not looked into. */
static void put_dot(printing *p)
{
    const mica_graph *graph = p->graph;
    put(p, "digraph mica {\n  node [shape=box];\n");
    for (uint32_t i = 0; i < graph->node_count; i++)
        put_dot_node(p, i);
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        put_titled(p, "  o", i, graph->text + graph->outputs.list[i].name);
        put(p, "  n");
        mica__words_uint(p->words, graph->tensor[graph->outputs.list[i].tensor].node);
        put(p, " -> o");
        mica__words_uint(p->words, i);
        put(p, ";\n");
    }
    put(p, "}\n");
}

/* ---- calls ---- */

static mica_status give_text(const char *call, const mica_graph *graph, void (*write)(printing *p),
                             char *text, uint64_t capacity, uint64_t *out_length)
{
    mica__words words = {.data = NULL};
    printing p = {.words = &words, .graph = graph};
    if (out_length != NULL)
        *out_length = 0;
    if (capacity != 0 && text != NULL)
        *text = 0;
    if (graph == NULL || (text == NULL && capacity != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          graph == NULL ? "graph" : "text");
    MICA__TRY(mica_graph_status(graph));
    write(&p);
    const bool failed = words.failed;
    if (!failed && capacity != 0) {
        const size_t part = words.length < capacity - 1 ? words.length : (size_t)capacity - 1;
        if (part != 0)
            memcpy(text, words.data, part);
        text[part] = 0;
    }
    if (!failed && out_length != NULL)
        *out_length = words.length;
    mica__words_free(&words);
    return failed ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "%s: no memory for the text", call) : MICA_OK;
}

mica_status mica_graph_print(const mica_graph *graph, char *text, uint64_t capacity, uint64_t *out_length)
{
    return give_text("graph_print", graph, put_graph, text, capacity, out_length);
}

mica_status mica_graph_print_dot(const mica_graph *graph, char *text, uint64_t capacity, uint64_t *out_length)
{
    return give_text("graph_print_dot", graph, put_dot, text, capacity, out_length);
}
