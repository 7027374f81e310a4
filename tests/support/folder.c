/* folder.c - folders of tests. */
#define _XOPEN_SOURCE 700
#include "support/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int test_folder_make(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/mica_%s_%ld", P_tmpdir, name, (long)getpid());
    return mkdir(path, 0700);
}

uint32_t test_folder_count(const char *path)
{
    uint32_t count = 0;
    DIR *listing = opendir(path);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;)
        count += entry->d_name[0] != '.';
    if (listing != NULL)
        closedir(listing);
    return count;
}

void test_folder_empty(const char *path)
{
    DIR *listing = opendir(path);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        char inside[768];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inside, sizeof inside, "%.500s/%.255s", path, entry->d_name);
        if (unlink(inside) != 0)
            test_folder_remove(inside);
    }
    if (listing != NULL)
        closedir(listing);
}

int test_folder_remove(const char *path)
{
    test_folder_empty(path);
    return rmdir(path);
}
