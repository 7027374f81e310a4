/* pages.c - see pages.h. */
#include "model/pages.h"

#include <string.h>

#include "base/alloc.h"

mica_status mica__pages_create(mica__pages *pages, uint32_t tokens, uint32_t count, uint32_t sequences,
                               uint32_t positions, uint32_t window)
{
    const uint32_t row = (positions + tokens - 1) / tokens;
    *pages = (mica__pages){.tokens = tokens,
                           .count = count,
                           .free_count = count,
                           .sequences = sequences,
                           .row = row,
                           .window = window,
                           .changed = true};
    pages->references = mica__calloc(count, sizeof *pages->references);
    pages->free = mica__alloc(count * sizeof *pages->free);
    pages->table = mica__alloc((size_t)sequences * row * sizeof *pages->table);
    if (pages->references == NULL || pages->free == NULL || pages->table == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the table of %u pages", count);
    for (uint32_t i = 0; i < count; i++)
        pages->free[i] = count - 1 - i;
    memset(pages->table, 0xFF, (size_t)sequences * row * sizeof *pages->table);
    return MICA_OK;
}

void mica__pages_free(mica__pages *pages)
{
    mica__free(pages->references);
    mica__free(pages->free);
    mica__free(pages->table);
    *pages = (mica__pages){0};
}

static uint32_t *row_of(const mica__pages *pages, uint32_t sequence)
{
    return pages->table + (size_t)sequence * pages->row;
}

static uint32_t take(mica__pages *pages)
{
    const uint32_t page = pages->free[--pages->free_count];
    pages->references[page] = 1;
    return page;
}

static void give(mica__pages *pages, uint32_t *entry)
{
    if (*entry == MICA__NO_PAGE)
        return;
    if (--pages->references[*entry] == 0)
        pages->free[pages->free_count++] = *entry;
    *entry = MICA__NO_PAGE;
    pages->changed = true;
}

/* Whether the page at `entry` must be copied: someone else shows it too. */
static bool is_shared(const mica__pages *pages, uint32_t entry)
{
    return entry != MICA__NO_PAGE && pages->references[entry] > 1;
}

uint32_t mica__pages_wanted(const mica__pages *pages, uint32_t sequence, uint32_t from, uint32_t to)
{
    const uint32_t *row = row_of(pages, sequence);
    uint32_t wanted = 0;
    for (uint32_t i = from / pages->tokens; i <= (to - 1) / pages->tokens; i++)
        wanted += row[i] == MICA__NO_PAGE || is_shared(pages, row[i]);
    return wanted;
}

void mica__pages_extend(mica__pages *pages, uint32_t sequence, uint32_t from, uint32_t to,
                        mica__page_copy *out_copy)
{
    uint32_t *row = row_of(pages, sequence);
    *out_copy = (mica__page_copy){0, 0};
    for (uint32_t i = from / pages->tokens; i <= (to - 1) / pages->tokens; i++) {
        const uint32_t old = row[i];
        if (old != MICA__NO_PAGE && !is_shared(pages, old))
            continue;
        row[i] = take(pages);
        pages->changed = true;
        if (old != MICA__NO_PAGE) { /* only the first page can hold tokens already */
            pages->references[old]--;
            *out_copy = (mica__page_copy){old, row[i]};
        }
    }
}

uint32_t mica__pages_first(const mica__pages *pages, uint32_t position)
{
    return pages->window == 0 || position < pages->window ? 0 : position - pages->window + 1;
}

bool mica__pages_hold(const mica__pages *pages, uint32_t sequence, uint32_t length)
{
    const uint32_t *row = row_of(pages, sequence);
    for (uint32_t p = mica__pages_first(pages, length); p < length;
         p = (p / pages->tokens + 1) * pages->tokens)
        if (row[p / pages->tokens] == MICA__NO_PAGE)
            return false;
    return true;
}

void mica__pages_share(mica__pages *pages, uint32_t from, uint32_t to, uint32_t length)
{
    const uint32_t *source = row_of(pages, from);
    uint32_t *target = row_of(pages, to);
    for (uint32_t i = 0; i < (length + pages->tokens - 1) / pages->tokens; i++) {
        target[i] = source[i];
        if (source[i] != MICA__NO_PAGE)
            pages->references[source[i]]++;
    }
    pages->changed = true;
}

void mica__pages_trim(mica__pages *pages, uint32_t sequence, uint32_t length)
{
    uint32_t *row = row_of(pages, sequence);
    for (uint32_t i = (length + pages->tokens - 1) / pages->tokens; i < pages->row; i++)
        give(pages, &row[i]);
}

void mica__pages_forget(mica__pages *pages, uint32_t sequence, uint32_t length)
{
    uint32_t *row = row_of(pages, sequence);
    const uint32_t keep = mica__pages_first(pages, length) / pages->tokens;
    for (uint32_t i = keep; i-- > 0 && row[i] != MICA__NO_PAGE;)
        give(pages, &row[i]);
}
