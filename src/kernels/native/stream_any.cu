//use hopper
//use blocks
//use runs
//use flow
/* stream_any.cu - flow.cu with weights of any other type that meets 8-bit activations. */
