/* mica.c - the tool: finds the command, hands it its arguments, gives its exit status. Knows the library by
 * include/mica alone, like any other program. */
#include <stdio.h>
#include <string.h>

#include "mica/host.h"

#include "commands.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

/* "--version", "--help" and "-h" are commands too. */
static const char *command_name(const char *word)
{
    if (strcmp(word, "--version") == 0)
        return "version";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return "help";
    return word;
}

static int asks_for_help(int count, char **argv)
{
    for (int i = 0; i < count && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

static int run(int argc, char **argv)
{
    tool_call call;
    if (argc < 2)
        return tool_misuse("no command was given; 'mica help' lists them");
    const tool_command *command = tool_command_find(command_name(argv[1]));
    if (command == NULL)
        return tool_misuse("there is no command \"%.40s\"; 'mica help' lists them", argv[1]);
    if (asks_for_help(argc - 2, argv + 2)) {
        tool_print_help(command);
        return 0;
    }
    int result = tool_parse(command, argc - 2, argv + 2, &call);
    return result != 0 ? result : command->run(&call);
}

/* Debug lines come only where MICA_DEBUG has the word log. */
static void print_debug(void *context, mica_log_level level, const char *text)
{
    (void)context;
    if (level == MICA_LOG_DEBUG)
        fprintf(stderr, "mica: %s\n", text);
}

int main(int argc, char **argv)
{
    mica_set_log(print_debug, NULL);
    int result = run(argc, argv);
    if (tool_output_flush() != 0 && result == 0)
        return 1;
    return result == 1 && tool_interrupt_number() != 0 ? 128 + tool_interrupt_number() : result;
}
