/* number.h: numbers to text and back as Python writes them, whatever the locale. */
#ifndef MICA_TEXT_TEMPLATE_NUMBER_H
#define MICA_TEXT_TEMPLATE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MICA__JINJA_NUMBER_BYTES 352 /* %.17f of the largest double, and more digits are cut */
/* repr() of a double; returns the length. */
size_t mica__jinja_real_text(double real, char out[MICA__JINJA_NUMBER_BYTES]);
/* printf's %.*f, %.*e or %.*g with a point, whatever the locale. */
size_t mica__jinja_real_format(double real, char conversion, int precision,
                               char out[MICA__JINJA_NUMBER_BYTES]);
/* Python's float(text) and int(text, base). False: it is none. */
bool mica__jinja_parse_real(const char *text, size_t length, double *out);
bool mica__jinja_parse_int(const char *text, size_t length, int base, int64_t *out);

#endif
