/* time.c: strftime in UTC, in English whatever the locale. */
#include <stdio.h>
#include <string.h>

#include "text/template/builtin.h"

#define CONVERSION_STEPS 8

typedef struct moment {
    int64_t year;
    int month, day; /* from 1 */
    int hour, minute, second;
    int weekday;  /* 0 is Sunday */
    int year_day; /* from 0 */
} moment;

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Years that begin in March end with the leap day, and 400 of them repeat. */
static moment split_time(int64_t seconds)
{
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    const int64_t shifted = days + 719468; /* since 1 March of the year 0 */
    const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    const int64_t era_day = shifted - era * 146097;
    const int64_t era_year = (era_day - era_day / 1460 + era_day / 36524 - era_day / 146096) / 365;
    const int64_t day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    const int64_t month = (5 * day + 2) / 153; /* from March */
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    moment m = {.hour = (int)(rest / 3600), .minute = (int)(rest / 60 % 60), .second = (int)(rest % 60)};
    m.day = (int)(day - (153 * month + 2) / 5 + 1);
    m.month = (int)(month < 10 ? month + 3 : month - 9);
    m.year = era_year + era * 400 + (m.month <= 2);
    m.weekday = (int)(((days + 4) % 7 + 7) % 7);
    m.year_day = before[m.month - 1] + m.day - 1 + (m.month > 2 && is_leap(m.year));
    return m;
}

/* The week of the year and the year it belongs to, as ISO 8601 counts: weeks begin on Monday and belong where their
 * Thursday is. */
static int iso_week(const moment *m, int64_t *out_year)
{
    const int thursday = m->year_day - (m->weekday + 6) % 7 + 3;
    const int length = 365 + is_leap(m->year);
    *out_year = m->year;
    if (thursday < 0) {
        *out_year = m->year - 1;
        return (thursday + 365 + is_leap(m->year - 1)) / 7 + 1;
    }
    if (thursday >= length) {
        *out_year = m->year + 1;
        return 1;
    }
    return thursday / 7 + 1;
}

static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static const struct {
    char letter;
    const char *format;
} composites[] = {
    {'c', "%a %b %e %H:%M:%S %Y"},
    {'D', "%m/%d/%y"},
    {'F', "%Y-%m-%d"},
    {'r', "%I:%M:%S %p"},
    {'R', "%H:%M"},
    {'T', "%H:%M:%S"},
    {'x', "%m/%d/%y"},
    {'X', "%H:%M:%S"},
};

/* One conversion; false when the letter is not known. */
static bool convert(const moment *m, char letter, bool pad, char *out, size_t size)
{
    const int hour12 = m->hour % 12 == 0 ? 12 : m->hour % 12;
    int64_t year;
    const int week = iso_week(m, &year);
    const char *two = pad ? "%02d" : "%d";
    switch (letter) {
    case 'Y': snprintf(out, size, "%lld", (long long)m->year); return true;
    case 'G': snprintf(out, size, "%lld", (long long)year); return true;
    case 'y': snprintf(out, size, two, (int)(m->year % 100)); return true;
    case 'm': snprintf(out, size, two, m->month); return true;
    case 'd': snprintf(out, size, two, m->day); return true;
    case 'e': snprintf(out, size, pad ? "%2d" : "%d", m->day); return true;
    case 'H': snprintf(out, size, two, m->hour); return true;
    case 'I': snprintf(out, size, two, hour12); return true;
    case 'M': snprintf(out, size, two, m->minute); return true;
    case 'S': snprintf(out, size, two, m->second); return true;
    case 'V': snprintf(out, size, two, week); return true;
    case 'U': snprintf(out, size, two, (m->year_day + 7 - m->weekday) / 7); return true;
    case 'W': snprintf(out, size, two, (m->year_day + 7 - (m->weekday + 6) % 7) / 7); return true;
    case 'j': snprintf(out, size, pad ? "%03d" : "%d", m->year_day + 1); return true;
    case 'u': snprintf(out, size, "%d", m->weekday == 0 ? 7 : m->weekday); return true;
    case 'w': snprintf(out, size, "%d", m->weekday); return true;
    case 'a': snprintf(out, size, "%.3s", weekdays[m->weekday]); return true;
    case 'A': snprintf(out, size, "%s", weekdays[m->weekday]); return true;
    case 'b':
    case 'h': snprintf(out, size, "%.3s", months[m->month - 1]); return true;
    case 'B': snprintf(out, size, "%s", months[m->month - 1]); return true;
    case 'p': snprintf(out, size, "%s", m->hour < 12 ? "AM" : "PM"); return true;
    case 'f': snprintf(out, size, "000000"); return true;
    case 'n': snprintf(out, size, "\n"); return true;
    case 't': snprintf(out, size, "\t"); return true;
    case '%': snprintf(out, size, "%%"); return true;
    case 'z':
    case 'Z': out[0] = '\0'; return true; /* as for a time without a zone */
    default: return false;
    }
}

static mica_status put_moment(mica__jinja_run *run, const moment *m, const char *format, size_t length)
{
    mica_status status = MICA_OK;
    for (size_t i = 0; status == MICA_OK && i < length; i++) {
        char text[32];
        const char *composite = NULL;
        MICA__TRY(mica__jinja_spend(run, format[i] == '%' ? CONVERSION_STEPS : 0));
        if (format[i] != '%' || i + 1 == length) {
            status = mica__jinja_put(run, format + i, 1);
            continue;
        }
        i++;
        const bool pad = format[i] != '-' || i + 1 == length;
        i += !pad;
        for (size_t c = 0; c < sizeof composites / sizeof *composites; c++)
            if (composites[c].letter == format[i])
                composite = composites[c].format;
        if (composite != NULL)
            status = put_moment(run, m, composite, strlen(composite));
        else if (convert(m, format[i], pad, text, sizeof text))
            status = mica__jinja_puts(run, text);
        else
            return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED,
                                    "strftime_now: the conversion %%%c is not known",
                                    format[i] >= ' ' && format[i] < 127 ? format[i] : '?');
    }
    return status;
}

mica_status mica__jinja_put_time(mica__jinja_run *run, int64_t seconds, const char *format, size_t length)
{
    if (seconds < -62135596800 || seconds > 253402300799)
        return mica__jinja_raise(run, "strftime_now: the time is not in the years 1 to 9999");
    const moment m = split_time(seconds);
    return put_moment(run, &m, format, length);
}
