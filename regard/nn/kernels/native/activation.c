/* Activations, and the choice of a product by what a matrix consists of. */

#include "linear.h"
#include "vectors.h"

void regard_linear(const Linear *w, const float *x, float *y, int64_t m) {
    (w->step ? regard_linear_int8 : regard_linear_float32)(w, x, y, m);
}

/* erf by a rational function within [-4, 4], to about 3e-7. */
INLINE vec erf_vec(vec x) {
    x = choose(x > splat(4.0f), splat(4.0f), choose(x < splat(-4.0f), splat(-4.0f), x));
    vec s = x * x;
    vec p = fma_vec(s, splat(-2.72614225801306e-10f), splat(2.77068142495902e-08f));
    p = fma_vec(p, s, splat(-2.10102402082508e-06f));
    p = fma_vec(p, s, splat(-5.69250639462346e-05f));
    p = fma_vec(p, s, splat(-7.34990630326855e-04f));
    p = fma_vec(p, s, splat(-2.95459980854025e-03f));
    p = fma_vec(p, s, splat(-1.60960333262415e-02f));
    vec q = fma_vec(s, splat(-1.45660718464996e-05f), splat(-2.13374055278905e-04f));
    q = fma_vec(q, s, splat(-1.68282697438203e-03f));
    q = fma_vec(q, s, splat(-7.37332916720468e-03f));
    q = fma_vec(q, s, splat(-1.42647390514189e-02f));
    return p * x / q;
}

INLINE vec activate(vec x, int64_t activation) {
    switch (activation) {
    case RELU: return choose(x < splat(0.0f), splat(0.0f), x);
    case GELU: return x * 0.5f * (1.0f + erf_vec(x * 0.70710678118654752f));
    case GELU_TANH: return x / (1.0f + exp_vec(x * -1.5957691216057308f * (1.0f + 0.044715f * x * x)));
    case SILU: return x / (1.0f + exp_vec(-x));
    default: return x;
    }
}

/* Replace n numbers, a multiple of LANES. */
void regard_activate(float *x, int64_t n, int64_t activation) {
    for (int64_t i = 0; i < n; i += LANES) store(x + i, activate(load(x + i), activation));
}

int64_t regard_lanes(void) { return LANES; }
