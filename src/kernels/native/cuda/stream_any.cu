//use hopper
//use blocks
//use dot_blocks
//use matvec_ring
/* stream_any.cu - matvec_ring.cu with weights of any other type that meets 8-bit activations. */
