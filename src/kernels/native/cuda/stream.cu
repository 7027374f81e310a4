//use hopper
//use dot_planes
//use matvec_ring
/* stream.cu - matvec_ring.cu with weights of the four types that dot_planes.cu has, and of 16 bits. */
