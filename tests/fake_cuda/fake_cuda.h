/*
 * fake_cuda.h - a stand-in for NVIDIA's driver, NVRTC and cuBLASLt over host memory, and how a test steers it.
 *
 * Work runs at once, in the calling thread; events happen at once, or later if a test asks. Launches are checked: addresses
 * lie in live allocations, grids within limits. Kernels whose entry is in fake_kernels.c compute; others only are checked.
 * A build with FAKE_OLD has neither graphs, nor pools, nor parameter facts. Any thread.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_DEVICES 2
#define FAKE_MEMORY ((uint64_t)1 << 30) /* of each device */

/* A new machine: everything off, counters 0, nothing alive. Only while no device is open. */
void fake_reset(void);
/* The n-th call from now (1 = next) fails once with `error`, whatever it is. 0: none. */
void fake_fail_call(uint32_t n, int error);
/* Calls since the last reset. */
uint32_t fake_calls(void);
/* The name of the call that failed last, "" if none did. */
const char *fake_failed(void);
/* All work of the device ends with an error that its context does not survive, and so does every call on it. */
void fake_lose(int device);
/* The next `count` libraries that are asked say that they are a compiler of a newer major version than the driver. */
void fake_newer_compilers(uint32_t count);
/* Recorded events happen that long after they were recorded. */
void fake_slow(uint64_t ns);
/* Objects made and not destroyed, of all kinds; allocations among them. */
uint32_t fake_live(void);
uint32_t fake_live_memory(void);
/* What was wrong with a launch, or with an address, "" if nothing was. */
const char *fake_complaint(void);
/* Launches so far, of kernels outside graphs and of graphs; graphs made ready; nodes changed in place. */
typedef struct fake_counts {
    uint32_t kernels, graphs, instantiated, updates, copies, fills, matmuls, compiled, loaded;
} fake_counts;
fake_counts fake_get_counts(void);
/* The edges of the graph made ready last: pairs (from, to) of node numbers in the order they were added. Returns how many
 * there are; fills up to `capacity`. `out_nodes`: its nodes. */
uint32_t fake_edges(uint32_t (*out)[2], uint32_t capacity, uint32_t *out_nodes);
/* How many of them are programmatic. */
uint32_t fake_early_edges(void);
/* The options of the last compilation, joined by blanks. */
const char *fake_options(void);

#endif
