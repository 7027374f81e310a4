/* kernel.c - a kernel of one's own, on any device: kernel [DEVICE]. y = a x + y over f32, in the kernel dialect for GPUs
 * (docs/kernels.md), in C for the cpu. What it reads and writes is said at the dispatch; the order follows from that. */
#include <mica/mica.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT 1000u
#define GROUP 256u /* MK_WG, work-items of a group */

typedef struct axpy_params { /* as in the text below: numbers of 4 and 8 bytes, the widest first */
    uint32_t count;
    float a;
} axpy_params;

static const char text[] =
    "typedef struct axpy_params { mk_u32 count; mk_f32 a; } axpy_params;\n"
    "MK_KERNEL(axpy) MK_IN(x), MK_OUT(y), MK_PARAM(axpy_params, p) MK_END\n"
    "{\n"
    "    MK_BIND(x);\n"
    "    MK_BIND(y);\n"
    "    const mk_u32 i = MK_GROUP_X * MK_WG + MK_LID;\n"
    "    if (i < p.count)\n"
    "        mk_st_f32(y, i * 4u, mk_fma(p.a, mk_ld_f32(x, i * 4u), mk_ld_f32(y, i * 4u)));\n"
    "}\n";

/* The same for the cpu: groups [first, last) of the dispatch. */
static void axpy(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                 uint32_t first, uint32_t last)
{
    const axpy_params *p = params;
    const float *x = bindings[0].data;
    float *y = bindings[1].data;
    (void)binding_count;
    for (uint32_t i = first * GROUP; i < last * GROUP && i < p->count; i++)
        y[i] += p->a * x[i];
}

int main(int count, char **arguments)
{
    const mica_kernel_desc desc = {.name = "axpy", .host = axpy, .source = text};
    const axpy_params params = {COUNT, 2.0f};
    static float in[COUNT], out[COUNT];
    mica_device *device = NULL;
    mica_buffer *x = NULL, *y = NULL;
    mica_kernel *kernel = NULL;
    mica_encoder *encoder = NULL;
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = (float)i;
    int failed = mica_device_open(count > 1 ? arguments[1] : "auto", NULL, &device) ||
                 mica_buffer_alloc(device, MICA_DTYPE_F32, 1, (uint64_t[]){COUNT}, &x) ||
                 mica_buffer_alloc(device, MICA_DTYPE_F32, 1, (uint64_t[]){COUNT}, &y) ||
                 mica_buffer_write(x, 0, in, sizeof in) || mica_buffer_write(y, 0, in, sizeof in) ||
                 mica_kernel_register(device, &desc) || mica_kernel_get(device, "axpy", NULL, 0, &kernel) ||
                 mica_encoder_begin(device, NULL, &encoder);
    if (!failed) {
        const mica_binding bindings[] = {{x, MICA_ACCESS_READ}, {y, MICA_ACCESS_READ | MICA_ACCESS_WRITE}};
        const mica_dispatch_desc dispatch = {.kernel = kernel,
                                             .groups = {(COUNT + GROUP - 1) / GROUP, 1, 1},
                                             .local = {GROUP, 1, 1},
                                             .bindings = bindings,
                                             .binding_count = 2,
                                             .params = &params,
                                             .params_size = sizeof params};
        failed = mica_encoder_dispatch(encoder, &dispatch) ||
                 mica_add(encoder, y, x, y) || /* ops go between */
                 mica_encoder_commit_and_wait(encoder) || mica_buffer_read(y, 0, out, sizeof out);
    }
    if (failed)
        fprintf(stderr, "kernel: %s\n", mica_status_message());
    else
        printf("2 * 999 + 999 + 999 = %g\n", out[COUNT - 1]);
    mica_encoder_release(encoder);
    mica_kernel_release(kernel);
    mica_buffer_release(y);
    mica_buffer_release(x);
    mica_device_release(device);
    return failed;
}
