//use hopper
//use wgmma
//use pieces
//use decode
//use slots
//arch a
/* routed.cu - slots.cu with weights of the types that decode.cu knows. */
