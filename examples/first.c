#include <mica/mica.h>
#include <stdio.h>
int main(void)
{
    float in[2] = {0, 1}, weights[4] = {2, 0, 0, 1}, out[2];
    mica_device *device = NULL;
    mica_buffer *x = NULL, *w = NULL, *y = NULL;
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    int failed = mica_device_open("auto", NULL, &device) ||
                 mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 2}, &x) ||
                 mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){2, 2}, &w) ||
                 mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 2}, &y) ||
                 mica_buffer_write(w, 0, weights, sizeof weights) ||
                 mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session) ||
                 mica_matmul(mica_session_encoder(session), x, w, NULL, y) ||
                 mica_softmax(mica_session_encoder(session), y, 1.0f, y) ||
                 mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &recording);
    for (; !failed && in[0] < 3; in[0]++) /* recorded once, replayed for every input */
        failed = mica_buffer_write(x, 0, in, sizeof in) || mica_recording_replay_and_wait(recording) ||
                 mica_buffer_read(y, 0, out, sizeof out) || printf("%.3f %.3f\n", out[0], out[1]) < 0;
    fputs(failed ? mica_status_message() : "", stderr);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_device_release(device);
    return failed;
}
