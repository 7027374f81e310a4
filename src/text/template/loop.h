/* loop.h: the state of a for loop, and what a template sees of it. */
#ifndef MICA_TEXT_TEMPLATE_LOOP_H
#define MICA_TEXT_TEMPLATE_LOOP_H

#include "text/template/run.h"

typedef struct mica__jinja_loop {
    mica__jinja_cursor cursor;
    const mica__jinja_node *node; /* FOR; its test is applied to what the cursor gives */
    mica__jinja_scope *outer;     /* where the loop stands */
    mica__jinja_scope *test_scope;
    bool tested; /* the cursor gives only what has passed the test */
    bool has_after, has_before, has_length, has_changed;
    int64_t index0; /* -1 before the first item */
    mica__jinja_value before, current, after;
    mica__jinja_value changed; /* the last arguments of loop.changed, a tuple */
    size_t length;
} mica__jinja_loop;

mica_status mica__jinja_loop_begin(mica__jinja_run *run, const mica__jinja_node *node,
                                   const mica__jinja_value *of, mica__jinja_loop **out_loop);
/* The next item becomes the current one. */
mica_status mica__jinja_loop_advance(mica__jinja_run *run, mica__jinja_loop *loop, bool *out_some);

#endif
