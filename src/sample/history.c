/* history.c: what was said before, and what repeating it costs: penalties, and DRY ("don't repeat yourself"). */
#include <float.h>
#include <math.h>

#include "sample/sample.h"

void mica__history_push(mica__history *history, uint32_t id, bool breaks)
{
    if (history->capacity == 0)
        return;
    history->ids[history->head] = id;
    history->breaks[history->head] = breaks;
    history->head = (history->head + 1) % history->capacity;
    if (history->count < history->capacity)
        history->count++;
}

/* A finite number: what is taken off may be more than a float holds. */
static float within(double logit)
{
    return logit < -FLT_MAX ? -FLT_MAX : logit > FLT_MAX ? FLT_MAX : (float)logit;
}

float mica__penalty(const mica_sampling *sampling, float logit, uint32_t times)
{
    const float scaled = logit <= 0 ? logit * sampling->repeat_penalty : logit / sampling->repeat_penalty;
    const float off = sampling->frequency_penalty * (float)times;
    const float all = off + sampling->presence_penalty;
    return within((double)(scaled - all)); /* in f32, as mica_penalize does it: greedy texts are the same */
}

float mica__dry_penalty(const mica_sampling *sampling, uint32_t length)
{
    return within(sampling->dry_multiplier *
                  pow(sampling->dry_base, (double)(length - sampling->dry_allowed)));
}

/* The newest tokens after the last break, at most `last`. */
static uint32_t unbroken(const mica__history *history, uint32_t last)
{
    for (uint32_t back = 0; back < last; back++)
        if (history->breaks[(history->head + history->capacity - 1 - back) % history->capacity])
            return back;
    return last;
}

/* lengths[back]: how many tokens before and at `back` equal as many at the end; the Z algorithm on the text read
 * backwards. lengths[0] is not set. */
static void match_lengths(const mica__history *history, uint32_t last, uint32_t *lengths)
{
    uint32_t left = 0, right = 0; /* [left, right) is the match that reaches farthest */
    for (uint32_t i = 1; i < last; i++) {
        uint32_t length = 0;
        if (i < right)
            length = lengths[i - left] < right - i ? lengths[i - left] : right - i;
        while (i + length < last &&
               mica__history_at(history, length) == mica__history_at(history, i + length))
            length++;
        lengths[i] = length;
        if (i + length > right) {
            left = i;
            right = i + length;
        }
    }
}

uint32_t mica__dry_search(const mica__history *history, uint32_t last, uint32_t allowed, uint32_t *lengths,
                          uint32_t *longest, uint32_t *found)
{
    const uint32_t limit = unbroken(history, last < history->count ? last : history->count);
    uint32_t count = 0;
    if (last > history->count)
        last = history->count;
    if (limit == 0 || limit < allowed)
        return 0;
    match_lengths(history, last, lengths);
    for (uint32_t back = 1; back < last; back++) {
        const uint32_t length = lengths[back] < limit ? lengths[back] : limit;
        const uint32_t next = mica__history_at(history, back - 1);
        if (length == 0 || length < allowed)
            continue;
        if (longest[next] == 0)
            found[count++] = next;
        if (length > longest[next])
            longest[next] = length;
    }
    return count;
}
