//use hopper
//use wgmma
//use pieces
//use iq_grid
//use blocks
//use any
//use slots
//arch a
/* routed_any.cu - slots.cu with weights of any quantised type. */
