//use hopper
//use wgmma
//use pieces
//use iq_grid
//use blocks
//use any
//use batch
//arch a
/* direct_any.cu - batch.cu with weights of any quantised type. */
