/*
 * cuda_blas.c - dense matmul by cuBLASLt, as a built-in kernel that encodes itself into a stream.
 *
 * The library is opened when the first plan names it. The algorithm for a shape is searched once and kept. cuBLASLt counts
 * in columns: y^T [n, m] = weight [n, k] . x^T [k, m] is what it is asked for.
 */
#include "backend/cuda/cuda_blas.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/env.h"

#define COMPUTE_F32 68 /* sums in f32 */
#define DESC_TRANSPOSE_A 3
#define PREFERENCE_WORKSPACE 1
#define PREFERENCE_ALIGNMENT 5 /* of the weight; then of x, of y read, of y written */
#define MOST_ALIGNMENT 256u    /* what it goes by if nothing is said */
#define NO_ALGORITHM 15        /* CUBLAS_STATUS_NOT_SUPPORTED */
#define TRANSPOSE 1
#define KEPT 64u

/* A shape, and the power of two at whose multiples the weight, x, y and y begin: an algorithm may count on it. */
typedef struct problem {
    mica__cuda_blas_params params;
    uint32_t alignment[4];
} problem;

typedef struct chosen {
    problem problem;
    mica__cuda_heuristic heuristic;
} chosen;

/* Handle and kept algorithms; algorithms guarded by the device's lock. */
typedef struct mica__cuda_blas_state {
    void *handle;
    chosen kept[KEPT];
    uint32_t count;
} blas_state;

/* What cuBLASLt wants to know of one matmul. */
typedef struct request {
    void *desc, *weight, *x, *y, *preference;
} request;

static void destroy_request(const mica__cuda_blas *blas, const request *r)
{
    if (r->preference != NULL)
        blas->preference_destroy(r->preference);
    if (r->y != NULL)
        blas->layout_destroy(r->y);
    if (r->x != NULL)
        blas->layout_destroy(r->x);
    if (r->weight != NULL)
        blas->layout_destroy(r->weight);
    if (r->desc != NULL)
        blas->desc_destroy(r->desc);
}

static uint32_t alignment_of(uint64_t address)
{
    uint32_t alignment = MOST_ALIGNMENT;
    while (address % alignment != 0)
        alignment /= 2;
    return alignment;
}

/* `bindings`: x, weight, y. */
static problem pose(const void *params, const uint64_t *bindings)
{
    problem posed;
    memset(&posed, 0, sizeof posed);
    memcpy(&posed.params, params, sizeof posed.params);
    posed.alignment[0] = alignment_of(bindings[1]);
    posed.alignment[1] = alignment_of(bindings[0]);
    posed.alignment[2] = posed.alignment[3] = alignment_of(bindings[2]);
    return posed;
}

static int make_request(const mica__cuda_blas *blas, const problem *posed, request *r)
{
    const mica__cuda_blas_params *p = &posed->params;
    const int32_t transpose = TRANSPOSE;
    memset(r, 0, sizeof *r);
    int result = blas->desc_create(&r->desc, COMPUTE_F32, MICA__CUDA_BLAS_F32);
    if (result == 0)
        result = blas->desc_set(r->desc, DESC_TRANSPOSE_A, &transpose, sizeof transpose);
    if (result == 0)
        result = blas->layout_create(&r->weight, p->type, p->k, p->n, p->weight_stride);
    if (result == 0)
        result = blas->layout_create(&r->x, p->type, p->k, p->m, p->x_stride);
    if (result == 0)
        result = blas->layout_create(&r->y, p->y_type, p->n, p->m, p->y_stride);
    if (result == 0)
        result = blas->preference_create(&r->preference);
    if (result == 0)
        result =
            blas->preference_set(r->preference, PREFERENCE_WORKSPACE, &p->workspace, sizeof p->workspace);
    for (int i = 0; i < 4 && result == 0; i++)
        result = blas->preference_set(r->preference, PREFERENCE_ALIGNMENT + i, &posed->alignment[i],
                                      sizeof posed->alignment[i]);
    if (result != 0)
        destroy_request(blas, r);
    return result;
}

static bool find_kept(mica__device *device, const problem *posed, mica__cuda_heuristic *out)
{
    blas_state *state = device->blas_state;
    bool found = false;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < state->count && i < KEPT && !found; i++) {
        found = memcmp(&state->kept[i].problem, posed, sizeof *posed) == 0;
        if (found)
            *out = state->kept[i].heuristic;
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

static int choose(mica__device *device, const problem *posed, const request *r, mica__cuda_heuristic *out)
{
    blas_state *state = device->blas_state;
    int count = 0;
    if (find_kept(device, posed, out))
        return 0;
    memset(out, 0, sizeof *out);
    const int result = device->blas.heuristic(state->handle, r->desc, r->weight, r->x, r->y, r->y,
                                              r->preference, 1, out, &count);
    if (result != 0 || count == 0)
        return result != 0 ? result : NO_ALGORITHM;
    pthread_mutex_lock(&device->lock);
    chosen *place = &state->kept[state->count++ % KEPT];
    place->problem = *posed;
    place->heuristic = *out;
    pthread_mutex_unlock(&device->lock);
    return 0;
}

static mica_status encode(mica__device *device, const uint64_t *bindings, const void *params, void *stream)
{
    const mica__cuda_blas *blas = &device->blas;
    const blas_state *state = device->blas_state;
    const float one = 1.0f, zero = 0.0f;
    const problem posed = pose(params, bindings);
    const mica__cuda_blas_params p = posed.params;
    mica__cuda_heuristic heuristic;
    request r;
    int result = make_request(blas, &posed, &r);
    if (result == 0) {
        result = choose(device, &posed, &r, &heuristic);
        void *x = (void *)(uintptr_t)bindings[0], *weight = (void *)(uintptr_t)bindings[1];
        void *y = (void *)(uintptr_t)bindings[2], *workspace = (void *)(uintptr_t)bindings[3];
        if (result == 0)
            result = blas->matmul(state->handle, r.desc, &one, weight, r.weight, x, r.x, &zero, y, r.y, y,
                                  r.y, heuristic.algorithm, workspace, (size_t)p.workspace, stream);
        destroy_request(blas, &r);
    }
    if (result == 0)
        return MICA_OK;
    return mica__fail(MICA_ERR_SUBMISSION, "cuda:%u: matmul of %llu x %llu x %llu: cuBLASLt error %d",
                      device->index, (unsigned long long)p.m, (unsigned long long)p.n,
                      (unsigned long long)p.k, result);
}

/* Library lock held. */
static mica_status open_blas(mica__device *device)
{
    if (mica__env_debug(MICA__DEBUG_NOCUBLAS))
        return mica__fail(MICA_ERR_UNSUPPORTED, "hidden by MICA_DEBUG");
    blas_state *state = mica__calloc(1, sizeof *state);
    if (state == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for cuBLASLt");
    mica_status status = mica__cuda_blas_open(&device->blas);
    if (status == MICA_OK && device->blas.create(&state->handle) != 0) {
        mica__dl_close(device->blas.library);
        device->blas.library = NULL;
        status = mica__fail(MICA_ERR_UNSUPPORTED, "cuBLASLt gives no handle");
    }
    if (status != MICA_OK) {
        mica__free(state);
        return status;
    }
    device->blas_state = state;
    snprintf(device->blas_kernel.name, sizeof device->blas_kernel.name, "cublaslt");
    device->blas_kernel.encode = encode;
    return MICA_OK;
}

mica_status mica__cuda_blas_kernel(mica__device *device, mica__kernel **out)
{
    *out = NULL;
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->library_lock);
    if (device->blas_missing)
        status = mica__fail(MICA_ERR_UNSUPPORTED, "looked for it already");
    else if (device->blas_state == NULL)
        status = open_blas(device);
    device->blas_missing = status == MICA_ERR_UNSUPPORTED;
    pthread_mutex_unlock(&device->library_lock);
    mica__cuda_leave(device);
    if (status == MICA_ERR_UNSUPPORTED)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "cuda:%u: no cuBLASLt: %s", device->index,
                          mica_status_message());
    if (status == MICA_OK)
        *out = &device->blas_kernel;
    return status;
}

void mica__cuda_blas_close(mica__device *device, bool driver)
{
    blas_state *state = device->blas_state;
    if (state == NULL)
        return;
    if (driver)
        device->blas.destroy(state->handle);
    mica__dl_close(device->blas.library);
    device->blas.library = NULL;
    mica__free(state);
    device->blas_state = NULL;
}
