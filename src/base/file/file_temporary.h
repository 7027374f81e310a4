/*
 * file_temporary.h - names of what is not finished: files and folders beside their place, which end in MICA__FILE_TEMPORARY.
 * Their process holds a lock on each. What nobody holds was left behind by one that was killed; mica__file_sweep (file.h)
 * removes it.
 */
#ifndef MICA_BASE_FILE_TEMPORARY_H
#define MICA_BASE_FILE_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>

#define MICA__FILE_TEMPORARY ".mica-tmp"
#define MICA__FILE_TEMPORARY_BYTES 56 /* more than the path has, for a name of this kind and its NUL */

/* A new name for `path`, whose trailing slashes go. */
void mica__file_temporary_name(const char *path, char *out, size_t size);
/* Takes the lock of a file or folder that was just made; false: a sweep has taken it, make another. */
bool mica__file_hold(int descriptor);
/* Removes a folder, the files in it and in its folders, and nothing that a link in it leads to. Never fails. */
void mica__file_remove_folder(const char *path);
/* The folder of a path, into as many bytes as the path has with its NUL, and at least 2. */
void mica__file_folder(const char *path, char *out);

#endif
