/* manual.c - the table of commands as help, as a manual page, and as completions for three shells. */
#include <stdio.h>
#include <string.h>

#include "mica/mica.h"
#include "options.h"
#include "output.h"

static const char about[] = "runs neural networks on whatever processor the machine has";

/* ---- help ---- */

/* Words up to column 78, indented. */
static void print_wrapped(const char *text, int indent)
{
    int column = 0;
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > 78) {
            putchar('\n');
            column = 0;
        }
        column += column == 0 ? printf("%*s%.*s", indent, "", length, text) : printf(" %.*s", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_usage(const tool_command *command)
{
    printf("mica %s", command->name);
    for (size_t i = 0; i < TOOL_MAX_ARGUMENTS && command->argument[i].name != NULL; i++)
        printf(command->argument[i].optional ? " [%s]" : " %s", command->argument[i].name);
    if (command->option_count > 0)
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

static void option_text(const tool_option *option, char *out, size_t capacity)
{
    if (option->value == NULL)
        snprintf(out, capacity, "--%s", option->name);
    else
        snprintf(out, capacity, "--%s %s", option->name, option->value);
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
    print_wrapped(text, 0);
}

void tool_print_help(const tool_command *command)
{
    fputs("usage: ", stdout);
    print_usage(command);
    fputs("\n\n", stdout);
    print_wrapped(command->description, 0);
    for (size_t i = 0; i < TOOL_MAX_ARGUMENTS; i++)
        if (command->argument[i].choices != NULL)
            print_argument_choices(&command->argument[i]);
    if (command->option_count > 0)
        fputs("\noptions:\n", stdout);
    for (size_t i = 0; i < command->option_count; i++) {
        const tool_option *option = &command->options[i];
        char name[64];
        option_text(option, name, sizeof name);
        printf("  %s%-19s%s %s", tool_style_begin(TOOL_STRONG), name, tool_style_begin(TOOL_PLAIN),
               option->help);
        if (option->choices != NULL)
            printf(": %s", option->choices);
        if (option->standard != NULL)
            printf(" (%s)", option->standard);
        putchar('\n');
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

static void print_roff_option(const tool_option *option)
{
    fputs(".TP\n.B \\-\\-", stdout);
    print_roff(option->name);
    if (option->value != NULL)
        printf(" \\fI%s\\fR", option->value);
    putchar('\n');
    print_roff(option->help);
    if (option->choices != NULL)
        printf(": %s", option->choices);
    if (option->standard != NULL)
        printf(" (default %s)", option->standard);
    fputs(".\n", stdout);
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
        for (size_t o = 0; o < commands[i].option_count; o++)
            print_roff_option(&commands[i].options[o]);
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

static void bash_option_values(const tool_command *command)
{
    for (size_t o = 0; o < command->option_count; o++) {
        const tool_option *option = &command->options[o];
        if (option->kind == TOOL_FLAG)
            continue;
        printf("    %s:--%s:*)", command->name, option->name);
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
        for (size_t o = 0; o < command->option_count; o++)
            printf(" --%s", command->options[o].name);
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
    for (size_t i = 0; i < count; i++)
        for (size_t o = 0; o < commands[i].option_count; o++)
            if (commands[i].options[o].kind != TOOL_FLAG)
                printf("        %s:--%s) i=$((i + 1)) ;;\n", commands[i].name, commands[i].options[o].name);
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
        for (size_t o = 0; o < commands[i].option_count; o++) {
            const tool_option *option = &commands[i].options[o];
            printf(" \\\n        '%s--%s[%s]", option->kind == TOOL_REPEATED ? "*" : "", option->name,
                   option->help);
            if (option->kind != TOOL_FLAG)
                print_zsh_value(option->value, option->kind, option->choices);
            putchar('\'');
        }
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

static void complete_fish(const tool_command *commands, size_t count)
{
    fputs("complete -c mica -f\n", stdout);
    for (size_t i = 0; i < count; i++) {
        printf("complete -c mica -n __fish_use_subcommand -a %s -d '", commands[i].name);
        print_fish_text(commands[i].summary);
        fputs("'\n", stdout);
        for (size_t a = 0; a < TOOL_MAX_ARGUMENTS && commands[i].argument[a].name != NULL; a++)
            fish_argument(&commands[i], &commands[i].argument[a]);
        for (size_t o = 0; o < commands[i].option_count; o++) {
            const tool_option *option = &commands[i].options[o];
            printf("complete -c mica -n '__fish_seen_subcommand_from %s' -l %s", commands[i].name,
                   option->name);
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
