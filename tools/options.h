/*
 * options.h - what each command of the tool is called, takes and says about itself.
 *
 * One table (commands.c, with the groups of options that commands share in groups.c) feeds four readers: the parser,
 * `mica help`, the manual page and the shell completions. So a command or an option is written down once.
 */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

#define TOOL_MAX_OPTIONS 64
#define TOOL_MAX_GROUPS 5
#define TOOL_MAX_ARGUMENTS 3
#define TOOL_MAX_REPEATS 256

typedef enum tool_kind {
    TOOL_FLAG,
    TOOL_WORD,
    TOOL_NUMBER, /* whole */
    TOOL_REAL,
    TOOL_PATH,
    TOOL_REPEATED,    /* a word that may be given more than once */
    TOOL_PAIR,        /* likewise two words, which tool_repeat gives one after the other */
    TOOL_ANY_CASE,    /* a word whose choices may be written in capitals */
    TOOL_COMMAND_NAME /* an argument alone */
} tool_kind;

typedef struct tool_option {
    const char *name; /* without the dashes */
    const char *also; /* other spellings with their dashes: "-n|--predict"; NULL: none */
    tool_kind kind;
    const char *value;    /* how help calls its value: "N"; NULL for a flag */
    const char *choices;  /* "tiny|1b": nothing else is taken; NULL: anything */
    const char *standard; /* what holds when it is not given; NULL: nothing */
    double least, most;   /* of a number */
    const char *help;
} tool_option;

/* Options under one heading. */
typedef struct tool_group {
    const char *title; /* "sampling" */
    const tool_option *options;
    size_t count;
} tool_group;

/* A positional argument. */
typedef struct tool_argument {
    const char *name; /* "SHELL"; NULL: there is none */
    tool_kind kind;
    const char *choices; /* of a word: nothing else is taken; NULL: anything */
    int optional;        /* 1: may be left out */
} tool_argument;

struct tool_call;

typedef struct tool_command {
    const char *name;
    const char *summary;     /* one line, no full stop */
    const char *description; /* sentences, for help and the manual page */
    tool_argument argument[TOOL_MAX_ARGUMENTS];
    const tool_group *group[TOOL_MAX_GROUPS]; /* NULL after the last one */
    int (*run)(const struct tool_call *call); /* exit status */
} tool_command;

/* One parsed command line. The texts are the program's own arguments or the table's. */
typedef struct tool_call {
    const tool_command *command;
    const char *argument[TOOL_MAX_ARGUMENTS]; /* NULL: not given */
    const char *text[TOOL_MAX_OPTIONS];
    double real[TOOL_MAX_OPTIONS];
    int64_t number[TOOL_MAX_OPTIONS];
    struct {
        size_t option;
        const char *text;
    } repeated[TOOL_MAX_REPEATS];
    size_t repeated_count;
} tool_call;

/* The table, in the order of help. */
const tool_command *tool_commands(size_t *out_count);
const tool_command *tool_command_find(const char *name);
/* The options of a command counted over its groups; NULL after the last one. */
const tool_option *tool_option_at(const tool_command *command, size_t index);

/* Reads argv[0..count) after the command's name. 0, or 2 after printing what is wrong. */
int tool_parse(const tool_command *command, int count, char **argv, tool_call *out_call);

/* Values by the option's name, which must be in the command's table. */
int tool_flag(const tool_call *call, const char *name);
const char *tool_word(const tool_call *call, const char *name);
int64_t tool_number(const tool_call *call, const char *name);
double tool_real(const tool_call *call, const char *name);
/* The next text of an option that may be repeated; `*cursor` is 0 at first. NULL at the end. */
const char *tool_repeat(const tool_call *call, const char *name, size_t *cursor);

/* The texts of --accept-key. */
typedef struct tool_accepted {
    const char *name[TOOL_MAX_REPEATS];
    uint32_t count;
} tool_accepted;
void tool_accepted_keys(const tool_call *call, tool_accepted *out);

/* The next choice of "a|b|c" at *cursor: its length, and the cursor moves on. 0 at the end. */
size_t tool_next_choice(const char **cursor, const char **out_choice);
/* The type of that name, in capitals or not; NONE after printing which there are. `what` is the option, "--type". */
mica_dtype tool_type_find(const tool_call *call, const char *what, const char *name, size_t length);

/* The readers of the table that print. */
void tool_print_overview(void);
void tool_print_help(const tool_command *command);
void tool_print_manual(void);
int tool_print_completion(const char *shell);

#endif
