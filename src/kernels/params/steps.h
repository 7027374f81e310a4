/* Bytes from one row of a weight to the next, or from one matrix of it, of each of its tables; 0 for those that it has not. */
typedef struct mk_steps {
    mk_u64 data, scales, biases;
} mk_steps;
