/* Vectors of floats as wide as the processor's registers, in the extensions that GCC and Clang share. */
#ifndef REGARD_VECTORS_H
#define REGARD_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <immintrin.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#else
#error this processor has neither AVX-512 nor AVX2
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef vec loose_vec __attribute__((aligned(4), may_alias));

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) { return *(const loose_vec *)p; }
INLINE void store(float *p, vec v) { *(loose_vec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE vec choose(ivec where, vec a, vec b) { return (vec)((where & (ivec)a) | (~where & (ivec)b)); }

/* a b + c, rounded once where the processor can. */
INLINE vec fma_vec(vec a, vec b, vec c) {
#if LANES == 16
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}

/* The larger of two numbers, b if one is not a number. */
INLINE vec larger(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#endif
}

INLINE int any_lane(ivec where) {
#if LANES == 16
    return _mm512_test_epi32_mask((__m512i)where, (__m512i)where) != 0;
#else
    return _mm256_movemask_ps((__m256)where) != 0;
#endif
}

/* The sum of the lanes of each of LANES vectors, in an order that is always the same. */
INLINE vec sum_lanes(vec *a) {
#if LANES == 16
    for (int i = 0; i < 8; i++)
        a[i] = SHUFFLE(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               SHUFFLE(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int i = 0; i < 4; i++)
        a[i] = SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < 2; i++)
        a[i] = SHUFFLE(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               SHUFFLE(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return SHUFFLE(a[0], a[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           SHUFFLE(a[0], a[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
#else
    for (int i = 0; i < 4; i++)
        a[i] = SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    for (int i = 0; i < 2; i++)
        a[i] = SHUFFLE(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    return SHUFFLE(a[0], a[1], 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE(a[0], a[1], 1, 9, 3, 11, 5, 13, 7, 15);
#endif
}

INLINE float sum_vec(vec v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

INLINE float max_vec(vec v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

/* e^x to about one unit in the last place; 0 below -87, infinite above 88, NaN of NaN. */
INLINE vec exp_vec(vec x) {
    const vec magic = splat(12582912.0f);
    ivec low = x < splat(-87.3f), high = x > splat(88.7f);
    vec inside = choose(low | high, splat(0.0f), x);
    vec n = (inside * 1.44269504088896341f + magic) - magic;
    vec r = fma_vec(n, splat(2.12194440e-4f), fma_vec(n, splat(-0.693359375f), inside));
    vec p = fma_vec(splat(1.9875691500e-4f), r, splat(1.3981999507e-3f));
    p = fma_vec(p, r, splat(8.3334519073e-3f));
    p = fma_vec(p, r, splat(4.1665795894e-2f));
    p = fma_vec(p, r, splat(1.6666665459e-1f));
    p = fma_vec(p, r, splat(5.0000001201e-1f));
    p = fma_vec(p * r, r, r) + 1.0f;
    vec scaled = (vec)((ivec)p + (__builtin_convertvector(n, ivec) << 23));
    return choose(low, splat(0.0f), choose(high, splat(INFINITY), scaled));
}

#endif
