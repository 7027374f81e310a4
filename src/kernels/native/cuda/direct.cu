//use hopper
//use wgmma
//use swizzle
//use dequantize
//use mixed_gemm
//arch a
/* direct.cu - mixed_gemm.cu with weights of the types that dequantize.cu knows. */
