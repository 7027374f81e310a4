//use hopper
//use wgmma
//use pieces
//use decode
//use batch
//arch a
/* direct.cu - batch.cu with weights of the types that decode.cu knows. */
