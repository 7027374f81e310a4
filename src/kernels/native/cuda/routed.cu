//use hopper
//use wgmma
//use swizzle
//use dequantize
//use grouped_gemm
//arch a
/* routed.cu - grouped_gemm.cu with weights of the types that dequantize.cu knows. */
