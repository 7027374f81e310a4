/* file.h: files: exact reads, read-only mapping, replacement that is seen whole or not at all.
 *
 * Every failure is MICA_ERR_IO (or OUT_OF_MEMORY, BUDGET) with the path and the system's reason. Knows no
 * format. A handle may be read by several threads at once. */
#ifndef MICA_BASE_FILE_H
#define MICA_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mica__file mica__file;

/* Opens a regular file; folders, pipes and devices are refused. The caller owns *out_file. */
mica_status mica__file_open_read(const char *path, mica__file **out_file);

/* The same, but only a file that no other user can have written: it belongs to the effective user or to root, nobody else
 * may write it, and the last part of the path is no link. Else IO says which of these it is. */
mica_status mica__file_open_own(const char *path, mica__file **out_file);

/* Whether a folder is one that no other user can put files into, in the same sense; links are followed. Else IO. */
mica_status mica__file_check_own_folder(const char *path);

/* A file that is memory: the caller keeps `bytes` alive and unchanged as long as the handle and its mappings. `name`
 * stands for the path in sentences; copied. The caller owns *out_file. */
mica_status mica__file_from_bytes(const char *name, const void *bytes, uint64_t size, mica__file **out_file);

typedef enum mica__file_kind {
    MICA__FILE_KIND_NONE = 0, /* nothing there, or it cannot be looked at */
    MICA__FILE_KIND_REGULAR,
    MICA__FILE_KIND_FOLDER,
    MICA__FILE_KIND_OTHER
} mica__file_kind;

/* What a path leads to, links followed. Never fails. */
mica__file_kind mica__file_look(const char *path);
/* The same in words: "a file", "a folder", "a pipe", "a socket", "a device"; "nothing". */
const char *mica__file_kind_name(const char *path);

/* Whether anything has that name, be it a link that leads nowhere. Never fails. */
bool mica__file_exists(const char *path);

/* Whether two paths lead to one and the same file or folder, links followed. Never fails: false if one is not there. */
bool mica__file_same(const char *a, const char *b);

/* Closes; NULL is fine. Mappings stay valid. */
void mica__file_close(mica__file *file);

/* Size when it was opened. */
uint64_t mica__file_size(const mica__file *file);

/* The path as given to open; lives as long as the handle. */
const char *mica__file_path(const mica__file *file);

/* Reads exactly `size` bytes at `offset`; fewer in the file is MICA_ERR_MALFORMED_FILE. */
mica_status mica__file_read_at(const mica__file *file, uint64_t offset, void *out_bytes, size_t size);

/* A hint that these bytes will be read soon: the disk may begin. Never fails. */
void mica__file_will_need(const mica__file *file, uint64_t offset, uint64_t size);

/* Reads a whole file of at most max_bytes (more: MICA_ERR_BUDGET). One NUL follows the bytes and is not in
 * the size. The caller frees *out_data with mica__free. */
mica_status mica__file_read_all(const char *path, size_t max_bytes, void **out_data, size_t *out_size);

/* The same for a file of a folder that a stranger made. Links are followed within the folder, and out of a snapshot of the
 * Hugging Face cache to that model's blobs (.../snapshots/REVISION/x -> ../../blobs/HASH); one that leads anywhere else is
 * MICA_ERR_IO, since what it leads to is not the stranger's to give. A file that is not there: *out_data is NULL. */
mica_status mica__file_read_inside(const char *folder, const char *path, size_t max_bytes, void **out_data,
                                   size_t *out_size);

/* mica__file_open_read of a file of such a folder, with links as above. */
mica_status mica__file_open_inside(const char *folder, const char *path, mica__file **out_file);

/* A whole file in the address space. An empty file has data NULL and size 0. If another process cuts the file
 * while it is mapped, reading past its new end kills the process: the operating system has no other way. */
typedef struct mica__file_map {
    const void *data;
    size_t size;
    bool borrowed; /* of a memory file: not ours to unmap */
} mica__file_map;

typedef enum mica__file_advice {
    MICA__FILE_ADVICE_NORMAL = 0,
    MICA__FILE_ADVICE_SEQUENTIAL,
    MICA__FILE_ADVICE_RANDOM,
    MICA__FILE_ADVICE_WILL_NEED,
    MICA__FILE_ADVICE_DONT_NEED /* give the pages back; a later read brings them in again */
} mica__file_advice;

/* Maps a file read-only; on failure *out_map is zeroed. The mapping outlives the handle. */
mica_status mica__file_map_open(const mica__file *file, mica__file_map *out_map);

/* Unmaps and zeroes the struct; a zeroed struct is fine. */
void mica__file_map_close(mica__file_map *map);

/* A hint about a range (cut to the mapping, widened to pages; inward for DONT_NEED). Never fails. */
void mica__file_map_advise(const mica__file_map *map, size_t offset, size_t size, mica__file_advice advice);

/* A new file that takes the place of `path` on commit, and leaves no trace otherwise, also if the process is killed, but
 * for the moment in which it takes the place of another file, and where the system has no files without names: then one may
 * stay whose name ends in ".mica-tmp", for mica__file_sweep. */
typedef struct mica__file_writer mica__file_writer;

/* Removes what killed processes left beside `path` of files and folders that they were writing. Never fails. */
void mica__file_sweep(const char *path);

/* Creates the file in the folder of `path`. The caller owns *out_writer. */
mica_status mica__file_writer_open(const char *path, mica__file_writer **out_writer);
/* The same with a temporary name from the start, as where the system has no files without names. */
mica_status mica__file_writer_open_named(const char *path, mica__file_writer **out_writer);

/* The new file will be the user's alone, whatever the process's umask says. */
void mica__file_writer_hide(mica__file_writer *writer);

/* Appends. A failure is kept: later writes and the commit fail with it too. */
mica_status mica__file_writer_write(mica__file_writer *writer, const void *bytes, size_t size);

/* Bytes written so far. */
uint64_t mica__file_writer_size(const mica__file_writer *writer);

/* Flushes to the disk, takes the place of `path` (of a link: the link's), flushes the folder. Frees the writer, also on
 * failure, when the old file is as it was. */
mica_status mica__file_writer_commit(mica__file_writer *writer);

/* The same, but a file that stands at `path` is left as it is and refused, also one that came after open. */
mica_status mica__file_writer_commit_new(mica__file_writer *writer);

/* Removes the file and frees the writer; NULL is fine. */
void mica__file_writer_discard(mica__file_writer *writer);

/* The same for a folder of files, which may not be there before. */
typedef struct mica__folder_writer mica__folder_writer;

/* Makes a folder beside `path`. The caller owns *out_writer. */
mica_status mica__folder_writer_open(const char *path, mica__folder_writer **out_writer);
/* Where its files are to be written, and folders of files; lives as long as the writer. */
const char *mica__folder_writer_path(const mica__folder_writer *writer);
/* Gives it its name; refused if anything but an empty folder has that. Frees the writer, also on failure. */
mica_status mica__folder_writer_commit(mica__folder_writer *writer);
/* Removes the folder with the files in it and in its folders, and frees the writer; NULL is fine. */
void mica__folder_writer_discard(mica__folder_writer *writer);

#endif
