/*
 * onnx_read.c - the messages of an ONNX file: the model, functions, graphs, nodes, attributes, values.
 *
 * Each message is walked twice: to count the fields that repeat, and to read them into tables of that length. A walk does not look into the messages in
 * a message, so that the whole takes steps in proportion to the file times the depth of its graphs, which is bounded.
 */
#include "format/onnx_memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "format/chunks.h"

#define MOST_BYTES \
    ((size_t)1 << 31) /* what protocol buffers allow; weights beyond lie in files of their own */

static mica_status read_graph(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                              mica__onnx_graph *out);

/* The message of a field. */
static mica_status inside(const mica__onnx_parser *p, const mica__proto_message *m,
                          const mica__proto_field *f, mica__proto_message *out)
{
    *out = f->content;
    return mica__onnx_coded(p, m, f, MICA__PROTO_BYTES);
}

/* ONNX's own domain has two names. */
static mica_status read_domain(const mica__onnx_parser *p, const mica__proto_field *f, const char **out)
{
    MICA__TRY(mica__onnx_name(p, f, out));
    if (strcmp(*out, "ai.onnx") == 0)
        *out = "";
    return MICA_OK;
}

static mica_status read_opset(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_opset *out)
{
    *out = (mica__onnx_opset){.domain = ""};
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 1)
            MICA__TRY(read_domain(p, &f, &out->domain));
        if (f.number == 2) {
            MICA__TRY(mica__onnx_coded(p, &m, &f, MICA__PROTO_VARINT));
            out->version = f.value;
        }
    }
    return MICA_OK;
}

/* ---- what is said of a value ---------------------------------------------------------------------------- */

static mica_status read_dim(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_dim *out)
{
    *out = (mica__onnx_dim){.name = ""};
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 2)
            MICA__TRY(mica__onnx_name(p, &f, &out->name));
        if (f.number == 1) {
            MICA__TRY(mica__onnx_coded(p, &m, &f, MICA__PROTO_VARINT));
            out->known = f.value <= INT64_MAX; /* some writers say -1 for what they do not know */
            out->size = out->known ? f.value : 0;
        }
    }
    return MICA_OK;
}

static mica_status read_shape(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_value *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    mica__onnx_dim *dim = NULL;
    MICA__TRY(mica__onnx_count(p, m, counts));
    MICA__TRY(mica__onnx_take(p, counts[1], sizeof *dim, &dim));
    out->ranked = true;
    out->ndim = counts[1];
    out->dim = dim;
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message content;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number != 1)
            continue;
        MICA__TRY(inside(p, &m, &f, &content));
        MICA__TRY(read_dim(p, content, dim++));
    }
    return MICA_OK;
}

static mica_status read_tensor_type(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_value *out)
{
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message content;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 1) {
            MICA__TRY(mica__onnx_coded(p, &m, &f, MICA__PROTO_VARINT));
            if (f.value != 0 && mica__onnx_type_get(f.value) == NULL)
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "\"%s\": value \"%.200s\" is of type %llu, which is not known",
                                  p->proto.path, out->name, (unsigned long long)f.value);
            out->type = (mica__onnx_type)f.value;
        } else if (f.number == 2) {
            MICA__TRY(inside(p, &m, &f, &content));
            MICA__TRY(read_shape(p, content, out));
        }
    }
    return MICA_OK;
}

static mica_status read_value(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_value *out)
{
    mica__proto_message type = {0};
    *out = (mica__onnx_value){.name = ""};
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 1)
            MICA__TRY(mica__onnx_name(p, &f, &out->name));
        if (f.number == 2)
            MICA__TRY(inside(p, &m, &f, &type));
    }
    while (type.at != type.end) {
        mica__proto_field f;
        mica__proto_message content;
        MICA__TRY(mica__proto_next(&p->proto, &type, &f));
        if (f.number == 6) /* its meaning in words */
            continue;
        MICA__TRY(inside(p, &type, &f, &content));
        out->kind = f.number;
        if (f.number == 1)
            MICA__TRY(read_tensor_type(p, content, out));
    }
    return MICA_OK;
}

/* ---- attributes and nodes ------------------------------------------------------------------------------- */

/* The fields of AttributeProto that hold what, by kind. */
static const uint8_t kind_fields[MICA__ONNX_KIND_COUNT] = {
    [MICA__ONNX_KIND_FLOAT] = 2,   [MICA__ONNX_KIND_INT] = 3,     [MICA__ONNX_KIND_STRING] = 4,
    [MICA__ONNX_KIND_TENSOR] = 5,  [MICA__ONNX_KIND_GRAPH] = 6,   [MICA__ONNX_KIND_FLOATS] = 7,
    [MICA__ONNX_KIND_INTS] = 8,    [MICA__ONNX_KIND_STRINGS] = 9, [MICA__ONNX_KIND_TENSORS] = 10,
    [MICA__ONNX_KIND_GRAPHS] = 11, [MICA__ONNX_KIND_SPARSE] = 22, [MICA__ONNX_KIND_SPARSES] = 23,
    [MICA__ONNX_KIND_TYPE] = 14,   [MICA__ONNX_KIND_TYPES] = 15,
};

static mica_status bad_attribute(const mica__onnx_parser *p, const mica__onnx_attribute *a, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": attribute \"%.200s\": %s", p->proto.path, a->name,
                      what);
}

static mica_status read_floats(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_attribute *out)
{
    const uint64_t *numbers;
    uint64_t count = 0;
    float *floats = NULL;
    MICA__TRY(mica__onnx_numbers(p, m, 7, 4, &numbers, &count));
    MICA__TRY(mica__onnx_take(p, count, sizeof *floats, &floats));
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)numbers[i];
        memcpy(&floats[i], &bits, sizeof bits);
    }
    out->floats = floats;
    out->count = (uint32_t)count;
    return mica__spend(count);
}

static mica_status read_ints(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_attribute *out)
{
    const uint64_t *numbers;
    uint64_t count = 0;
    MICA__TRY(mica__onnx_numbers(p, m, 8, 0, &numbers, &count));
    out->ints = (const int64_t *)numbers; /* the same bits */
    out->count = (uint32_t)count;
    return MICA_OK;
}

/* The strings, tensors or graphs of an attribute, which are fields of bytes. */
static mica_status read_items(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                              mica__onnx_attribute *out)
{
    const uint32_t field = kind_fields[out->kind], count = out->count;
    const bool tensors = out->kind == MICA__ONNX_KIND_TENSOR || out->kind == MICA__ONNX_KIND_TENSORS;
    const bool graphs = out->kind == MICA__ONNX_KIND_GRAPH || out->kind == MICA__ONNX_KIND_GRAPHS;
    mica__onnx_text *strings = NULL;
    mica__onnx_tensor *tensor = NULL;
    mica__onnx_graph *graph = NULL;
    MICA__TRY(mica__onnx_take(p, tensors || graphs ? 0 : count, sizeof *strings, &strings));
    MICA__TRY(mica__onnx_take(p, tensors ? count : 0, sizeof *tensor, &tensor));
    MICA__TRY(mica__onnx_take(p, graphs ? count : 0, sizeof *graph, &graph));
    out->strings = tensors || graphs ? NULL : strings;
    out->tensors = tensors ? tensor : NULL;
    out->graphs = graphs ? graph : NULL;
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message content;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number != field)
            continue;
        MICA__TRY(inside(p, &m, &f, &content));
        if (tensors)
            MICA__TRY(mica__onnx_read_tensor(p, content, tensor++));
        else if (graphs)
            MICA__TRY(read_graph(p, content, depth + 1, graph++));
        else
            MICA__TRY(mica__onnx_bytes(p, &f, strings++));
    }
    return MICA_OK;
}

static mica_status read_single(const mica__onnx_parser *p, const mica__proto_message *m,
                               const mica__proto_field *f, mica__onnx_attribute *out)
{
    const uint32_t bits = (uint32_t)f->value;
    switch (f->number) {
    case 1: return mica__onnx_name(p, f, &out->name);
    case 21: return mica__onnx_name(p, f, &out->refers);
    case 20:
        if (f->value >= MICA__ONNX_KIND_COUNT)
            return mica__proto_malformed(&p->proto, m->at, "an attribute of a kind that is not known");
        out->kind = (mica__onnx_kind)f->value;
        return mica__onnx_coded(p, m, f, MICA__PROTO_VARINT);
    case 2: memcpy(&out->f, &bits, sizeof bits); return mica__onnx_coded(p, m, f, MICA__PROTO_32);
    case 3: out->i = (int64_t)f->value; return mica__onnx_coded(p, m, f, MICA__PROTO_VARINT);
    case 4: return mica__onnx_bytes(p, f, &out->s);
    default: return MICA_OK;
    }
}

static mica_status read_kind(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                             mica__onnx_attribute *out)
{
    switch (out->kind) {
    case MICA__ONNX_KIND_FLOAT:
    case MICA__ONNX_KIND_INT:
    case MICA__ONNX_KIND_STRING:
    case MICA__ONNX_KIND_TYPE: /* refused where somebody reads it */
    case MICA__ONNX_KIND_TYPES: return MICA_OK;
    case MICA__ONNX_KIND_FLOATS: return read_floats(p, m, out);
    case MICA__ONNX_KIND_INTS: return read_ints(p, m, out);
    case MICA__ONNX_KIND_STRINGS:
    case MICA__ONNX_KIND_TENSOR:
    case MICA__ONNX_KIND_TENSORS:
    case MICA__ONNX_KIND_GRAPH:
    case MICA__ONNX_KIND_GRAPHS: return read_items(p, m, depth, out);
    case MICA__ONNX_KIND_SPARSE:
    case MICA__ONNX_KIND_SPARSES:
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": attribute \"%.200s\" is a sparse tensor",
                          p->proto.path, out->name);
    default: return bad_attribute(p, out, "is of no kind");
    }
}

static mica_status read_attribute(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                                  mica__onnx_attribute *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    *out = (mica__onnx_attribute){.name = "", .refers = "", .s = {"", 0}};
    MICA__TRY(mica__onnx_count(p, m, counts));
    for (mica__proto_message at = m; at.at != at.end;) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &at, &f));
        MICA__TRY(read_single(p, &at, &f, out));
    }
    if (out->refers[0] != '\0')
        return MICA_OK;
    out->count = counts[kind_fields[out->kind]];
    if ((out->kind == MICA__ONNX_KIND_TENSOR || out->kind == MICA__ONNX_KIND_GRAPH) && out->count != 1)
        return bad_attribute(p, out, "is not one tensor or graph, as its kind says");
    return read_kind(p, m, depth, out);
}

static mica_status read_node(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                             mica__onnx_node *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    mica__onnx_attribute *attribute = NULL;
    const char **input = NULL, **output = NULL;
    *out = (mica__onnx_node){.name = "", .op = "", .domain = "", .overload = ""};
    MICA__TRY(mica__onnx_count(p, m, counts));
    MICA__TRY(mica__onnx_take(p, counts[1], sizeof *input, &input));
    MICA__TRY(mica__onnx_take(p, counts[2], sizeof *output, &output));
    MICA__TRY(mica__onnx_take(p, counts[5], sizeof *attribute, &attribute));
    out->input = input;
    out->output = output;
    out->attribute = attribute;
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message content;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        switch (f.number) {
        case 1: MICA__TRY(mica__onnx_name(p, &f, &input[out->input_count++])); break;
        case 2: MICA__TRY(mica__onnx_name(p, &f, &output[out->output_count++])); break;
        case 3: MICA__TRY(mica__onnx_name(p, &f, &out->name)); break;
        case 4: MICA__TRY(mica__onnx_name(p, &f, &out->op)); break;
        case 7: MICA__TRY(read_domain(p, &f, &out->domain)); break;
        case 8: MICA__TRY(mica__onnx_name(p, &f, &out->overload)); break;
        case 5:
            MICA__TRY(inside(p, &m, &f, &content));
            MICA__TRY(read_attribute(p, content, depth, &attribute[out->attribute_count++]));
            break;
        default: break;
        }
    }
    return out->op[0] != '\0' ? MICA_OK
                              : mica__proto_malformed(&p->proto, m.end, "a node without an operator");
}

/* ---- graphs, functions, the model ----------------------------------------------------------------------- */

static mica_status read_graph(const mica__onnx_parser *p, mica__proto_message m, uint32_t depth,
                              mica__onnx_graph *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    mica__onnx_node *node = NULL;
    mica__onnx_tensor *tensor = NULL;
    mica__onnx_value *input = NULL, *output = NULL, *value = NULL;
    if (depth >= MICA__ONNX_DEPTH)
        return mica__proto_malformed(&p->proto, m.at, "graphs inside of graphs, more than 16 deep");
    MICA__TRY(mica__onnx_count(p, m, counts));
    MICA__TRY(mica__onnx_take(p, counts[1], sizeof *node, &node));
    MICA__TRY(mica__onnx_take(p, counts[5], sizeof *tensor, &tensor));
    MICA__TRY(mica__onnx_take(p, counts[11], sizeof *input, &input));
    MICA__TRY(mica__onnx_take(p, counts[12], sizeof *output, &output));
    MICA__TRY(mica__onnx_take(p, counts[13], sizeof *value, &value));
    *out = (mica__onnx_graph){
        .name = "", .node = node, .tensor = tensor, .input = input, .output = output, .value = value};
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message c;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 2)
            MICA__TRY(mica__onnx_name(p, &f, &out->name));
        if (f.number == 15)
            return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": a sparse initialiser", p->proto.path);
        if (f.number != 1 && f.number != 5 && (f.number < 11 || f.number > 13))
            continue;
        MICA__TRY(inside(p, &m, &f, &c));
        switch (f.number) {
        case 1: MICA__TRY(read_node(p, c, depth, &node[out->node_count++])); break;
        case 5: MICA__TRY(mica__onnx_read_tensor(p, c, &tensor[out->tensor_count++])); break;
        case 11: MICA__TRY(read_value(p, c, &input[out->input_count++])); break;
        case 12: MICA__TRY(read_value(p, c, &output[out->output_count++])); break;
        default: MICA__TRY(read_value(p, c, &value[out->value_count++])); break;
        }
    }
    return MICA_OK;
}

/* The fields of a FunctionProto that are messages. */
static mica_status read_function_part(const mica__onnx_parser *p, uint32_t number, mica__proto_message c,
                                      mica__onnx_function *out, mica__onnx_node *node,
                                      mica__onnx_opset *opset, mica__onnx_attribute *by_default)
{
    if (number == 7)
        return read_node(p, c, 0, &node[out->node_count++]);
    if (number == 9)
        return read_opset(p, c, &opset[out->opset_count++]);
    return number == 11 ? read_attribute(p, c, 0, &by_default[out->default_count++]) : MICA_OK;
}

static mica_status read_function(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_function *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    mica__onnx_node *node = NULL;
    mica__onnx_opset *opset = NULL;
    mica__onnx_attribute *by_default = NULL;
    const char **input = NULL, **output = NULL, **attribute = NULL;
    MICA__TRY(mica__onnx_count(p, m, counts));
    MICA__TRY(mica__onnx_take(p, counts[4], sizeof *input, &input));
    MICA__TRY(mica__onnx_take(p, counts[5], sizeof *output, &output));
    MICA__TRY(mica__onnx_take(p, counts[6], sizeof *attribute, &attribute));
    MICA__TRY(mica__onnx_take(p, counts[7], sizeof *node, &node));
    MICA__TRY(mica__onnx_take(p, counts[9], sizeof *opset, &opset));
    MICA__TRY(mica__onnx_take(p, counts[11], sizeof *by_default, &by_default));
    *out = (mica__onnx_function){.name = "",
                                 .domain = "",
                                 .overload = "",
                                 .input = input,
                                 .output = output,
                                 .attribute = attribute,
                                 .by_default = by_default,
                                 .node = node,
                                 .opset = opset};
    while (m.at != m.end) {
        mica__proto_field f;
        mica__proto_message c;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        switch (f.number) {
        case 1: MICA__TRY(mica__onnx_name(p, &f, &out->name)); break;
        case 4: MICA__TRY(mica__onnx_name(p, &f, &input[out->input_count++])); break;
        case 5: MICA__TRY(mica__onnx_name(p, &f, &output[out->output_count++])); break;
        case 6: MICA__TRY(mica__onnx_name(p, &f, &attribute[out->attribute_count++])); break;
        case 10: MICA__TRY(read_domain(p, &f, &out->domain)); break;
        case 13: MICA__TRY(mica__onnx_name(p, &f, &out->overload)); break;
        case 7:
        case 9:
        case 11:
            MICA__TRY(inside(p, &m, &f, &c));
            MICA__TRY(read_function_part(p, f.number, c, out, node, opset, by_default));
            break;
        default: break;
        }
    }
    return MICA_OK;
}

/* The tables of a model while it is read. */
typedef struct tables {
    mica__onnx_opset *opset;
    mica__onnx_pair *metadata;
    mica__onnx_function *function;
} tables;

static mica_status read_model_field(const mica__onnx_parser *p, const mica__proto_message *m,
                                    const mica__proto_field *f, const tables *t, mica__onnx *out)
{
    mica__proto_message c;
    switch (f->number) {
    case 1: out->ir_version = f->value; return mica__onnx_coded(p, m, f, MICA__PROTO_VARINT);
    case 2: return mica__onnx_name(p, f, &out->producer);
    case 3: return mica__onnx_name(p, f, &out->producer_version);
    case 4: return mica__onnx_name(p, f, &out->domain);
    case 7: MICA__TRY(inside(p, m, f, &c)); return read_graph(p, c, 0, &out->graph);
    case 8: MICA__TRY(inside(p, m, f, &c)); return read_opset(p, c, &t->opset[out->opset_count++]);
    case 14:
        MICA__TRY(inside(p, m, f, &c));
        return mica__onnx_read_pair(p, c, &t->metadata[out->metadata_count++]);
    case 25: MICA__TRY(inside(p, m, f, &c)); return read_function(p, c, &t->function[out->function_count++]);
    default: return MICA_OK; /* documentation, training */
    }
}

static mica_status read_model(const mica__onnx_parser *p, mica__proto_message m, mica__onnx *out)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    tables t = {0};
    MICA__TRY(mica__onnx_count(p, m, counts));
    MICA__TRY(mica__onnx_take(p, counts[8], sizeof *t.opset, &t.opset));
    MICA__TRY(mica__onnx_take(p, counts[14], sizeof *t.metadata, &t.metadata));
    MICA__TRY(mica__onnx_take(p, counts[25], sizeof *t.function, &t.function));
    out->opset = t.opset;
    out->metadata = t.metadata;
    out->function = t.function;
    if (counts[7] != 1)
        return mica__proto_malformed(&p->proto, m.at,
                                     counts[7] == 0 ? "a model without a graph" : "a model with two graphs");
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        MICA__TRY(read_model_field(p, &m, &f, &t, out));
    }
    return out->ir_version != 0 && out->opset_count != 0
               ? MICA_OK
               : mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": a model without an ir_version or an opset",
                            p->proto.path);
}

/* ---- opening -------------------------------------------------------------------------------------------- */

void mica__onnx_close(mica__onnx *model)
{
    if (model == NULL)
        return;
    for (mica__onnx_file *file = model->memory->files; file != NULL; file = file->next)
        mica__file_map_close(&file->map);
    mica__chunks_free(&model->memory->chunks);
    mica__free(model->memory->bytes);
    mica__free(model->memory);
    mica__free(model);
}

static mica_status create(const char *path, mica__onnx **out)
{
    mica__onnx *model = mica__calloc(1, sizeof *model);
    if (model != NULL)
        model->memory = mica__calloc(1, sizeof *model->memory);
    if (model == NULL || model->memory == NULL) {
        mica__free(model);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for a model", path);
    }
    *out = model;
    return MICA_OK;
}

static mica_status keep_path(const mica__onnx_parser *p, const char *path, bool folder, mica__onnx *model)
{
    const char *slash = strrchr(path, '/');
    const size_t length = strlen(path), before = slash == NULL ? 0 : (size_t)(slash - path) + (slash == path);
    char *copy = NULL, *above = NULL;
    MICA__TRY(mica__onnx_take(p, length + 1, 1, &copy));
    MICA__TRY(mica__onnx_take(p, before + 2, 1, &above));
    memcpy(copy, path, length + 1);
    memcpy(above, before == 0 ? "." : path, before == 0 ? 1 : before);
    model->path = copy;
    model->memory->folder = folder ? above : NULL;
    return MICA_OK;
}

static mica_status parse(const char *path, const uint8_t *bytes, size_t size, bool folder, mica__onnx *model)
{
    const mica__onnx_parser p = {.proto = {path, bytes}, .memory = model->memory};
    model->producer = model->producer_version = model->domain = "";
    model->graph.name = "";
    MICA__TRY(keep_path(&p, path, folder, model));
    if (size == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": an empty file", path);
    return read_model(&p, (mica__proto_message){bytes, bytes + size}, model);
}

mica_status mica__onnx_open_bytes(const char *path, const void *bytes, size_t size, mica__onnx **out)
{
    mica__onnx *model = NULL;
    *out = NULL;
    mica__spend_allow(size);
    MICA__TRY(create(path, &model));
    const mica_status status = parse(path, bytes, size, false, model);
    if (status == MICA_OK)
        *out = model;
    else
        mica__onnx_close(model);
    return status;
}

mica_status mica__onnx_open(const char *path, mica__onnx **out)
{
    mica__onnx *model = NULL;
    size_t size = 0;
    *out = NULL;
    MICA__TRY(create(path, &model));
    mica_status status = mica__file_read_all(path, MOST_BYTES, &model->memory->bytes, &size);
    if (status == MICA_OK)
        status = parse(path, model->memory->bytes, size, true, model);
    if (status == MICA_OK)
        *out = model;
    else
        mica__onnx_close(model);
    return status;
}
