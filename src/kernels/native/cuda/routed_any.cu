//use hopper
//use wgmma
//use swizzle
//use iq_grid
//use blocks
//use dequantize_any
//use grouped_gemm
//arch a
/* routed_any.cu - grouped_gemm.cu with weights of any quantised type. */
