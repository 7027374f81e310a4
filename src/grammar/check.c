/* check.c: what a grammar must prove before text is held against it: it can end, and it never waits for itself
 * without having read a character (left recursion). Linear in the size of the grammar; nothing recurses. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/grammar.h"

/* Which rules have an alternative whose elements all hold, where an element that mentions a rule holds once the rule
 * does: the smallest such set. */
typedef struct settling {
    uint32_t *missing;    /* per alternative: elements that do not hold yet */
    uint32_t *owner;      /* per alternative: its rule */
    uint32_t *uses;       /* alternatives that mention a rule, rule by rule */
    uint32_t *uses_first; /* [rules + 1] into uses */
    uint32_t *ready;      /* rules that hold and were not told on yet */
    bool *holds;
} settling;

typedef enum verdict { NEVER, ALWAYS, AS_RULE } verdict;
typedef verdict (*judge)(const mica_grammar *grammar, const mica__grammar_element *element);

static verdict can_end(const mica_grammar *grammar, const mica__grammar_element *element)
{
    if (element->kind == MICA__GRAMMAR_CLASS)
        return grammar->classes[element->value].count != 0 ? ALWAYS : NEVER;
    return element->kind == MICA__GRAMMAR_REPEAT && element->min == 0 ? ALWAYS : AS_RULE;
}

static verdict can_be_empty(const mica_grammar *grammar, const mica__grammar_element *element)
{
    (void)grammar;
    if (element->kind == MICA__GRAMMAR_CLASS)
        return NEVER;
    return element->kind == MICA__GRAMMAR_REPEAT && element->min == 0 ? ALWAYS : AS_RULE;
}

static mica_status settling_new(const mica_grammar *grammar, settling *out)
{
    const size_t alternatives = (size_t)grammar->alternative_count + 1,
                 rules = (size_t)grammar->rule_count + 2;
    memset(out, 0, sizeof *out);
    out->missing = mica__calloc(alternatives, sizeof *out->missing);
    out->owner = mica__calloc(alternatives, sizeof *out->owner);
    out->uses = mica__calloc((size_t)grammar->element_count + 1, sizeof *out->uses);
    out->uses_first = mica__calloc(rules, sizeof *out->uses_first);
    out->ready = mica__calloc(rules, sizeof *out->ready);
    out->holds = mica__calloc(rules, sizeof *out->holds);
    if (out->missing == NULL || out->owner == NULL || out->uses == NULL || out->uses_first == NULL ||
        out->ready == NULL || out->holds == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to check the grammar");
    return MICA_OK;
}

static void settling_free(settling *s)
{
    mica__free(s->missing);
    mica__free(s->owner);
    mica__free(s->uses);
    mica__free(s->uses_first);
    mica__free(s->ready);
    mica__free(s->holds);
}

/* Fills missing, owner and uses. Alternatives with an element that never holds miss one more than can come. */
static mica_status count_missing(const mica_grammar *grammar, judge ask, settling *s)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t r = 0; r < grammar->rule_count; r++) {
            const mica__grammar_rule *rule = &grammar->rules[r];
            for (uint32_t a = rule->first; a < rule->first + rule->count; a++) {
                const mica__grammar_element *e = &grammar->elements[grammar->alternatives[a]];
                MICA__TRY(mica__spend(4));
                s->owner[a] = r;
                for (; e->kind != MICA__GRAMMAR_END; e++) {
                    const verdict now = ask(grammar, e);
                    if (pass == 0 && now != ALWAYS)
                        s->missing[a]++;
                    if (now == AS_RULE && pass == 0)
                        s->uses_first[e->value + 1]++;
                    else if (now == AS_RULE)
                        s->uses[s->uses_first[e->value]++] = a;
                }
            }
        }
        for (uint32_t r = 0; pass == 0 && r < grammar->rule_count; r++)
            s->uses_first[r + 1] += s->uses_first[r];
    }
    /* The second pass moved each beginning to its end, which is the next one's beginning. */
    for (uint32_t r = grammar->rule_count; r > 0; r--)
        s->uses_first[r] = s->uses_first[r - 1];
    s->uses_first[0] = 0;
    return mica__spend(grammar->element_count);
}

static mica_status settle(const mica_grammar *grammar, judge ask, settling *s)
{
    uint32_t count = 0;
    MICA__TRY(settling_new(grammar, s));
    MICA__TRY(count_missing(grammar, ask, s));
    for (uint32_t a = 0; a < grammar->alternative_count; a++) {
        if (s->missing[a] == 0 && !s->holds[s->owner[a]]) {
            s->holds[s->owner[a]] = true;
            s->ready[count++] = s->owner[a];
        }
    }
    while (count > 0) {
        const uint32_t rule = s->ready[--count];
        MICA__TRY(mica__spend(4 + s->uses_first[rule + 1] - s->uses_first[rule]));
        for (uint32_t u = s->uses_first[rule]; u < s->uses_first[rule + 1]; u++) {
            const uint32_t a = s->uses[u];
            if (--s->missing[a] == 0 && !s->holds[s->owner[a]]) {
                s->holds[s->owner[a]] = true;
                s->ready[count++] = s->owner[a];
            }
        }
    }
    return MICA_OK;
}

/* Takes away the alternatives that can never be finished; a repetition of what never ends happens no times. */
static mica_status drop_endless(mica_grammar *grammar)
{
    settling s;
    const mica_status status = settle(grammar, can_end, &s);
    for (uint32_t r = 0; status == MICA_OK && r < grammar->rule_count; r++) {
        mica__grammar_rule *rule = &grammar->rules[r];
        uint32_t kept = 0;
        rule->productive = s.holds[r];
        for (uint32_t a = rule->first; a < rule->first + rule->count; a++)
            if (s.missing[a] == 0)
                grammar->alternatives[rule->first + kept++] = grammar->alternatives[a];
        rule->count = kept;
    }
    for (uint32_t i = 0; status == MICA_OK && i < grammar->element_count; i++) {
        mica__grammar_element *e = &grammar->elements[i];
        if (e->kind == MICA__GRAMMAR_REPEAT && !s.holds[e->value])
            e->max = 0;
    }
    settling_free(&s);
    if (status != MICA_OK)
        return status;
    if (!grammar->rules[grammar->root].productive)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the rule '%s' matches no text that ends",
                          mica__grammar_rule_name(grammar, grammar->root).text);
    return MICA_OK;
}

/* What may be empty; and as empty repeats are always enough, a repetition of such a rule needs none. */
static mica_status find_nullable(mica_grammar *grammar)
{
    settling s;
    const mica_status status = settle(grammar, can_be_empty, &s);
    for (uint32_t r = 0; status == MICA_OK && r < grammar->rule_count; r++)
        grammar->rules[r].nullable = s.holds[r];
    for (uint32_t i = 0; status == MICA_OK && i < grammar->element_count; i++) {
        mica__grammar_element *e = &grammar->elements[i];
        if (e->kind == MICA__GRAMMAR_REPEAT && s.holds[e->value])
            e->min = 0;
    }
    settling_free(&s);
    return status;
}

/* A walk over the rules that a rule may ask for before it has read a character. */
typedef struct visit {
    uint32_t rule, alternative; /* the alternative it is in, from the rule's first on */
    uint32_t element;           /* the next one to look at; NONE: the alternative is through */
} visit;

static visit visit_of(uint32_t rule)
{
    const visit v = {rule, 0, MICA__GRAMMAR_NONE};
    return v;
}

/* The next rule of the walk, NONE after the last. */
static uint32_t next_first(const mica_grammar *grammar, visit *v)
{
    const mica__grammar_rule *rule = &grammar->rules[v->rule];
    for (;;) {
        const mica__grammar_element *e;
        bool skippable;
        if (v->element == MICA__GRAMMAR_NONE) {
            if (v->alternative == rule->count)
                return MICA__GRAMMAR_NONE;
            v->element = grammar->alternatives[rule->first + v->alternative++];
        }
        e = &grammar->elements[v->element];
        if (e->kind < MICA__GRAMMAR_RULE) {
            v->element = MICA__GRAMMAR_NONE;
            continue;
        }
        skippable = e->kind == MICA__GRAMMAR_RULE ? grammar->rules[e->value].nullable : e->min == 0;
        v->element = skippable ? v->element + 1 : MICA__GRAMMAR_NONE;
        if (e->kind == MICA__GRAMMAR_RULE || e->max > 0)
            return e->value;
    }
}

/* The visits from `depth` down to that of `rule` go in a circle: names a rule of it that has a name. */
static mica_status refuse_circle(const mica_grammar *grammar, const visit *visits, uint32_t depth,
                                 uint32_t rule)
{
    uint32_t named = rule;
    for (; visits[depth].rule != rule; depth--)
        if (grammar->rules[named].name == MICA__GRAMMAR_NONE)
            named = visits[depth].rule;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "line %u, column %u: left recursion: the rule '%s' can begin with itself",
                      grammar->rules[named].line, grammar->rules[named].column,
                      mica__grammar_rule_name(grammar, named).text);
}

/* Depth first from one rule. `mark`: 0 not met, 1 on the way, 2 done. */
static mica_status search_circle(const mica_grammar *grammar, visit *visits, uint8_t *mark, uint32_t from)
{
    uint32_t depth = 0;
    visits[0] = visit_of(from);
    mark[from] = 1;
    for (;;) {
        const uint32_t other = next_first(grammar, &visits[depth]);
        MICA__TRY(mica__spend(8));
        if (other == MICA__GRAMMAR_NONE) {
            mark[visits[depth].rule] = 2;
            if (depth-- == 0)
                return MICA_OK;
        } else if (mark[other] == 1) {
            return refuse_circle(grammar, visits, depth, other);
        } else if (mark[other] == 0) {
            mark[other] = 1;
            visits[++depth] = visit_of(other);
        }
    }
}

static mica_status refuse_left_recursion(const mica_grammar *grammar)
{
    visit *visits = mica__calloc((size_t)grammar->rule_count + 1, sizeof *visits);
    uint8_t *mark = mica__calloc((size_t)grammar->rule_count + 1, sizeof *mark);
    mica_status status = MICA_OK;
    if (visits == NULL || mark == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to check the grammar");
    for (uint32_t r = 0; status == MICA_OK && r < grammar->rule_count; r++)
        if (mark[r] == 0)
            status = search_circle(grammar, visits, mark, r);
    mica__free(visits);
    mica__free(mark);
    return status;
}

mica_status mica__grammar_check(mica_grammar *grammar)
{
    mica_status status = find_nullable(grammar);
    if (status == MICA_OK)
        status = refuse_left_recursion(grammar);
    if (status == MICA_OK)
        status = drop_endless(grammar);
    return status;
}
