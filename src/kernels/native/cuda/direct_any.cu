//use hopper
//use wgmma
//use swizzle
//use iq_grid
//use blocks
//use dequantize_any
//use mixed_gemm
//arch a
/* direct_any.cu - mixed_gemm.cu with weights of any quantised type. */
