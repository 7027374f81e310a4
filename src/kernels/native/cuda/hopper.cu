/*
 * hopper.cu - what the native kernels say to sm_90 in its own words: barriers of shared memory that count bytes, copies,
 * clusters, programmatic launch. Shared memory is addressed by the 32-bit numbers of its own window.
 */
MK_FN mk_u32 shared_at(const void *p)
{
    mk_u32 at;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(p));
    return at;
}

/* ---- barriers: `bar` is the place of a u64; a phase is over when all arrived and all announced bytes came ---- */

MK_FN void barrier_init(mk_u32 bar, mk_u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

/* Makes the initialised barriers known to the copy engine. */
MK_FN void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

MK_FN void barrier_arrive(mk_u32 bar)
{
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(bar) : "memory");
}

MK_FN void barrier_expect(mk_u32 bar, mk_u32 bytes)
{
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(bar), "r"(bytes)
                 : "memory");
}

/* Until the phase of this parity is over. */
MK_FN void barrier_wait(mk_u32 bar, mk_u32 parity)
{
    mk_u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (done == 0);
}

/* Stages of shared memory that are filled and emptied in turn. */
typedef struct ring {
    mk_u32 full, empty; /* places of the first barriers: the bytes came; all who read them are through */
    mk_u32 stage, parity;
} ring;

/* By one thread, before all know it. `fillers` and `readers` arrive at a stage each time. */
MK_FN void ring_init(const ring *r, mk_u32 stages, mk_u32 fillers, mk_u32 readers)
{
    for (mk_u32 s = 0; s < stages; s++) {
        barrier_init(r->full + 8 * s, fillers);
        barrier_init(r->empty + 8 * s, readers);
    }
    barrier_init_fence();
}

MK_FN void ring_next(ring *r, mk_u32 stages)
{
    if (++r->stage == stages) {
        r->stage = 0;
        r->parity ^= 1u;
    }
}

/* ---- bulk copies: 16-byte multiples ---- */

MK_FN void bulk_load(mk_u32 to, const mk_u8 *from, mk_u32 bytes, mk_u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* Through the second-level cache without staying there: what is read once. */
MK_FN void bulk_load_once(mk_u32 to, const mk_u8 *from, mk_u32 bytes, mk_u32 bar)
{
    asm volatile("{ .reg .b64 once; createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], once; }" ::
                     "r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* ---- a thread's own copies of 16 bytes ---- */

MK_FN void copy_async(mk_u32 to, const mk_u8 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* `bytes` of the 16; the others become zero. */
MK_FN void copy_async_part(mk_u32 to, const mk_u8 *from, mk_u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* ---- words of shared memory, products of bytes ---- */

MK_FN mk_u32x4 shared4(const mk_u8 *p, mk_u32 at)
{
    return *(const mk_u32x4 *)(p + at);
}

/* c + the sum of sixteen products of signed bytes. */
MK_FN mk_i32 dot16(mk_u32x4 a, mk_u32x4 b, mk_i32 c)
{
    return mk_dot4(a.w, b.w, mk_dot4(a.z, b.z, mk_dot4(a.y, b.y, mk_dot4(a.x, b.x, c))));
}

/* c + the sum of four products, of unsigned bytes in a and signed ones in b. */
MK_FN mk_i32 dot4_unsigned(mk_u32 a, mk_u32 b, mk_i32 c)
{
    mk_i32 r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* Those bits of each byte of a alone. */
MK_FN mk_i32 dot16_masked(mk_u32x4 a, mk_u32 mask, mk_u32x4 b, mk_i32 c)
{
    c = dot4_unsigned(a.x & mask, b.x, c);
    c = dot4_unsigned(a.y & mask, b.y, c);
    c = dot4_unsigned(a.z & mask, b.z, c);
    return dot4_unsigned(a.w & mask, b.w, c);
}

/* a * b + c by a multiplication, which the compilers would make a shift and a sum of where b is a power of two: those have the other
 * unit, which is the busier one. */
MK_FN mk_i32 multiply_add(mk_i32 a, mk_i32 b, mk_i32 c)
{
    mk_i32 r;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* ---- numbers ---- */

/* Two rounded to f16. */
MK_FN mk_u32 f16_pair(mk_f32 low, mk_f32 high)
{
    mk_u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* What of v is not in `half`, v rounded to f16; zero where that is exact. */
MK_FN mk_f32 f16_rest(mk_f32 v, mk_u32 half)
{
    return v - mk_f32_of_f16((mk_u16)half);
}

/* ---- two numbers of f16 in a word ---- */

MK_FN mk_u32 f16_twice(mk_u32 low)
{
    return (low & 0xffffu) * 0x10001u;
}

MK_FN mk_u32 f16_sub(mk_u32 a, mk_u32 b)
{
    mk_u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

MK_FN mk_u32 f16_mul(mk_u32 a, mk_u32 b)
{
    mk_u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

MK_FN mk_u32 f16_fma(mk_u32 a, mk_u32 b, mk_u32 c)
{
    mk_u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* Bytes 2 `pair` and 2 pair + 1 of a word, less `zero`, by 2^bits: f16 has 2^(10 - bits) + a byte by 2^bits where its last eight bits are
 * the byte. */
MK_FN mk_u32 small_numbers(mk_u32 word, mk_u32 pair, mk_u32 zero, mk_u32 bits)
{
    const mk_u32 first = 0x6400u - 0x400u * bits;
    mk_u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(word), "r"((first >> 8) * 0x1010101u), "r"(pair != 0 ? 0x4342u : 0x4140u));
    return f16_sub(r, f16_twice(first + zero));
}

/* A scale as the sum of two f16, each twice in a word. */
typedef struct two_f16 {
    mk_u32 high, low;
} two_f16;

MK_FN two_f16 split_scale(mk_f32 scale)
{
    two_f16 s;
    s.high = f16_pair(scale, scale);
    const mk_f32 rest = f16_rest(scale, s.high);
    s.low = f16_pair(rest, rest);
    return s;
}

/* ---- a cluster of groups ---- */

MK_FN void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* What group `rank` of a cluster of groups has where this one has p. */
MK_FN mk_f32 of_group(const mk_f32 *p, mk_u32 rank)
{
    mk_u32 at;
    mk_f32 value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_at(p)), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
    return value;
}

/* ---- programmatic launch: kernels after this one may start; what earlier ones wrote can be read ---- */

MK_FN void launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

MK_FN void wait_for_inputs()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
