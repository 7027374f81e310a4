/* folder.h - a folder of a test's own, and what is left in it. */
#ifndef TEST_SUPPORT_FOLDER_H
#define TEST_SUPPORT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Makes a new folder for temporary files and writes its path. 0, or -1 with errno set. */
int test_folder_make(char *path, size_t size, const char *name);
/* How many files and folders are in it, names with a leading dot not counted. */
uint32_t test_folder_count(const char *path);
/* Removes all that is in it, folders too. */
void test_folder_empty(const char *path);
/* Empties and removes it. 0, or -1 with errno set. */
int test_folder_remove(const char *path);

#endif
