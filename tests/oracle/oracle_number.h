/*
 * oracle_number.h - numbers as bytes, in plain double precision.
 *
 * The oracles share nothing with the library but the names of the element types.
 */
#ifndef ORACLE_NUMBER_H
#define ORACLE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

/* Half a unit in the last place of f32, relative: the rounding error of one f32 operation. */
#define ORACLE_F32_EPS 5.9604644775390625e-08

/* The value of one element. Types without a number of their own (c64, f8 ...) read as their low 32 bits. */
double oracle_get(mica_dtype dtype, const void *element);
/* Stores `value` rounded to nearest even. */
void oracle_put(mica_dtype dtype, double value, void *element);
/* What `value` becomes when it is stored as that type. */
double oracle_round(mica_dtype dtype, double value);
/* Largest relative error of one store in that type; 0 for integers. */
double oracle_store_eps(mica_dtype dtype);
/* Smallest step of that type around zero: a store cannot be nearer than half of it. */
double oracle_store_tiny(mica_dtype dtype);

/* Values per block (1 for plain types) and bytes per block of a type that the oracles know. */
size_t oracle_block_values(mica_dtype dtype);
size_t oracle_block_bytes(mica_dtype dtype);

double oracle_from_f16(uint16_t bits);
double oracle_from_bf16(uint16_t bits);
uint16_t oracle_to_f16(double value);
uint16_t oracle_to_bf16(double value);

#endif
