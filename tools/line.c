/* line.c - reading lines, with libedit (MICA_HAVE_EDITLINE) or without. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "output.h"

struct tool_line {
    int interactive;
    struct line_editor *editor; /* NULL: lines are read plainly */
};

#ifdef MICA_HAVE_EDITLINE
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#define HISTORY_LINES 1000

typedef struct line_editor {
    EditLine *edit;
    History *history;
    const char *prompt;
    int interrupted;
    char path[1024]; /* of the history; "" if there is no place for it */
} line_editor;

static char *show_prompt(EditLine *edit)
{
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return (char *)(uintptr_t)((line_editor *)data)->prompt; /* libedit does not write it */
}

/* Ctrl-C is a key while a line is edited. */
static unsigned char drop_line(EditLine *edit, int key)
{
    void *data = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &data);
    ((line_editor *)data)->interrupted = 1;
    return CC_EOF;
}

/* The next letter; a signal ends the line, which libedit's own reading would not notice. */
static int read_letter(EditLine *edit, wchar_t *out)
{
    char bytes[MB_LEN_MAX];
    size_t count = 0, used = (size_t)-2;
    (void)edit;
    while (used == (size_t)-2 && count < sizeof bytes) {
        mbstate_t state = {0};
        ssize_t got = tool_interrupt_number() != 0 ? -1 : read(STDIN_FILENO, bytes + count, 1);
        if (got < 0 && errno == EINTR && tool_interrupt_number() == 0)
            continue;
        if (got <= 0)
            return (int)got;
        used = mbrtowc(out, bytes, ++count, &state);
    }
    if (used > sizeof bytes)
        *out = L'?'; /* no letter */
    return 1;
}

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

static line_editor *open_editor(void)
{
    HistEvent event;
    line_editor *editor = calloc(1, sizeof *editor);
    if (editor == NULL)
        return NULL;
    setlocale(LC_CTYPE, ""); /* how wide letters are */
    editor->edit = el_init("mica", stdin, stdout, stderr);
    editor->history = history_init();
    if (editor->edit == NULL || editor->history == NULL) {
        close_editor(editor);
        return NULL;
    }
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_PROMPT, show_prompt);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_SIGNAL, 0);
    el_set(editor->edit, EL_GETCFN, read_letter);
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_wset(editor->edit, EL_ADDFN, L"drop-line", L"forget the line", drop_line); /* el_set would leak */
    el_set(editor->edit, EL_SETTY, "-d", "-isig", NULL);
    el_set(editor->edit, EL_BIND, "^C", "drop-line", NULL);
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
    tool_interrupt_break_calls(1);
    el_set(editor->edit, EL_PREP_TERM,
           1); /* before the prompt, so that no key after it is the terminal's own */
    const char *text = el_gets(editor->edit, &count);
    tool_interrupt_break_calls(0);
    editor->interrupted |= tool_interrupt_number() != 0;
    if (editor->interrupted || text == NULL || count <= 0)
        putchar('\n');
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

static line_editor *open_editor(void)
{
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
        line->editor = open_editor();
    return line;
}

/* A signal ends the wait for a line. */
static tool_line_result read_plain(const tool_line *line, const char *prompt, tool_input *out)
{
    char *text = NULL;
    size_t room = 0;
    if (line->interactive) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    tool_interrupt_break_calls(1);
    ssize_t length = tool_interrupt_number() != 0 ? -1 : getline(&text, &room, stdin);
    tool_interrupt_break_calls(0);
    tool_line_result result = TOOL_LINE_END;
    if (length < 0 && tool_interrupt_number() != 0) {
        clearerr(stdin);
        result = TOOL_LINE_INTERRUPTED;
    } else if (length >= 0) {
        length -= length > 0 && text[length - 1] == '\n';
        if (tool_input_append(out, text, (size_t)length) == 0)
            result = TOOL_LINE_GIVEN;
    }
    free(text);
    if (line->interactive && result != TOOL_LINE_GIVEN)
        putchar('\n');
    return result;
}

tool_line_result tool_line_read(tool_line *line, const char *prompt, tool_input *out)
{
    *out = (tool_input){0};
    return line->editor != NULL ? read_edited(line->editor, prompt, out) : read_plain(line, prompt, out);
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
