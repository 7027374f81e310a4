/* buffer.c: what a text does when it comes to its edge: more memory, a limit, or a stop. */
#include "text/tokenizer/buffer.h"

static bool stop(mica__bytes *bytes, bool full, mica_status status)
{
    bytes->full = full;
    bytes->status = status;
    bytes->failed = true;
    bytes->edge = 0;
    return false;
}

bool mica__bytes_reach(mica__bytes *bytes, size_t more)
{
    const size_t limit = bytes->limit != 0 ? bytes->limit : MICA__TEXT_LIMIT;
    if (bytes->failed)
        return false;
    if (bytes->size > limit || more > limit - bytes->size)
        return stop(bytes, true, MICA_OK);
    const size_t wanted = bytes->size + more;
    if (bytes->data == NULL || wanted > bytes->room) {
        const size_t room = wanted * 3 / 2 + 64;
        char *data = mica__realloc(bytes->data, room);
        if (data == NULL)
            return stop(bytes, false, MICA_OK);
        bytes->data = data;
        bytes->room = room;
    }
    if (wanted > bytes->asked) {
        const mica_status status = mica__spend(0); /* who writes counts; here is seen whether to stop */
        if (status != MICA_OK)
            return stop(bytes, false, status);
        bytes->asked = wanted + MICA__TEXT_PIECE;
    }
    const size_t edge = bytes->room < limit ? bytes->room : limit;
    bytes->edge = edge < bytes->asked ? edge : bytes->asked;
    return true;
}
