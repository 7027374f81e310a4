/* test_cuda_old.c - an old driver, without graphs, pools and facts about parameters, and neither NVRTC nor cuBLASLt: what is
 * recorded is replayed as a list, kernels come from PTX, and the rest is as ever. */
#include "cuda_rig.h"

#define FOREVER UINT64_MAX

static mica__completion run(rig *r, mica__commands *commands)
{
    mica__completion done;
    uint64_t value = 0;
    must(r->table->submit(r->device, NULL, commands, &value));
    must(r->table->wait(r->device, NULL, value, FOREVER, &done));
    return done;
}

/* As rig_open_index, from code that was made when mica was built. */
static void open_portable(rig *r)
{
    const mica__program_desc desc = {
        .name = "rig", .text = rig_text, .portable = rig_text, .portable_bytes = sizeof rig_text - 1};
    memset(r, 0, sizeof *r);
    fake_reset();
    must(mica__backend_cuda.open(0, NULL, &r->device, &r->table));
    must(r->table->program_create(r->device, &desc, &r->program));
    must(r->table->kernel_get(r->device, r->program, "fake_add", &r->add));
    must(r->table->kernel_get(r->device, r->program, "fake_fault", &r->fault));
}

static void test_replay_without_graphs(void **state)
{
    const float ones[3] = {1, 1, 1}, twos[3] = {2, 2, 2};
    float back[3];
    mica__memory *one = NULL, *two = NULL, *y = NULL;
    mica__encoding *encoding = NULL;
    mica__commands *commands = NULL;
    rig r;
    (void)state;
    open_portable(&r);
    must(r.table->buffer_create(r.device, sizeof ones, &one));
    must(r.table->buffer_create(r.device, sizeof ones, &two));
    must(r.table->buffer_create(r.device, sizeof ones, &y));
    must(r.table->upload(r.device, one, 0, ones, sizeof ones));
    must(r.table->upload(r.device, two, 0, twos, sizeof twos));
    must(r.table->encoder_begin(r.device, MICA__ENCODE_REUSABLE, &encoding));
    rig_add(&r, encoding, one, one, y, NULL, 0);
    rig_add(&r, encoding, y, one, y, (uint32_t[]){0}, 1);
    rig_fault(&r, encoding, 7);
    must(r.table->encoder_end(encoding, false, &commands));
    assert_int_equal(run(&r, commands).fault, 7);
    must(r.table->download(r.device, y, 0, back, sizeof back));
    assert_true(back[0] == 3 && back[2] == 3);
    must(r.table->commands_update(commands, 1, 1, &(mica__binding){two, 0, sizeof ones, 1}));
    assert_int_equal(run(&r, commands).fault, 7);
    must(r.table->download(r.device, y, 0, back, sizeof back));
    assert_true(back[0] == 4 && back[2] == 4);
    assert_int_equal(fake_get_counts().kernels, 6);
    assert_int_equal(fake_get_counts().compiled, 0);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, one);
    r.table->buffer_destroy(r.device, two);
    r.table->buffer_destroy(r.device, y);
    rig_close(&r);
    rig_check_clean();
}

static void test_no_compiler(void **state)
{
    const mica__program_desc desc = {.name = "mine", .text = "text"};
    mica__program *program = NULL;
    mica__kernel *kernel = NULL;
    rig r;
    (void)state;
    open_portable(&r);
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_NOT_FOUND, "NVRTC");
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_NOT_FOUND,
            "NVRTC): hidden by MICA_DEBUG"); /* and again, with the reason */
    refused(r.table->kernel_get(r.device, NULL, "cublaslt", &kernel), MICA_ERR_KERNEL_NOT_FOUND, "cuBLASLt");
    assert_null(program);
    assert_null(kernel);
    rig_close(&r);
    rig_check_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_without_graphs),
        cmocka_unit_test(test_no_compiler),
    };
    setenv("MICA_DEBUG", "nonvrtc,nocublas", 1);
    return cmocka_run_group_tests_name("the CUDA backend over an old driver", tests, NULL, NULL);
}
