#include <stdio.h>
#include <stdlib.h>

#include <mica/mica.h>

static void must(mica_status status)
{
    if (status != MICA_OK)
        exit((fprintf(stderr, "%s\n", mica_status_message()), 1));
}

int main(void)
{
    float in[4] = {0, 1, 0, 1}, weights[12] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1}, out[3];
    mica_device *device;
    mica_buffer *x, *w, *y;
    mica_session *session;
    mica_recording *recording;

    must(mica_device_open("auto", NULL, &device));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 4}, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){3, 4}, &w));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 3}, &y));
    must(mica_buffer_write(w, 0, weights, sizeof weights));

    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_matmul(mica_session_encoder(session), x, w, NULL, y));
    must(mica_softmax(mica_session_encoder(session), y, 1.0f, y));
    must(mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &recording));

    for (; in[0] < 3; in[0]++) { /* recorded once, replayed for every input */
        must(mica_buffer_write(x, 0, in, sizeof in));
        must(mica_recording_replay_and_wait(recording));
        must(mica_buffer_read(y, 0, out, sizeof out));
        printf("%.3f %.3f %.3f\n", out[0], out[1], out[2]);
    }
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_device_release(device);
    return 0;
}
