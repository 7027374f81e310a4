/*
 * parse.c - a graph from its text (text.h): lines, and what all of them have. Each line becomes a call of the function that adds such a node, so that nothing can be
 * read that could not have been written; values.c has what kinds of nodes have of their own.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "graph/text/reader.h"

bool mica__reader_wrong(mica__reader *reader, const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (reader->status == MICA_OK)
        reader->status = mica__fail(MICA_ERR_MALFORMED_FILE, "graph_parse: line %u: %s", reader->line, text);
    return false;
}

/* ---- tokens ---- */

static void skip_spaces(mica__reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

bool mica__reader_takes(mica__reader *reader, const char *text)
{
    const size_t length = strlen(text);
    skip_spaces(reader);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, text, length) != 0)
        return false;
    reader->at += length;
    return true;
}

bool mica__reader_ends(mica__reader *reader)
{
    skip_spaces(reader);
    return reader->at == reader->end;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool mica__reader_word(mica__reader *reader, mica__span *out)
{
    skip_spaces(reader);
    const char *begin = reader->at, *at = begin;
    if (at < reader->end && is_letter(*at))
        while (at < reader->end && (is_letter(*at) || is_digit(*at)))
            at++;
    *out = (mica__span){begin, (size_t)(at - begin)};
    reader->at = at;
    return at != begin;
}

bool mica__reader_uint(mica__reader *reader, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    skip_spaces(reader);
    const char *begin = reader->at;
    for (; reader->at < reader->end && is_digit(*reader->at); reader->at++) {
        const uint64_t digit = (uint64_t)(*reader->at - '0');
        if (digit > most || value > (most - digit) / 10)
            return mica__reader_wrong(reader, "a number over %llu", (unsigned long long)most);
        value = value * 10 + digit;
    }
    *out = value;
    return reader->at != begin || mica__reader_wrong(reader, "a number is missing");
}

/* One character of a string, after a backslash; 0: none. */
static char take_escape(mica__reader *reader)
{
    const char *at = reader->at;
    const ptrdiff_t left = reader->end - at;
    if (left > 0 && (*at == '"' || *at == '\\')) {
        reader->at++;
        return *at;
    }
    if (left < 3 || *at != 'x' || mica__hex_digit(at[1]) < 0 || mica__hex_digit(at[2]) < 0)
        return 0;
    reader->at += 3;
    return (char)(mica__hex_digit(at[1]) << 4 | mica__hex_digit(at[2]));
}

bool mica__reader_string(mica__reader *reader, char out[MICA_GRAPH_NAME_BYTES])
{
    size_t length = 0;
    if (!mica__reader_takes(reader, "\""))
        return mica__reader_wrong(reader, "a name in quotes is missing");
    while (reader->at == reader->end || *reader->at != '"') {
        if (reader->at == reader->end || *reader->at == '\n' || length + 1 >= MICA_GRAPH_NAME_BYTES)
            return mica__reader_wrong(reader, "a name without an end, or of over %u bytes",
                                      MICA_GRAPH_NAME_BYTES - 1);
        char c = *reader->at++;
        if (c == '\\')
            c = take_escape(reader);
        if (c == 0)
            return mica__reader_wrong(reader, "a name with a character that is none");
        out[length++] = c;
    }
    reader->at++;
    out[length] = 0;
    return true;
}

/* ---- shapes and types ---- */

static bool read_size(mica__reader *reader, mica_graph *graph, uint64_t *out)
{
    char name[MICA_GRAPH_NAME_BYTES];
    mica__span word;
    skip_spaces(reader);
    if (reader->at < reader->end && is_digit(*reader->at))
        return mica__reader_uint(reader, 1ull << 48, out);
    if (mica__reader_takes(reader, "?")) {
        *out = MICA_SIZE_UNKNOWN;
        return true;
    }
    if (reader->at < reader->end && *reader->at == '"') {
        if (!mica__reader_string(reader, name))
            return false;
    } else if (!mica__reader_word(reader, &word) || word.length >= sizeof name) {
        return mica__reader_wrong(reader, "a size is missing");
    } else {
        memcpy(name, word.at, word.length);
        name[word.length] = 0;
        if (strcmp(name, "rest") == 0) {
            *out = MICA_SIZE_REST;
            return true;
        }
    }
    const uint32_t symbols = graph->symbol_count;
    *out = mica_graph_symbol(graph, name);
    return graph->symbol_count == symbols || mica__reader_wrong(reader, "'%s' is no symbol", name);
}

bool mica__reader_shape(mica__reader *reader, mica_graph *graph, uint32_t *ndim, uint64_t *shape)
{
    *ndim = 0;
    if (!mica__reader_takes(reader, "["))
        return mica__reader_wrong(reader, "a shape in brackets is missing");
    if (mica__reader_takes(reader, "]"))
        return true;
    do {
        if (*ndim == MICA_MAX_DIMS)
            return mica__reader_wrong(reader, "a shape has over %u dimensions", MICA_MAX_DIMS);
        if (!read_size(reader, graph, &shape[(*ndim)++]))
            return false;
    } while (mica__reader_takes(reader, ","));
    return mica__reader_takes(reader, "]") || mica__reader_wrong(reader, "a shape without its end");
}

static bool read_dtype(mica__reader *reader, mica_dtype *out)
{
    char name[32];
    mica__span word;
    if (!mica__reader_word(reader, &word) || word.length >= sizeof name)
        return mica__reader_wrong(reader, "a type is missing");
    memcpy(name, word.at, word.length);
    name[word.length] = 0;
    *out = mica_dtype_from_name(name);
    return *out != MICA_DTYPE_NONE || mica__reader_wrong(reader, "'%s' is no type", name);
}

static bool read_type(mica__reader *reader, mica_graph *graph, mica__type *out)
{
    uint64_t group = 0;
    *out = (mica__type){.ndim = 0};
    if (!read_dtype(reader, &out->dtype) || !mica__reader_shape(reader, graph, &out->ndim, out->shape))
        return false;
    if (mica__reader_takes(reader, "group") &&
        (!mica__reader_uint(reader, UINT32_MAX, &group) || !read_dtype(reader, &out->scale_dtype)))
        return false;
    out->group_size = (uint32_t)group;
    return true;
}

/* ---- parts of a line ---- */

/* One more element of a list that grows. */
static bool more(mica__reader *reader, void **list, uint32_t count, uint32_t *capacity, size_t element)
{
    if (count < *capacity)
        return true;
    if (count >= MICA_GRAPH_INPUTS)
        return mica__reader_wrong(reader, "over %u tensors", MICA_GRAPH_INPUTS);
    const uint32_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    void *grown = mica__realloc(*list, wanted * element);
    if (grown == NULL) {
        reader->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_parse: no memory for %u tensors", wanted);
        return false;
    }
    *list = grown;
    *capacity = wanted;
    return true;
}

static bool add_tensor(mica__reader *reader, mica_tensor **list, uint32_t *count, uint32_t *capacity,
                       const char *absent)
{
    uint64_t number = 0;
    void *grown = *list;
    const bool fits = more(reader, &grown, *count, capacity, sizeof **list);
    *list = grown;
    if (!fits)
        return false;
    if (mica__reader_takes(reader, "%")) {
        if (!mica__reader_uint(reader, UINT32_MAX, &number))
            return false;
        if (number == 0)
            return mica__reader_wrong(reader, "%%0 is no tensor");
    } else if (!mica__reader_takes(reader, absent)) {
        return mica__reader_wrong(reader, "a tensor is missing");
    }
    (*list)[(*count)++] = (mica_tensor)number;
    return true;
}

static bool read_gives(mica__reader *reader, mica__line *line)
{
    do {
        if (!add_tensor(reader, &line->gives, &line->gives_count, &line->gives_capacity, "_"))
            return false;
    } while (mica__reader_takes(reader, ","));
    return mica__reader_takes(reader, "=") || mica__reader_wrong(reader, "'=' is missing");
}

/* Up to where the bracket that is open closes; strings are passed over. */
static bool find_close(mica__reader *reader, mica__span *out)
{
    const char *begin = reader->at;
    uint32_t open = 1;
    for (; reader->at < reader->end && *reader->at != '\n'; reader->at++) {
        const char c = *reader->at;
        if (c == '"') {
            char name[MICA_GRAPH_NAME_BYTES];
            if (!mica__reader_string(reader, name))
                return false;
            reader->at--;
        }
        open += (c == '(' || c == '[') - (uint32_t)(c == ')' || c == ']');
        if (open != 0)
            continue;
        *out = (mica__span){begin, (size_t)(reader->at++ - begin)};
        return true;
    }
    return mica__reader_wrong(reader, "a bracket without its end");
}

static bool read_takes(mica__reader *reader, mica__line *line)
{
    if (!mica__reader_word(reader, &line->name))
        return mica__reader_wrong(reader, "the name of a node is missing");
    if (!mica__reader_takes(reader, "("))
        return mica__reader_wrong(reader, "'(' is missing");
    if (!find_close(reader, &line->operands))
        return false;
    mica__reader inner = mica__reader_of(reader, line->operands);
    if (mica__reader_ends(&inner) || (*inner.at != '%' && *inner.at != '-'))
        return true;
    if (*inner.at == '-' && inner.end - inner.at > 1 && inner.at[1] != ',' && inner.at[1] != ' ')
        return true; /* of a constant, whose first number is below 0 */
    do {
        if (!add_tensor(&inner, &line->takes, &line->takes_count, &line->takes_capacity, "-"))
            break;
    } while (mica__reader_takes(&inner, ","));
    if (inner.status == MICA_OK && !mica__reader_ends(&inner))
        (void)mica__reader_wrong(&inner, "')' is missing");
    reader->status = inner.status;
    return reader->status == MICA_OK;
}

static bool read_attribute(mica__reader *reader, mica__line *line, mica__span key)
{
    mica__attribute *attribute = &line->attribute[line->attribute_count];
    if (line->attribute_count == MICA__LINE_ATTRIBUTES)
        return mica__reader_wrong(reader, "over %d attributes", MICA__LINE_ATTRIBUTES);
    for (uint32_t i = 0; i < line->attribute_count; i++)
        if (line->attribute[i].key.length == key.length &&
            memcmp(line->attribute[i].key.at, key.at, key.length) == 0)
            return mica__reader_wrong(reader, "attribute '%.*s' is there twice", (int)key.length, key.at);
    if (!mica__reader_takes(reader, "="))
        return mica__reader_wrong(reader, "'=' is missing behind '%.*s'", (int)key.length, key.at);
    *attribute = (mica__attribute){.key = key};
    if (mica__reader_takes(reader, "(")) {
        if (!find_close(reader, &attribute->value))
            return false;
    } else if (reader->at < reader->end && *reader->at == '[') {
        const char *begin = reader->at++;
        if (!find_close(reader, &attribute->value))
            return false;
        attribute->value = (mica__span){begin, (size_t)(reader->at - begin)};
    } else {
        const char *begin = reader->at;
        while (reader->at < reader->end && *reader->at != ' ' && *reader->at != '\n' && *reader->at != '\r')
            reader->at++;
        attribute->value = (mica__span){begin, (size_t)(reader->at - begin)};
    }
    line->attribute_count++;
    return true;
}

static bool read_attributes(mica__reader *reader, mica__line *line)
{
    mica__span key;
    while (mica__reader_word(reader, &key))
        if (!read_attribute(reader, line, key))
            return false;
    return true;
}

static bool read_types(mica__reader *reader, mica__line *line)
{
    if (!mica__reader_takes(reader, ":"))
        return true;
    do {
        void *list = line->type;
        const bool fits = more(reader, &list, line->type_count, &line->type_capacity, sizeof *line->type);
        line->type = list;
        if (!fits || !read_type(reader, line->graph, &line->type[line->type_count]))
            return false;
        line->type_count++;
    } while (mica__reader_takes(reader, ","));
    return true;
}

/* A label, if there is one, and the end of the line. */
static bool read_end(mica__reader *reader, char label[MICA_GRAPH_NAME_BYTES])
{
    if (mica__reader_takes(reader, "#")) {
        skip_spaces(reader);
        const char *begin = reader->at;
        if (begin < reader->end && *begin == '"') {
            if (!mica__reader_string(reader, label))
                return false;
        } else {
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
            const size_t length =
                (size_t)(reader->at - begin) - (reader->at > begin && reader->at[-1] == '\r');
            if (length >= MICA_GRAPH_NAME_BYTES || memchr(begin, 0, length) != NULL)
                return mica__reader_wrong(reader, "a label of over %u bytes, or with a NUL",
                                          MICA_GRAPH_NAME_BYTES - 1);
            memcpy(label, begin, length);
            label[length] = 0;
        }
    }
    skip_spaces(reader);
    if (reader->at < reader->end && *reader->at != '\n')
        return mica__reader_wrong(reader, "'%c' was not expected", *reader->at >= ' ' ? *reader->at : '?');
    if (reader->at < reader->end)
        reader->at++;
    return true;
}

/* ---- lines ---- */

static mica_graph *read_graph(mica__reader *reader, bool inside);

static bool read_bodies(mica__reader *reader, mica__line *line)
{
    char none[MICA_GRAPH_NAME_BYTES] = {0};
    uint32_t count = 0;
    for (; mica__reader_takes(reader, "{"); count++) {
        if (count == 2)
            return mica__reader_wrong(reader, "over two sub-graphs");
        if (reader->depth == MICA__TEXT_DEPTH)
            return mica__reader_wrong(reader, "sub-graphs lie over %u deep", MICA__TEXT_DEPTH);
        if (!read_end(reader, count == 0 ? line->label : none))
            return false;
        reader->line++;
        reader->depth++;
        line->body[count] = read_graph(reader, true);
        reader->depth--;
        if (line->body[count] == NULL)
            return false;
    }
    return read_end(reader, count == 0 ? line->label : none);
}

static void free_line(mica__line *line)
{
    mica__free(line->gives);
    mica__free(line->takes);
    mica__free(line->type);
    mica_graph_release(line->body[0]);
    mica_graph_release(line->body[1]);
}

static bool read_node(mica__reader *reader, mica_graph *graph)
{
    mica__line line = {.graph = graph};
    const bool fits = read_gives(reader, &line) && read_takes(reader, &line) &&
                      read_attributes(reader, &line) && read_types(reader, &line) &&
                      read_bodies(reader, &line) && mica__line_build(reader, &line);
    free_line(&line);
    return fits;
}

static bool read_symbols(mica__reader *reader, mica_graph *graph)
{
    char name[MICA_GRAPH_NAME_BYTES];
    mica__span word;
    do {
        if (!mica__reader_word(reader, &word)) {
            if (!mica__reader_string(reader, name))
                return false;
        } else {
            if (word.length >= sizeof name)
                return mica__reader_wrong(reader, "a symbol of over %u bytes", MICA_GRAPH_NAME_BYTES - 1);
            memcpy(name, word.at, word.length);
            name[word.length] = 0;
        }
        const uint32_t symbols = graph->symbol_count;
        if (mica_graph_symbol(graph, name) == MICA_SIZE_UNKNOWN || graph->symbol_count == symbols)
            return mica__reader_wrong(reader, "symbol '%s' is there twice, or has no name", name);
    } while (mica__reader_takes(reader, ","));
    return read_end(reader, name);
}

static bool read_output(mica__reader *reader, mica_graph *graph)
{
    char name[MICA_GRAPH_NAME_BYTES], label[MICA_GRAPH_NAME_BYTES];
    uint64_t number = 0;
    if (!mica__reader_string(reader, name))
        return false;
    if (!mica__reader_takes(reader, "=") || !mica__reader_takes(reader, "%"))
        return mica__reader_wrong(reader, "output '%s' is no tensor", name);
    if (!mica__reader_uint(reader, UINT32_MAX, &number))
        return false;
    (void)mica_graph_output(graph, name, (mica_tensor)number);
    return read_end(reader, label);
}

static bool read_rows(mica__reader *reader, mica_graph *graph)
{
    char name[MICA_GRAPH_NAME_BYTES], count[MICA_GRAPH_NAME_BYTES], label[MICA_GRAPH_NAME_BYTES];
    uint64_t axis = 0;
    if (!mica__reader_string(reader, name))
        return false;
    if (!mica__reader_takes(reader, "along"))
        return mica__reader_wrong(reader, "of the rows of '%s' no axis", name);
    if (!mica__reader_uint(reader, MICA_MAX_DIMS, &axis))
        return false;
    if (!mica__reader_takes(reader, "="))
        return mica__reader_wrong(reader, "the rows of '%s' are nothing", name);
    if (!mica__reader_string(reader, count))
        return false;
    (void)mica_graph_output_rows(graph, name, (uint32_t)axis, count);
    return read_end(reader, label);
}

/* A line that is no node: 1 it was one, 0 it is another. */
static bool read_line(mica__reader *reader, mica_graph *graph)
{
    char label[MICA_GRAPH_NAME_BYTES];
    mica__span word;
    skip_spaces(reader);
    if (reader->at == reader->end || *reader->at == '\n' || *reader->at == '#')
        return read_end(reader, label);
    if (*reader->at == '%' || *reader->at == '_')
        return read_node(reader, graph);
    if (mica__reader_word(reader, &word) && mica__span_is(word, "symbols"))
        return read_symbols(reader, graph);
    if (mica__span_is(word, "output"))
        return read_output(reader, graph);
    if (mica__span_is(word, "rows"))
        return read_rows(reader, graph);
    return mica__reader_wrong(reader,
                              "it begins neither with a tensor nor with 'symbols', 'output' or 'rows'");
}

/* The lines of a graph, of a sub-graph up to its brace. NULL: reader->status. */
static mica_graph *read_graph(mica__reader *reader, bool inside)
{
    mica_graph *graph = NULL;
    reader->status = mica_graph_create(&graph);
    bool ended = false;
    while (reader->status == MICA_OK && !ended) {
        ended = inside ? mica__reader_takes(reader, "}") : reader->at == reader->end;
        if (ended)
            break;
        if (reader->at == reader->end) {
            (void)mica__reader_wrong(reader, "a sub-graph without its end");
            break;
        }
        const char *begin = reader->at;
        const uint32_t depth = reader->depth;
        (void)read_line(reader, graph);
        if (reader->status == MICA_OK && graph->status != MICA_OK)
            reader->status = mica__fail(graph->status == MICA_ERR_INVALID_ARGUMENT ? MICA_ERR_MALFORMED_FILE
                                                                                   : graph->status,
                                        "graph_parse: line %u: %s", reader->line, graph->sentence);
        if (reader->status == MICA_OK && depth == reader->depth)
            reader->status = mica__spend((uint64_t)(reader->at - begin));
        reader->line++;
    }
    if (reader->status == MICA_OK)
        return graph;
    mica_graph_release(graph);
    return NULL;
}

mica_status mica__graph_read(const char *text, uint64_t length, mica__text_fetch *fetch, void *context,
                             mica_graph **out_graph)
{
    mica__reader reader = {.at = text, .end = text + length, .line = 1, .fetch = fetch, .context = context};
    mica__spend_allow(length);
    *out_graph = read_graph(&reader, false);
    return reader.status;
}

mica_status mica_graph_parse(const char *text, uint64_t length, mica_graph **out_graph)
{
    mica__call call;
    if (out_graph == NULL || (text == NULL && length != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_parse: %s is NULL",
                          out_graph == NULL ? "out_graph" : "text");
    *out_graph = NULL;
    if (length > PTRDIFF_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_parse: length is beyond memory");
    mica__call_begin(&call, "graph_parse");
    return mica__call_end(&call, mica__graph_read(length == 0 ? "" : text, length, NULL, NULL, out_graph));
}
