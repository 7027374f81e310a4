/* manual.c - the table of commands as help, as a manual page, and as completions for three shells. */
#include <stdio.h>
#include <string.h>

#include "mica/mica.h"
#include "options.h"
#include "terminal/output.h"

static const char about[] = "runs neural networks on whatever processor the machine has";

/* ---- help ---- */

#define HELP_COLUMN 29 /* where the help of an option begins */

/* Words up to column 79, indented; `column` is where the line is now. */
static void print_wrapped(const char *text, int column, int indent)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > 79) {
            putchar('\n');
            column = 0;
        }
        column += column <= indent ? printf("%*s%.*s", indent - column, "", length, text)
                                   : printf(" %.*s", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_usage(const tool_command *command)
{
    printf("mica %s", command->name);
    for (size_t i = 0; i < TOOL_MAX_ARGUMENTS && command->argument[i].name != NULL; i++)
        printf(command->argument[i].optional ? " [%s]" : " %s", command->argument[i].name);
    if (command->group[0] != NULL)
        fputs(" [OPTIONS]", stdout);
}

void tool_print_overview(void)
{
    size_t count = 0;
    const tool_command *commands = tool_commands(&count);
    printf("mica %s: %s\n\nusage: mica COMMAND [OPTIONS]\n\n", mica_version(), about);
    for (size_t i = 0; i < count; i++)
        printf("  %s%-11s%s %s\n", tool_style_begin(TOOL_STRONG), commands[i].name,
               tool_style_begin(TOOL_PLAIN), commands[i].summary);
    puts("\n'mica help COMMAND' explains one of them.");
}

/* The spelling of one letter, "" if there is none. */
static const char *short_name(const tool_option *option, char out[3])
{
    const char *also = option->also, *spelling;
    out[0] = '\0';
    while (also != NULL && out[0] == '\0') {
        size_t length = tool_next_choice(&also, &spelling);
        if (length == 0)
            return out;
        if (length == 2)
            snprintf(out, 3, "%.2s", spelling);
    }
    return out;
}

/* "TYPE is one of f32, f16." as print_wrapped likes it. */
static void print_argument_choices(const tool_argument *argument)
{
    char text[640];
    const char *choices = argument->choices, *choice;
    size_t length, used = (size_t)snprintf(text, sizeof text, "%s is one of", argument->name);
    while ((length = tool_next_choice(&choices, &choice)) > 0 && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, " %.*s%c", (int)length, choice,
                                 *choices == '\0' ? '.' : ',');
    putchar('\n');
    print_wrapped(text, 0, 0);
}

/* What help says of an option after its name: "type of the weights: q4_0, q8_0 (q4_0; also -x)". */
static void option_help(const tool_option *option, char *out, size_t capacity)
{
    const char *also = option->also, *choices = option->choices, *spelling, *before = " (";
    size_t used = (size_t)snprintf(out, capacity, "%s", option->help), length;
    for (const char *comma = ": "; choices != NULL && (length = tool_next_choice(&choices, &spelling)) > 0;
         comma = ", ")
        used += (size_t)snprintf(out + used, capacity - used, "%s%.*s", comma, (int)length, spelling);
    if (option->standard != NULL) {
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", before, option->standard);
        before = "; ";
    }
    while (also != NULL && (length = tool_next_choice(&also, &spelling)) > 0) {
        if (length == 2)
            continue;
        used += (size_t)snprintf(out + used, capacity - used, "%salso %.*s", before, (int)length, spelling);
        before = ", ";
    }
    if (strcmp(before, " (") != 0)
        snprintf(out + used, capacity - used, ")");
}

static void print_option(const tool_option *option)
{
    char letter[3], help[512];
    short_name(option, letter);
    printf("  %s%2s%s ", tool_style_begin(TOOL_STRONG), letter, letter[0] != '\0' ? "," : " ");
    int column = 6 + printf("--%s", option->name);
    fputs(tool_style_begin(TOOL_PLAIN), stdout);
    if (option->value != NULL)
        column += printf(" %s", option->value);
    if (column >= HELP_COLUMN) {
        putchar('\n');
        column = 0;
    }
    option_help(option, help, sizeof help);
    print_wrapped(help, column, HELP_COLUMN);
}

void tool_print_help(const tool_command *command)
{
    fputs("usage: ", stdout);
    print_usage(command);
    fputs("\n\n", stdout);
    print_wrapped(command->description, 0, 0);
    for (size_t i = 0; i < TOOL_MAX_ARGUMENTS; i++)
        if (command->argument[i].choices != NULL)
            print_argument_choices(&command->argument[i]);
    for (size_t g = 0; g < TOOL_MAX_GROUPS && command->group[g] != NULL; g++) {
        printf("\n%s:\n", command->group[g]->title);
        for (size_t i = 0; i < command->group[g]->count; i++)
            print_option(&command->group[g]->options[i]);
    }
}

/* ---- the manual page ---- */

/* Text for roff: dashes stay dashes, a dot at the start of a line stays a dot. */
static void print_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != '\0'; text++) {
        if (*text == '-' || *text == '\\')
            putchar('\\');
        if (*text == '\\')
            fputs("e", stdout);
        else
            putchar(*text);
    }
}

/* "a|b" with another separator; the names of all commands when `choices` is NULL. */
static void print_choices(const char *choices, const char *separator)
{
    const char *choice;
    size_t length, count = 0;
    const tool_command *commands = tool_commands(&count);
    if (choices == NULL) {
        for (size_t i = 0; i < count; i++)
            printf("%s%s", i > 0 ? separator : "", commands[i].name);
        return;
    }
    for (int first = 1; (length = tool_next_choice(&choices, &choice)) > 0; first = 0)
        printf("%s%.*s", first ? "" : separator, (int)length, choice);
}

static void print_roff_option(const tool_option *option)
{
    const char *also = option->also, *spelling;
    size_t length;
    fputs(".TP\n.B \\-\\-", stdout);
    print_roff(option->name);
    while (also != NULL && (length = tool_next_choice(&also, &spelling)) > 0) {
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)length, spelling);
        fputs(", ", stdout);
        print_roff(word);
    }
    if (option->value != NULL)
        printf(" \\fI%s\\fR", option->value);
    putchar('\n');
    print_roff(option->help);
    if (option->choices != NULL) {
        fputs(": ", stdout);
        print_choices(option->choices, ", ");
    }
    if (option->standard != NULL)
        printf(" (default %s)", option->standard);
    fputs(".\n", stdout);
}

static void print_roff_choices(const tool_argument *argument)
{
    printf(".I %s\nis one of\n", argument->name);
    print_choices(argument->choices, ", ");
    fputs(".\n", stdout);
}

void tool_print_manual(void)
{
    size_t count = 0;
    const tool_command *commands = tool_commands(&count);
    printf(".TH MICA 1 \"\" \"mica %s\"\n.SH NAME\nmica \\- %s\n", mica_version(), about);
    fputs(".SH SYNOPSIS\n.B mica\n.I COMMAND\n.RI [ OPTIONS ]\n.SH COMMANDS\n", stdout);
    for (size_t i = 0; i < count; i++) {
        fputs(".SS \"", stdout);
        print_usage(&commands[i]);
        fputs("\"\n", stdout);
        print_roff(commands[i].description);
        putchar('\n');
        for (size_t a = 0; a < TOOL_MAX_ARGUMENTS; a++)
            if (commands[i].argument[a].choices != NULL)
                print_roff_choices(&commands[i].argument[a]);
        const tool_option *option;
        for (size_t o = 0; (option = tool_option_at(&commands[i], o)) != NULL; o++)
            print_roff_option(option);
    }
    fputs(".SH EXIT STATUS\n0 on success, 1 after a failure, 2 after wrong usage, 130 after Ctrl\\-C; diff "
          "has its own. "
          "The reason is one sentence on standard error.\n.SH ENVIRONMENT\n.TP\n.B MICA_DEVICE\nwhat the "
          "device \"auto\" is.\n.TP\n.B "
          "MICA_THREADS\nthreads of "
          "the cpu device.\n.TP\n.B MICA_CPU_ISA\ninstruction set of the cpu kernels.\n.TP\n.B "
          "MICA_DEBUG\nwords that "
          "switch diagnostics on, separated by commas.\n.TP\n.B NO_COLOR\nno colour on a terminal.\n",
          stdout);
}

/* ---- completions ---- */

/* What bash offers for the value of an option or for an argument: words, or names of files. */
static void print_bash_offer(tool_kind kind, const char *choices, int names_of_commands)
{
    if (kind == TOOL_PATH)
        fputs(" files=1", stdout);
    fputs(" words='", stdout);
    if (choices != NULL || names_of_commands)
        print_choices(choices, " ");
}

/* "run:--n-predict|run:-n|run:--predict": the patterns of a case for each spelling, with `after` behind each. */
static void print_bash_patterns(const tool_command *command, const tool_option *option, const char *after)
{
    const char *also = option->also, *spelling;
    size_t length;
    printf("%s:--%s%s", command->name, option->name, after);
    while (also != NULL && (length = tool_next_choice(&also, &spelling)) > 0)
        printf("|%s:%.*s%s", command->name, (int)length, spelling, after);
}

static void bash_option_values(const tool_command *command)
{
    const tool_option *option;
    for (size_t o = 0; (option = tool_option_at(command, o)) != NULL; o++) {
        if (option->kind == TOOL_FLAG)
            continue;
        fputs("    ", stdout);
        print_bash_patterns(command, option, ":*");
        putchar(')');
        print_bash_offer(option->kind, option->choices, 0);
        fputs("' ;;\n", stdout);
    }
}

/* One line for each argument and one for what follows the last. */
static void bash_arguments(const tool_command *command)
{
    for (size_t a = 0; a <= TOOL_MAX_ARGUMENTS; a++) {
        const tool_argument *argument =
            a < TOOL_MAX_ARGUMENTS && command->argument[a].name != NULL ? &command->argument[a] : NULL;
        if (argument != NULL)
            printf("    %s:*:%u)", command->name, (unsigned)a);
        else
            printf("    %s:*)", command->name);
        if (argument != NULL)
            print_bash_offer(argument->kind, argument->choices, argument->kind == TOOL_COMMAND_NAME);
        else
            print_bash_offer(TOOL_WORD, NULL, 0);
        const tool_option *option;
        for (size_t o = 0; (option = tool_option_at(command, o)) != NULL; o++)
            printf(" --%s", option->name);
        fputs("' ;;\n", stdout);
        if (argument == NULL)
            return;
    }
}

static void complete_bash(const tool_command *commands, size_t count)
{
    fputs("_mica() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= files= place=0 "
          "i\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[1]}:${COMP_WORDS[i]} in\n",
          stdout);
    for (size_t i = 0; i < count; i++) {
        const tool_option *option;
        for (size_t o = 0; (option = tool_option_at(&commands[i], o)) != NULL; o++) {
            if (option->kind == TOOL_FLAG)
                continue;
            fputs("        ", stdout);
            print_bash_patterns(&commands[i], option, "");
            fputs(") i=$((i + 1)) ;;\n", stdout);
        }
    }
    fputs("        *:-*) ;;\n        *) place=$((place + 1)) ;;\n        esac\n    done\n"
          "    case ${COMP_WORDS[1]}:$before:$place in\n",
          stdout);
    for (size_t i = 0; i < count; i++)
        bash_option_values(&commands[i]);
    for (size_t i = 0; i < count; i++)
        bash_arguments(&commands[i]);
    fputs("    esac\n    [ $COMP_CWORD -gt 1 ] || { files= words='", stdout);
    print_choices(NULL, " ");
    fputs(" --version --help'; }\n"
          "    [ -z \"$files\" ] || case $word in -*) ;; *) words= ;; esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "    if [ -n \"$files\" ] && [ -z \"$words\" ]; then\n"
          "        local IFS=$'\\n'\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "    fi\n}\ncomplete -F _mica mica\n",
          stdout);
}

/* ":VALUE:(a b)" */
static void print_zsh_value(const char *name, tool_kind kind, const char *choices)
{
    printf(":%s:", name);
    if (kind == TOOL_PATH)
        fputs("_files", stdout);
    if (choices == NULL && kind != TOOL_COMMAND_NAME)
        return;
    putchar('(');
    print_choices(choices, " ");
    putchar(')');
}

/* '*'{-n,--n-predict}'[help]:N:' as _arguments wants it; brackets and colons of the help end nothing. */
static void print_zsh_option(const tool_option *option)
{
    const char *also = option->also, *spelling;
    size_t length;
    printf(" \\\n        '%s", option->kind == TOOL_REPEATED || option->kind == TOOL_PAIR ? "*" : "");
    if (also != NULL)
        fputs("'{", stdout);
    while (also != NULL && (length = tool_next_choice(&also, &spelling)) > 0)
        printf("%.*s,", (int)length, spelling);
    printf("--%s%s[", option->name, option->also != NULL ? "}'" : "");
    for (const char *at = option->help; *at != '\0'; at++)
        printf(*at == '\''                                             ? "'\\''"
               : *at == ':' || *at == '[' || *at == ']' || *at == '\\' ? "\\%c"
                                                                       : "%c",
               *at);
    putchar(']');
    if (option->kind != TOOL_FLAG)
        print_zsh_value(option->value, option->kind, option->choices);
    putchar('\'');
}

static void complete_zsh(const tool_command *commands, size_t count)
{
    fputs("#compdef mica\n_mica() {\n    local -a commands\n    commands=(\n", stdout);
    for (size_t i = 0; i < count; i++)
        printf("        '%s:%s'\n", commands[i].name, commands[i].summary);
    fputs(
        "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
        "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n",
        stdout);
    for (size_t i = 0; i < count; i++) {
        printf("    %s) _arguments", commands[i].name);
        const tool_option *option;
        for (size_t o = 0; (option = tool_option_at(&commands[i], o)) != NULL; o++)
            print_zsh_option(option);
        for (size_t a = 0; a < TOOL_MAX_ARGUMENTS && commands[i].argument[a].name != NULL; a++) {
            printf(" \\\n        '%u", (unsigned)a + 1);
            print_zsh_value(commands[i].argument[a].name, commands[i].argument[a].kind,
                            commands[i].argument[a].choices);
            putchar('\'');
        }
        fputs(" ;;\n", stdout);
    }
    fputs("    esac\n}\nif [ \"$funcstack[1]\" = _mica ]; then _mica \"$@\"; else compdef _mica mica; fi\n",
          stdout);
}

/* Single quotes of a shell string: none of the table's texts may break out of them. */
static void print_fish_text(const char *text)
{
    for (; *text != '\0'; text++)
        printf(*text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void fish_argument(const tool_command *command, const tool_argument *argument)
{
    printf("complete -c mica -n '__fish_seen_subcommand_from %s'", command->name);
    if (argument->kind == TOOL_PATH)
        fputs(" -F", stdout);
    if (argument->choices != NULL || argument->kind == TOOL_COMMAND_NAME) {
        fputs(" -a '", stdout);
        print_choices(argument->choices, " ");
        putchar('\'');
    }
    putchar('\n');
}

static void fish_option(const tool_command *command, const tool_option *option)
{
    const char *also = option->also, *spelling;
    size_t length;
    printf("complete -c mica -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
    while (also != NULL && (length = tool_next_choice(&also, &spelling)) > 0) {
        if (length == 2)
            printf(" -s %c", spelling[1]);
        else if (spelling[1] == '-')
            printf(" -l %.*s", (int)length - 2, spelling + 2);
        else
            printf(" -o %.*s", (int)length - 1, spelling + 1);
    }
    if (option->kind != TOOL_FLAG)
        fputs(option->kind == TOOL_PATH ? " -r -F" : " -x", stdout);
    if (option->choices != NULL) {
        fputs(" -a '", stdout);
        print_choices(option->choices, " ");
        putchar('\'');
    }
    fputs(" -d '", stdout);
    print_fish_text(option->help);
    fputs("'\n", stdout);
}

static void complete_fish(const tool_command *commands, size_t count)
{
    fputs("complete -c mica -f\n", stdout);
    for (size_t i = 0; i < count; i++) {
        printf("complete -c mica -n __fish_use_subcommand -a %s -d '", commands[i].name);
        print_fish_text(commands[i].summary);
        fputs("'\n", stdout);
        for (size_t a = 0; a < TOOL_MAX_ARGUMENTS && commands[i].argument[a].name != NULL; a++)
            fish_argument(&commands[i], &commands[i].argument[a]);
        const tool_option *option;
        for (size_t o = 0; (option = tool_option_at(&commands[i], o)) != NULL; o++)
            fish_option(&commands[i], option);
    }
}

int tool_print_completion(const char *shell)
{
    size_t count = 0;
    const tool_command *commands = tool_commands(&count);
    if (strcmp(shell, "bash") == 0)
        complete_bash(commands, count);
    else if (strcmp(shell, "zsh") == 0)
        complete_zsh(commands, count);
    else
        complete_fish(commands, count);
    return 0;
}
