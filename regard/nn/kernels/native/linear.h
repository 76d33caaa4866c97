/* Products of rows with a weight matrix, and what is done to rows between them. */
#ifndef REGARD_LINEAR_H
#define REGARD_LINEAR_H

#include <stdint.h>

/* A matrix of n_out rows of float32 as they are, or of int8 in the layout of linear_int8.c, with a step for each row.
   Inputs are multiplied by `column_factor`, if there is one, before they are quantised. */
typedef struct {
    const void *weight;
    const float *step, *bias, *column_factor;
    int64_t n_in, n_out;
} Linear;

enum { RELU = 1, GELU, GELU_TANH, SILU };

/* y = x W^T + b for m rows; x and y are contiguous. */
void regard_linear(const Linear *w, const float *x, float *y, int64_t m);
void regard_linear_float32(const Linear *w, const float *x, float *y, int64_t m);
void regard_linear_int8(const Linear *w, const float *x, float *y, int64_t m);
void regard_activate(float *x, int64_t n, int64_t activation);

#endif
