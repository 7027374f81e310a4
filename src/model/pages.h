/*
 * pages.h - which page of the cache holds which tokens of which sequence. Numbers only: the memory is the context's.
 *
 * A page holds the keys and values of some consecutive tokens, for all layers of one kind: those that see everything, and
 * those with a sliding window, whose old pages are given back. A fork shares the pages of its beginning; a shared page is
 * copied before one of them writes into it.
 */
#ifndef MICA_MODEL_PAGES_H
#define MICA_MODEL_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MICA__NO_PAGE 0xFFFFFFFFu

typedef struct mica__pages {
    uint32_t tokens; /* of a page */
    uint32_t count, free_count;
    uint32_t sequences, row; /* the table is [sequences, row] */
    uint32_t window;         /* 0: everything is kept */
    uint32_t *references;    /* [count]: sequences that show the page */
    uint32_t *free;          /* [free_count], the next one last */
    uint32_t *table;         /* pages by sequence and position / tokens; MICA__NO_PAGE */
    bool changed;            /* the table, since its owner cleared this */
} mica__pages;

/* A page that must be copied before the next pass writes into its copy. */
typedef struct mica__page_copy {
    uint32_t from, to; /* equal: nothing to copy */
} mica__page_copy;

mica_status mica__pages_create(mica__pages *pages, uint32_t tokens, uint32_t count, uint32_t sequences,
                               uint32_t positions, uint32_t window);
/* A zeroed one is fine. */
void mica__pages_free(mica__pages *pages);

/* Pages that must be free for positions [from, to) of a sequence to be written. */
uint32_t mica__pages_wanted(const mica__pages *pages, uint32_t sequence, uint32_t from, uint32_t to);
/* Makes positions [from, to) writable. The caller has seen that enough are free. */
void mica__pages_extend(mica__pages *pages, uint32_t sequence, uint32_t from, uint32_t to,
                        mica__page_copy *out_copy);
/* The first position that a token at `position` sees. */
uint32_t mica__pages_first(const mica__pages *pages, uint32_t position);
/* Whether everything that a token at `length` would see is there. */
bool mica__pages_hold(const mica__pages *pages, uint32_t sequence, uint32_t length);
/* `to`, which is empty, shows the first `length` tokens of `from`. */
void mica__pages_share(mica__pages *pages, uint32_t from, uint32_t to, uint32_t length);
/* Gives back what lies behind the first `length` tokens. */
void mica__pages_trim(mica__pages *pages, uint32_t sequence, uint32_t length);
/* Gives back what no token from `length` on can see. */
void mica__pages_forget(mica__pages *pages, uint32_t sequence, uint32_t length);

#endif
