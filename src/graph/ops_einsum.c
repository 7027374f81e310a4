/*
 * ops_einsum.c - numpy.einsum: tensors are joined from the left, each pair by one sum of products over the letters that nobody needs further on.
 */
#include <stdio.h>

#include "graph/ops_contract.h"

#define CALL "einsum"
enum {
    MOST_TENSORS = 8,
    DOTS = 128
}; /* dimensions of an ellipsis are letters from DOTS on, counted from their last */

/* A tensor, and the letter of each of its dimensions. */
typedef struct term {
    mica_tensor tensor;
    uint32_t count;
    uint8_t letter[MICA_MAX_DIMS + 1];
} term;

typedef struct equation {
    mica_graph *graph;
    term in[MOST_TENSORS], out;
    uint32_t count;
} equation;

static bool refuse(mica_graph *graph, const char *why)
{
    return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, CALL, "equation: %s", why) != 0;
}

static bool has(const term *t, uint8_t letter)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->letter[i] == letter)
            return true;
    return false;
}

/* One term up to ',', '-' or the end; `dims` of the tensor, of the result the dimensions of the widest ellipsis. */
static bool read_term(mica_graph *graph, const char **at, uint32_t dots, term *out)
{
    bool seen = false;
    out->count = 0;
    for (; **at != 0 && **at != ',' && **at != '-'; (*at)++) {
        const char c = **at;
        if (c == ' ')
            continue;
        if (c == '.') {
            if (seen || strncmp(*at, "...", 3) != 0)
                return refuse(graph, "dots are not one ellipsis of a term");
            seen = true;
            *at += 2;
            for (uint32_t d = dots; d-- > 0 && out->count < MICA_MAX_DIMS;)
                out->letter[out->count++] = (uint8_t)(DOTS + d);
            continue;
        }
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
            return refuse(graph, "something is neither a letter nor '...'");
        if (out->count == MICA_MAX_DIMS)
            return refuse(graph, "a term has more letters than tensors have dimensions");
        out->letter[out->count++] = (uint8_t)c;
    }
    return true;
}

/* How many letters a term has that are no ellipsis. */
static uint32_t plain_letters(const char *at, bool *out_dots)
{
    uint32_t count = 0;
    *out_dots = false;
    for (; *at != 0 && *at != ',' && *at != '-'; at++) {
        *out_dots |= *at == '.';
        count += *at != ' ' && *at != '.';
    }
    return count;
}

/* What nobody wrote behind "->": the ellipsis, then what stands once. */
static void implied_result(equation *e, uint32_t dots)
{
    for (uint32_t d = dots; d-- > 0;)
        e->out.letter[e->out.count++] = (uint8_t)(DOTS + d);
    for (uint32_t letter = 'A'; letter <= 'z'; letter++) {
        uint32_t times = 0;
        for (uint32_t i = 0; i < e->count; i++)
            for (uint32_t k = 0; k < e->in[i].count; k++)
                times += e->in[i].letter[k] == letter;
        if (times == 1 && e->out.count < MICA_MAX_DIMS)
            e->out.letter[e->out.count++] = (uint8_t)letter;
    }
}

static bool read_result(equation *e, const char *at, uint32_t dots)
{
    if (*at == 0) {
        implied_result(e, dots);
        return true;
    }
    at += 2;
    if (!read_term(e->graph, &at, dots, &e->out) || *at != 0)
        return e->graph->status == MICA_OK && refuse(e->graph, "something follows the result");
    for (uint32_t k = 0; k < e->out.count; k++) {
        bool there = false;
        for (uint32_t i = 0; i < e->count; i++)
            there |= has(&e->in[i], e->out.letter[k]);
        for (uint32_t j = 0; j < k; j++)
            there &= e->out.letter[j] != e->out.letter[k];
        if (!there)
            return refuse(e->graph, "a letter of the result stands in no term, or twice");
    }
    return true;
}

static bool read_equation(equation *e, const char *text, const mica_tensor *tensors, uint32_t count)
{
    const char *at = text;
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        mica__type type;
        bool dotted;
        if (!mica__build_takes(e->graph, CALL, "a tensor", tensors[i], &type))
            return false;
        const uint32_t letters = plain_letters(at, &dotted), dots = type.ndim - letters;
        if (letters > type.ndim || (!dotted && dots != 0))
            return mica__build_refuse(e->graph, CALL, "a tensor", &type, "has other dimensions than term %u",
                                      i) != 0;
        if (!read_term(e->graph, &at, dots, &e->in[i]))
            return false;
        e->in[i].tensor = tensors[i];
        most = dots > most ? dots : most;
        if ((*at == ',') != (i + 1 < count) || (*at == '-' && at[1] != '>'))
            return refuse(e->graph, "its terms are not as many as there are tensors");
        at += *at == ',';
    }
    e->count = count;
    return read_result(e, at, most);
}

/* ---- what the letters mean ---- */

static void drop_letter(term *t, uint32_t at)
{
    memmove(t->letter + at, t->letter + at + 1, t->count - at - 1);
    t->count--;
}

/* Dimension `b` becomes what lies on the diagonal with dimension `a`. */
static bool take_diagonal(mica_graph *graph, term *t, uint32_t a, uint32_t b)
{
    const mica__type type = *mica__type_of(graph, t->tensor);
    uint64_t shape[MICA_MAX_DIMS];
    if (!mica__sizes_agree(type.shape[a], type.shape[b]))
        return mica__build_refuse(graph, CALL, "a tensor", &type,
                                  "has other sizes in dimensions %u and %u, which have one letter", a,
                                  b) != 0;
    for (uint32_t d = 0; d < type.ndim; d++)
        shape[d] = d == a ? type.shape[a] : 1;
    const mica_tensor place = mica_graph_index(graph, MICA_DTYPE_I32, type.ndim, shape, a);
    const mica_tensor y = mica_graph_take_along_axis(graph, t->tensor, place, (int32_t)b);
    t->tensor = mica_graph_squeeze(graph, y, &(int32_t){(int32_t)b}, 1);
    drop_letter(t, b);
    return t->tensor != 0;
}

static bool take_diagonals(mica_graph *graph, term *t)
{
    for (uint32_t a = 0; a < t->count; a++)
        for (uint32_t b = a + 1; b < t->count;)
            if (t->letter[a] != t->letter[b])
                b++;
            else if (!take_diagonal(graph, t, a, b))
                return false;
    return true;
}

/* Sums over letters that stand in this term alone. */
static bool sum_own(equation *e, term *t, const term *beside, uint32_t next)
{
    int32_t axes[MICA_MAX_DIMS];
    uint32_t count = 0;
    for (uint32_t k = t->count; k-- > 0;) {
        bool needed = has(&e->out, t->letter[k]) || (beside != NULL && has(beside, t->letter[k]));
        for (uint32_t i = next; i < e->count; i++)
            needed |= has(&e->in[i], t->letter[k]);
        if (needed)
            continue;
        axes[count++] = (int32_t)k;
        drop_letter(t, k);
    }
    if (count != 0)
        t->tensor = mica_graph_reduce(e->graph, MICA_REDUCE_SUM, t->tensor, axes, count, 0);
    return t->tensor != 0;
}

/* Dimensions of `t` by what becomes of their letters beside the other term; in the order of `lead` where both have them. */
static void sort_letters(const equation *e, const term *t, const term *lead, const term *other, uint32_t next,
                         mica__side *side)
{
    *side = (mica__side){.batch_count = 0};
    for (uint32_t k = 0; k < lead->count; k++) {
        const uint8_t letter = lead->letter[k];
        const term *also = lead == t ? other : t;
        if (!has(also, letter))
            continue;
        bool needed = has(&e->out, letter);
        for (uint32_t i = next; i < e->count; i++)
            needed |= has(&e->in[i], letter);
        uint32_t d = 0;
        while (t->letter[d] != letter)
            d++;
        if (needed)
            side->batch[side->batch_count++] = d;
        else
            side->contract[side->contract_count++] = d;
    }
    for (uint32_t k = 0; k < t->count; k++)
        if (!has(lead == t ? other : lead, t->letter[k]))
            side->free[side->free_count++] = k;
}

static bool sizes_fit(mica_graph *graph, const term *a, const mica__side *left, const term *b,
                      const mica__side *right)
{
    const mica__type x = *mica__type_of(graph, a->tensor), y = *mica__type_of(graph, b->tensor);
    for (uint32_t i = 0; i < left->batch_count + left->contract_count; i++) {
        const bool batch = i < left->batch_count;
        const uint32_t at = batch ? i : i - left->batch_count;
        const uint32_t l = batch ? left->batch[at] : left->contract[at],
                       r = batch ? right->batch[at] : right->contract[at];
        const bool one = batch && a->letter[l] >= DOTS && (x.shape[l] == 1 || y.shape[r] == 1);
        if (!one && !mica__sizes_agree(x.shape[l], y.shape[r]))
            return mica__build_refuse(graph, CALL, "a tensor", &y,
                                      "has another size in dimension %u than what stands before it", r) != 0;
    }
    return true;
}

/* The terms so far and the next one become one. */
static bool join(equation *e, term *all, term *next_term, uint32_t next)
{
    mica__side left, right;
    term joined = {.count = 0};
    if (!take_diagonals(e->graph, next_term) || !sum_own(e, all, next_term, next) ||
        !sum_own(e, next_term, all, next))
        return false;
    sort_letters(e, all, all, next_term, next, &left);
    sort_letters(e, next_term, all, all, next, &right);
    if (left.batch_count + left.free_count + right.free_count > MICA_MAX_DIMS)
        return refuse(e->graph, "a product on the way has too many dimensions");
    if (!sizes_fit(e->graph, all, &left, next_term, &right))
        return false;
    for (uint32_t i = 0; i < left.batch_count; i++)
        joined.letter[joined.count++] = all->letter[left.batch[i]];
    for (uint32_t i = 0; i < left.free_count; i++)
        joined.letter[joined.count++] = all->letter[left.free[i]];
    for (uint32_t i = 0; i < right.free_count; i++)
        joined.letter[joined.count++] = next_term->letter[right.free[i]];
    joined.tensor = mica__build_contract(e->graph, all->tensor, &left, next_term->tensor, &right);
    *all = joined;
    return joined.tensor != 0;
}

mica_tensor mica_graph_einsum(mica_graph *graph, const char *text, const mica_tensor *tensors, uint32_t count)
{
    equation e = {.graph = graph};
    uint32_t order[MICA_MAX_DIMS];
    if (!mica__graph_begins(graph, CALL))
        return 0;
    if (text == NULL || tensors == NULL || count == 0 || count > MOST_TENSORS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, CALL, "%s, or %u tensors, not 1 to %u",
                                text == NULL ? "equation is NULL" : "tensors is NULL", count, MOST_TENSORS);
    if (!read_equation(&e, text, tensors, count))
        return 0;
    term all = e.in[0];
    bool fits = take_diagonals(graph, &all) && (count > 1 || sum_own(&e, &all, NULL, 1));
    for (uint32_t i = 1; i < count && fits; i++)
        fits = join(&e, &all, &e.in[i], i + 1);
    if (!fits)
        return mica__build_end(graph, CALL, 0);
    bool moves = false;
    for (uint32_t k = 0; k < e.out.count; k++) {
        order[k] = 0;
        while (all.letter[order[k]] != e.out.letter[k])
            order[k]++;
        moves |= order[k] != k;
    }
    return mica__build_end(graph, CALL, moves ? mica_graph_permute(graph, all.tensor, order) : all.tensor);
}
