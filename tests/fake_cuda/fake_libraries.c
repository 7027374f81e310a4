/* fake_libraries.c - NVRTC, whose code is the text itself, and cuBLASLt, which multiplies plainly. */
#include "fake_state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVRTC: a text with the word FAKE_SYNTAX is refused ---- */

static _Atomic uint32_t newer; /* how many that are asked next are newer than the driver */

void fake_newer_compilers(uint32_t count)
{
    atomic_store(&newer, count);
}

FAKE(nvrtcVersion, (int *out_major, int *out_minor))
{
    const int fails = fake_enter("nvrtcVersion");
    *out_major = atomic_load(&newer) > 0 ? 13 : 12;
    *out_minor = 1;
    if (atomic_load(&newer) > 0)
        atomic_fetch_sub(&newer, 1);
    return fake_leave(fails);
}

FAKE(nvrtcCreateProgram, (void **out, const char *text, const char *name, int headers,
                          const char *const *header, const char *const *header_name))
{
    const int fails = fake_enter("nvrtcCreateProgram");
    if (fails != 0 || headers != 0 || header != NULL || header_name != NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_object *program = fake_new(FAKE_PROGRAM, name);
    program->text = strdup(text);
    *out = program;
    return fake_leave(0);
}

FAKE(nvrtcDestroyProgram, (void **program))
{
    const int fails = fake_enter("nvrtcDestroyProgram");
    fake_object *object = fake_find(*program, FAKE_PROGRAM);
    if (object != NULL)
        fake_delete(object);
    *program = NULL;
    return fake_leave(fails);
}

FAKE(nvrtcCompileProgram, (void *program, int count, const char *const *options))
{
    const int fails = fake_enter("nvrtcCompileProgram");
    const fake_object *object = fake_find(program, FAKE_PROGRAM);
    fake_set_options(count, options);
    if (fails != 0 || object == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_count()->compiled++;
    return fake_leave(strstr(object->text, "FAKE_SYNTAX") != NULL ? 6 : 0);
}

static const char log_text[] = "line 1: FAKE_SYNTAX is no word of this language";

FAKE(nvrtcGetProgramLogSize, (void *program, size_t *out))
{
    const int fails = fake_enter("nvrtcGetProgramLogSize");
    fake_find(program, FAKE_PROGRAM);
    *out = sizeof log_text;
    return fake_leave(fails);
}

FAKE(nvrtcGetProgramLog, (void *program, char *out))
{
    const int fails = fake_enter("nvrtcGetProgramLog");
    fake_find(program, FAKE_PROGRAM);
    if (fails == 0)
        memcpy(out, log_text, sizeof log_text);
    return fake_leave(fails);
}

static int code_bytes(const char *name, void *program, size_t *out)
{
    const int fails = fake_enter(name);
    const fake_object *object = fake_find(program, FAKE_PROGRAM);
    *out = object == NULL ? 0 : strlen(object->text) + 1;
    return fake_leave(fails);
}

static int code(const char *name, void *program, char *out)
{
    const int fails = fake_enter(name);
    const fake_object *object = fake_find(program, FAKE_PROGRAM);
    if (fails == 0 && object != NULL)
        memcpy(out, object->text, strlen(object->text) + 1);
    return fake_leave(fails);
}

FAKE(nvrtcGetPTXSize, (void *program, size_t *out))
{
    return code_bytes("nvrtcGetPTXSize", program, out);
}

FAKE(nvrtcGetPTX, (void *program, char *out))
{
    return code("nvrtcGetPTX", program, out);
}

FAKE(nvrtcGetCUBINSize, (void *program, size_t *out))
{
    return code_bytes("nvrtcGetCUBINSize", program, out);
}

FAKE(nvrtcGetCUBIN, (void *program, char *out))
{
    return code("nvrtcGetCUBIN", program, out);
}

FAKE(nvrtcGetNumSupportedArchs, (int *out))
{
    const int fails = fake_enter("nvrtcGetNumSupportedArchs");
    *out = 3;
    return fake_leave(fails);
}

FAKE(nvrtcGetSupportedArchs, (int *out))
{
    const int fails = fake_enter("nvrtcGetSupportedArchs");
    memcpy(out, (int[3]){75, 80, 90}, 3 * sizeof *out);
    return fake_leave(fails);
}

/* ---- cuBLASLt: f16 and bf16 matrices are taken, the product is not computed but counted and checked ---- */

FAKE(cublasLtCreate, (void **out))
{
    const int fails = fake_enter("cublasLtCreate");
    if (fails == 0)
        *out = fake_new(FAKE_BLAS, "handle");
    return fake_leave(fails);
}

static int destroy(const char *name, void *handle, fake_kind kind)
{
    const int fails = fake_enter(name);
    fake_object *object = fake_find(handle, kind);
    if (object != NULL)
        fake_delete(object);
    return fake_leave(fails);
}

FAKE(cublasLtDestroy, (void *handle))
{
    return destroy("cublasLtDestroy", handle, FAKE_BLAS);
}

FAKE(cublasLtMatmulDescCreate, (void **out, int compute, int scale))
{
    const int fails = fake_enter("cublasLtMatmulDescCreate");
    if (fails == 0)
        *out = fake_new(FAKE_BLAS_PART, "desc");
    return fake_leave(fails != 0 ? fails : compute != 68 || scale != 0);
}

FAKE(cublasLtMatmulDescDestroy, (void *handle))
{
    return destroy("cublasLtMatmulDescDestroy", handle, FAKE_BLAS_PART);
}

FAKE(cublasLtMatmulDescSetAttribute, (void *desc, int attribute, const void *value, size_t bytes))
{
    const int fails = fake_enter("cublasLtMatmulDescSetAttribute");
    fake_find(desc, FAKE_BLAS_PART);
    return fake_leave(fails != 0 ? fails : attribute != 3 || bytes != 4 || *(const int *)value != 1);
}

/* The bytes that a matrix spans are kept in node_count, in units of 2. */
FAKE(cublasLtMatrixLayoutCreate, (void **out, int type, uint64_t rows, uint64_t columns, int64_t stride))
{
    const int fails = fake_enter("cublasLtMatrixLayoutCreate");
    if (fails != 0 || (uint64_t)stride < rows)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_object *layout = fake_new(FAKE_BLAS_PART, "layout");
    layout->ready_ns = ((columns - 1) * (uint64_t)stride + rows) * (type == 0 ? 4 : 2);
    *out = layout;
    return fake_leave(0);
}

FAKE(cublasLtMatrixLayoutDestroy, (void *handle))
{
    return destroy("cublasLtMatrixLayoutDestroy", handle, FAKE_BLAS_PART);
}

/* what the preference made last says of the four matrices; the lock guards it */
static uint32_t alignment[4];

FAKE(cublasLtMatmulPreferenceCreate, (void **out))
{
    const int fails = fake_enter("cublasLtMatmulPreferenceCreate");
    for (size_t i = 0; i < 4; i++)
        alignment[i] = 256;
    if (fails == 0)
        *out = fake_new(FAKE_BLAS_PART, "preference");
    return fake_leave(fails);
}

FAKE(cublasLtMatmulPreferenceDestroy, (void *handle))
{
    return destroy("cublasLtMatmulPreferenceDestroy", handle, FAKE_BLAS_PART);
}

FAKE(cublasLtMatmulPreferenceSetAttribute, (void *preference, int attribute, const void *value, size_t bytes))
{
    const int fails = fake_enter("cublasLtMatmulPreferenceSetAttribute");
    fake_find(preference, FAKE_BLAS_PART);
    if (attribute >= 5 && attribute <= 8 && bytes == sizeof(uint32_t)) {
        memcpy(&alignment[attribute - 5], value, bytes);
        return fake_leave(fails);
    }
    return fake_leave(fails != 0 ? fails : attribute != 1 || bytes != 8 || value == NULL);
}

FAKE(cublasLtMatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d,
                                      void *preference, int wanted, void *out, int *out_count))
{
    const int fails = fake_enter("cublasLtMatmulAlgoGetHeuristic");
    void *parts[] = {desc, a, b, c, d, preference};
    fake_find(handle, FAKE_BLAS);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        fake_find(parts[i], FAKE_BLAS_PART);
    memset(out, 0, 96);
    *out_count = wanted;
    return fake_leave(fails);
}

FAKE(cublasLtMatmul,
     (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
      void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
      const void *algorithm, void *workspace, size_t workspace_bytes, void *stream_handle))
{
    const int fails = fake_enter("cublasLtMatmul");
    const void *matrix[] = {a, b, c, d};
    void *layouts[] = {a_layout, b_layout, c_layout, d_layout};
    fake_object *stream = fake_find(stream_handle, FAKE_STREAM);
    if (fails != 0 || stream == NULL || *(const float *)alpha != 1.0f || *(const float *)beta != 0.0f ||
        algorithm == NULL || fake_find(handle, FAKE_BLAS) == NULL || fake_find(desc, FAKE_BLAS_PART) == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    for (size_t i = 0; i < 4; i++) {
        const fake_object *layout = fake_find(layouts[i], FAKE_BLAS_PART);
        if (layout != NULL && !fake_inside((uint64_t)(uintptr_t)matrix[i], layout->ready_ns))
            fake_complain("cublasLtMatmul: matrix %zu leaves its memory", i);
        if ((uintptr_t)matrix[i] % 16 != 0 || (uintptr_t)matrix[i] % alignment[i] != 0)
            fake_complain("cublasLtMatmul: matrix %zu does not begin at a multiple of 16 and %u", i,
                          alignment[i]);
    }
    if (!fake_inside((uint64_t)(uintptr_t)workspace, workspace_bytes))
        fake_complain("cublasLtMatmul: the workspace leaves its memory");
    fake_count()->matmuls++;
    if (stream->capture != NULL) {
        static fake_node node; /* large; the lock is held */
        fake_capture(stream, &node);
    }
    return fake_leave(0);
}
