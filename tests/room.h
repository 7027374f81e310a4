/* room.h - stands before every test_NAME.c: its main becomes test_NAME_main, one of many that the room's program has (room.c). */
#ifndef TEST_ROOM_H
#define TEST_ROOM_H

#ifdef TEST_MAIN
#define main(...)           \
    TEST_MAIN(__VA_ARGS__); \
    int TEST_MAIN(__VA_ARGS__)
#endif

#endif
