/* line.c - reading lines, with libedit (MICA_HAVE_EDITLINE) or without.
 *
 * A newline ends a line unless more was there already when it came: those are lines that someone pasted, and belong together.
 * Terminals that can say where a paste begins and ends are asked to. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "terminal/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/text.h"

#define PASTE_MS 20 /* nobody types so soon after a newline */

struct tool_line {
    int interactive;
    struct line_editor *editor; /* NULL: lines are read plainly */
    size_t from, to;            /* what of `bytes` was not taken yet */
    int ended;                  /* nothing more will come */
    char bytes[4096];
};

/* Makes sure that there is a byte to take. 1; 0 at the end; -1 after a signal. */
static int fill(tool_line *line)
{
    ssize_t count = -1;
    while (line->from == line->to && !line->ended) {
        if (tool_interrupt_wait(STDIN_FILENO, -1) < 0)
            return -1;
        count = read(STDIN_FILENO, line->bytes, sizeof line->bytes);
        if (count < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        line->from = 0;
        line->to = count > 0 ? (size_t)count : 0;
        line->ended = count <= 0;
    }
    return line->from < line->to;
}

/* 1: letters follow the newline that was just taken, too soon to be typed. */
static int is_pasted(tool_line *line)
{
    if (line->from == line->to && (line->ended || tool_interrupt_wait(STDIN_FILENO, PASTE_MS) <= 0))
        return 0;
    if (fill(line) <= 0)
        return 0;
    unsigned char next = (unsigned char)line->bytes[line->from];
    return next >= ' ' || next == '\n' || next == '\r' || next == '\t' || next == '\033';
}

#ifdef MICA_HAVE_EDITLINE
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/stat.h>
#include <wchar.h>

#define HISTORY_LINES 1000
#define PASTED_NEWLINE L'\x1f' /* the key that stands for one */

typedef struct line_editor {
    EditLine *edit;
    History *history;
    tool_line *line;
    const char *prompt;
    int interrupted;
    int can_bracket; /* the terminal may know bracketed paste */
    char path[1024]; /* of the history; "" if there is no place for it */
} line_editor;

static line_editor *editor_of(EditLine *edit)
{
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return data;
}

static char *show_prompt(EditLine *edit)
{
    return (char *)(uintptr_t)editor_of(edit)->prompt; /* libedit does not write it */
}

/* Ctrl-C is a key while a line is edited. */
static unsigned char drop_line(EditLine *edit, int key)
{
    (void)key;
    editor_of(edit)->interrupted = 1;
    return CC_EOF;
}

/* ---- letters ---- */

/* The next character of UTF-8, whatever the locale; bytes that are none are U+FFFD each. As fill. */
static int next_letter(tool_line *line, wchar_t *out)
{
    char bytes[4];
    size_t count = 0, wanted = 1;
    uint32_t code;
    int got = fill(line);
    if (got <= 0)
        return got;
    unsigned char lead = (unsigned char)line->bytes[line->from];
    if (lead >= 0xc0)
        wanted = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 1;
    for (; count < wanted && fill(line) > 0; line->from++) {
        unsigned char byte = (unsigned char)line->bytes[line->from];
        if (count > 0 && (byte & 0xc0) != 0x80)
            break;
        bytes[count++] = (char)byte;
    }
    *out = tool_text_next(bytes, count, &code) == count && code != TOOL_NO_CHARACTER ? (wchar_t)code : 0xfffd;
    return 1;
}

static int read_letter(EditLine *edit, wchar_t *out)
{
    tool_line *line = editor_of(edit)->line;
    int got = next_letter(line, out);
    if (got > 0 && (*out == L'\n' || *out == L'\r') && is_pasted(line))
        *out = PASTED_NEWLINE;
    return got;
}

static unsigned char insert_newline(EditLine *edit, int key)
{
    (void)key;
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* ---- what a terminal says to be pasted ---- */

typedef struct letters {
    wchar_t *text; /* with a NUL behind it */
    size_t count, room;
} letters;

static int append_letter(letters *to, wchar_t letter)
{
    if (to->count + 1 >= to->room) {
        size_t room = to->room > 0 ? 2 * to->room : 256;
        wchar_t *grown = realloc(to->text, room * sizeof *grown);
        if (grown == NULL)
            return tool_fail("there is no memory for what was pasted");
        to->text = grown;
        to->room = room;
    }
    to->text[to->count++] = letter;
    to->text[to->count] = L'\0';
    return 0;
}

/* Up to the mark of its end, which is taken away. As fill. */
static int read_paste(tool_line *line, letters *out)
{
    static const wchar_t mark[] = L"\033[201~";
    const size_t length = sizeof mark / sizeof *mark - 1;
    wchar_t letter;
    int got;
    while ((got = next_letter(line, &letter)) > 0) {
        if (append_letter(out, letter) != 0)
            return 0;
        if (out->count >= length && wmemcmp(out->text + out->count - length, mark, length) == 0) {
            out->text[out->count -= length] = L'\0';
            return 1;
        }
    }
    return got;
}

/* No keys in it: controls are left out, but for tabs and newlines; those at its end too, which would hide the rest. */
static void clean_paste(letters *text)
{
    size_t kept = 0;
    for (size_t i = 0; i < text->count; i++) {
        wchar_t letter = text->text[i] == L'\r' ? L'\n' : text->text[i];
        if (letter == L'\n' || letter == L'\t' || !(letter < 0x20 || (letter >= 0x7f && letter < 0xa0)))
            text->text[kept++] = letter;
    }
    while (kept > 0 && text->text[kept - 1] == L'\n')
        kept--;
    text->count = kept;
    if (text->text != NULL)
        text->text[kept] = L'\0';
}

static unsigned char paste(EditLine *edit, int key)
{
    line_editor *editor = editor_of(edit);
    letters text = {0};
    (void)key;
    int got = read_paste(editor->line, &text);
    clean_paste(&text);
    unsigned char result = CC_REFRESH;
    if (got <= 0)
        result = CC_EOF;
    else if (text.count > 0 && el_winsertstr(edit, text.text) != 0)
        result = CC_ERROR;
    free(text.text);
    return result;
}

/* ---- opening ---- */
/* $XDG_STATE_HOME/mica/history; the folders are made. */
static void find_history(line_editor *editor)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = editor->path;
    size_t room = sizeof editor->path;
    int used = state != NULL && state[0] == '/' ? snprintf(path, room, "%s/mica/history", state)
               : home != NULL && home[0] == '/' ? snprintf(path, room, "%s/.local/state/mica/history", home)
                                                : 0;
    if (used <= 0 || (size_t)used >= room) {
        path[0] = '\0';
        return;
    }
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700); /* it may be there */
        *slash = '/';
    }
}

static void close_editor(line_editor *editor)
{
    HistEvent event;
    if (editor == NULL)
        return;
    if (editor->history != NULL && editor->path[0] != '\0')
        history(editor->history, &event, H_SAVE, editor->path);
    if (editor->edit != NULL)
        el_end(editor->edit);
    if (editor->history != NULL)
        history_end(editor->history);
    free(editor);
}

/* libedit makes letters of bytes by the locale; models know UTF-8 alone. 0: there is no such locale. */
static int use_utf8(void)
{
    static const char *const names[] = {"", "C.UTF-8", "C.utf8", "en_US.UTF-8", "UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_CTYPE, names[i]) != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0)
            return 1;
    setlocale(LC_CTYPE, "C");
    return 0;
}

static void bind_keys(EditLine *edit)
{
    el_set(edit, EL_PROMPT, show_prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_GETCFN, read_letter);
    el_wset(edit, EL_ADDFN, L"drop-line", L"forget the line", drop_line); /* el_set would leak */
    el_wset(edit, EL_ADDFN, L"insert-newline", L"a newline in the line", insert_newline);
    el_wset(edit, EL_ADDFN, L"paste", L"insert what is pasted", paste);
    el_set(edit, EL_SETTY, "-d", "-isig", NULL);
    el_set(edit, EL_BIND, "^C", "drop-line", NULL);
    el_set(edit, EL_BIND, "^_", "insert-newline", NULL);
    el_set(edit, EL_BIND, "\\e[200~", "paste", NULL);
}

static line_editor *open_editor(tool_line *line)
{
    HistEvent event;
    const char *kind = getenv("TERM");
    line_editor *editor = use_utf8() ? calloc(1, sizeof *editor) : NULL;
    if (editor == NULL)
        return NULL;
    editor->line = line;
    editor->can_bracket = kind != NULL && strcmp(kind, "dumb") != 0;
    editor->edit = el_init("mica", stdin, stdout, stderr);
    editor->history = history_init();
    if (editor->edit == NULL || editor->history == NULL) {
        close_editor(editor);
        return NULL;
    }
    el_set(editor->edit, EL_CLIENTDATA, editor);
    bind_keys(editor->edit);
    el_set(editor->edit, EL_HIST, history, editor->history);
    history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    history(editor->history, &event, H_SETUNIQUE, 1);
    find_history(editor);
    if (editor->path[0] != '\0')
        history(editor->history, &event, H_LOAD, editor->path);
    return editor;
}

static tool_line_result read_edited(line_editor *editor, const char *prompt, tool_input *out)
{
    int count = 0;
    editor->prompt = prompt;
    editor->interrupted = 0;
    if (editor->can_bracket)
        fputs("\033[?2004h", stdout);
    el_set(editor->edit, EL_PREP_TERM,
           1); /* before the prompt, so that no key after it is the terminal's own */
    const char *text = el_gets(editor->edit, &count);
    editor->interrupted |= tool_interrupt_number() != 0;
    if (editor->can_bracket)
        fputs("\033[?2004l", stdout);
    if (editor->interrupted || text == NULL || count <= 0)
        putchar('\n');
    fflush(stdout);
    if (editor->interrupted)
        return TOOL_LINE_INTERRUPTED;
    if (text == NULL || count <= 0)
        return TOOL_LINE_END;
    size_t length = (size_t)count - (text[count - 1] == '\n');
    return tool_input_append(out, text, length) == 0 ? TOOL_LINE_GIVEN : TOOL_LINE_END;
}

static void remember(line_editor *editor, const char *text)
{
    HistEvent event;
    history(editor->history, &event, H_ENTER, text);
}
#else
typedef struct line_editor line_editor;

static line_editor *open_editor(tool_line *line)
{
    (void)line;
    return NULL;
}

static void close_editor(line_editor *editor)
{
    (void)editor;
}

static tool_line_result read_edited(line_editor *editor, const char *prompt, tool_input *out)
{
    (void)editor;
    (void)prompt;
    (void)out;
    return TOOL_LINE_END;
}

static void remember(line_editor *editor, const char *text)
{
    (void)editor;
    (void)text;
}
#endif

tool_line *tool_line_open(int interactive)
{
    tool_line *line = calloc(1, sizeof *line);
    if (line == NULL) {
        tool_fail("there is no memory left");
        return NULL;
    }
    line->interactive = interactive;
    if (interactive)
        line->editor = open_editor(line);
    return line;
}

/* A signal ends the wait for a line. */
static tool_line_result read_plain(tool_line *line, const char *prompt, tool_input *out)
{
    int got, ends = 0;
    if (line->interactive) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    while (!ends && (got = fill(line)) > 0) {
        const char *start = line->bytes + line->from;
        const char *newline = memchr(start, '\n', line->to - line->from);
        size_t length = newline != NULL ? (size_t)(newline - start) : line->to - line->from;
        if (tool_input_append(out, start, length) != 0)
            return TOOL_LINE_END;
        line->from += length + (newline != NULL);
        ends = newline != NULL && !(line->interactive && is_pasted(line));
        if (newline != NULL && !ends && tool_input_append(out, "\n", 1) != 0)
            return TOOL_LINE_END;
    }
    tool_line_result result = ends || (got == 0 && out->text != NULL) ? TOOL_LINE_GIVEN
                              : got < 0                               ? TOOL_LINE_INTERRUPTED
                                                                      : TOOL_LINE_END;
    if (line->interactive && result != TOOL_LINE_GIVEN)
        putchar('\n');
    return result;
}

tool_line_result tool_line_read(tool_line *line, const char *prompt, tool_input *out)
{
    *out = (tool_input){0};
    tool_line_result result =
        line->editor != NULL ? read_edited(line->editor, prompt, out) : read_plain(line, prompt, out);
    while (line->interactive && out->length > 0 && out->text[out->length - 1] == '\n')
        tool_input_end_line(out);
    return result;
}

void tool_line_remember(tool_line *line, const char *text)
{
    if (line->editor != NULL)
        remember(line->editor, text);
}

void tool_line_close(tool_line *line)
{
    if (line == NULL)
        return;
    close_editor(line->editor);
    free(line);
}
