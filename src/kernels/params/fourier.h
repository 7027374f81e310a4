//use params/dims
/* fourier: rows of x and y by `shape`, shape[0] the slowest; n, inner and length as backend/fourier.h has them. Rows in the scratch are complex
 * numbers of f32 that follow each other, `length` of them. */
#define MK_FFT_RADICES 20
typedef struct mk_fourier_params {
    mk_u64 x_stride[MK_DIMS], y_stride[MK_DIMS];
    mk_u64 x_step, y_step; /* bytes from one point to the next */
    mk_u64 from, to; /* places in the scratch: of the rows that are read, and of those that are written */
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim, rows;
    mk_u32 n, inner, length;
    mk_u32 kind; /* 0: complex; 1: real to half a spectrum; 2: back */
    mk_u32 inverse, pairs, chirp;
    mk_u32 together; /* rows of a group of fft_local */
    mk_u32 passes, radix[MK_FFT_RADICES];
    mk_u32 pass, done; /* fft_pass: which radix, and the product of those before it */
    mk_f32 scale;
} mk_fourier_params;
