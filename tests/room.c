/*
 * room.c - the program of one room's tests, each of which is linked into it with its main renamed (room.h).
 *
 *   ROOM test_NAME [ARGUMENT...]     runs that test, which sees what a program of its own would
 *   ROOM                             lists the names
 */
#include <stdio.h>
#include <string.h>

/* Called as the C runtime calls a main: with arguments, whether it takes them or not. */
#define TEST(name) int name##_main(int argc, char **argv);
#include TEST_ROOM
#undef TEST

int main(int argc, char **argv)
{
    const char *asked = argc > 1 ? argv[1] : "";
#define TEST(name)                 \
    if (strcmp(asked, #name) == 0) \
        return name##_main(argc - 1, argv + 1);
#include TEST_ROOM
#undef TEST
    if (argc > 1)
        fprintf(stderr, "%s: there is no test \"%s\" among these:\n", argv[0], asked);
#define TEST(name) puts(#name);
#include TEST_ROOM
#undef TEST
    return argc > 1 ? 2 : 0;
}
