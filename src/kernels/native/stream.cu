//use hopper
//use lanes
//use flow
/* stream.cu - flow.cu with weights of the four types that lanes.cu has, and of 16 bits. */
