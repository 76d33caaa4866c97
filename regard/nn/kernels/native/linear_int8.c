/* x W^T in int8, by the instructions that sum four products at once (VNNI).

   W is stored as unsigned bytes, 128 more than its values, in panels of 2 LANES outputs:

       panel p     inputs 0-3 of output 0 | of output 1 | ... | inputs 4-7 of output 0 | ...

   Each row of x is divided by its largest magnitude and rounded to -127 .. 127 by itself. What the 128 add is taken
   off again: it is the sum of the row. Sums are whole numbers and exact. */

#include "linear.h"
#include "vectors.h"
#include <stdlib.h>

#define CHUNK_BYTES (1 << 18)
#define AHEAD_BYTES (1 << 14) /* weights are fetched while those before them are multiplied */
#define PANEL (2 * LANES)
#define MOST_ROWS (LANES == 16 ? 12 : 6)

#if defined(__AVX512VNNI__) && LANES == 16
#define HAS_INT8 1
INLINE ivec dot4(ivec sum, ivec w, int32_t x) {
    return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(x));
}
#elif defined(__AVXVNNI__) && LANES == 8
#define HAS_INT8 1
INLINE ivec dot4(ivec sum, ivec w, int32_t x) {
    return (ivec)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, _mm256_set1_epi32(x));
}
#else
#define HAS_INT8 0
#endif

int64_t regard_int8_panel(void) { return HAS_INT8 ? PANEL : 0; }

#if HAS_INT8
/* Rows of int8, `stride` apart, with zeros behind the last number. */
typedef struct {
    int8_t *values;
    float *largest;
    int32_t *sum;
    int64_t stride;
} Quantized;

INLINE vec load_some(const float *p, int64_t n) {
    vec x = {0};
    if (n >= LANES) return load(p);
    memcpy(&x, p, 4 * n);
    return x;
}

INLINE vec scale_some(const float *row, const float *factor, int64_t i, int64_t k) {
    vec x = load_some(row + i, k - i);
    return factor ? x * load_some(factor + i, k - i) : x;
}

static void quantize_row(const float *row, const float *factor, int64_t k, int8_t *q, float *largest, int32_t *sum) {
    vec most = {0}, poison = {0};
    ivec total = {0};
    for (int64_t i = 0; i < k; i += LANES) {
        vec x = scale_some(row, factor, i, k);
        most = larger((vec)((ivec)x & INT32_MAX), most);
        poison = fma_vec(x, splat(0.0f), poison); /* stays 0 while all are numbers */
    }
    float scale = max_vec(most) < 1.17549435e-38f ? 1.17549435e-38f : max_vec(most);
    for (int64_t i = 0; i < k; i += LANES) {
        vec scaled = scale_some(row, factor, i, k) / scale * 127.0f;
#if LANES == 16
        ivec rounded = (ivec)_mm512_cvtps_epi32((__m512)scaled);
        _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtsepi32_epi8((__m512i)rounded));
#else
        ivec rounded = (ivec)_mm256_cvtps_epi32((__m256)scaled);
        for (int j = 0; j < LANES; j++) q[i + j] = (int8_t)rounded[j];
#endif
        total += rounded;
    }
    int32_t all = 0;
    for (int j = 0; j < LANES; j++) all += total[j];
    *largest = sum_vec(poison) == 0 ? scale : NAN, *sum = all;
}

INLINE int32_t four(const int8_t *q) {
    int32_t x;
    memcpy(&x, q, 4);
    return x;
}

INLINE void multiply_tile(int rows, const Linear *w, const ivec *panel, Quantized x, float *y, int64_t n,
                          int64_t ahead) {
    ivec acc[2 * 12] = {0};
    int64_t left = w->n_out - n;
    for (int64_t i = 0; i < (w->n_in + 3) / 4; i++) {
        ivec w0 = panel[2 * i], w1 = panel[2 * i + 1];
        if (ahead) {
            __builtin_prefetch((const char *)(panel + 2 * i) + ahead);
            __builtin_prefetch((const char *)(panel + 2 * i + 1) + ahead);
        }
        for (int r = 0; r < rows; r++) {
            int32_t a = four(x.values + r * x.stride + 4 * i);
            acc[2 * r] = dot4(acc[2 * r], w0, a), acc[2 * r + 1] = dot4(acc[2 * r + 1], w1, a);
        }
    }
    for (int r = 0; r < rows; r++) {
        float tile[PANEL];
        for (int half = 0; half < 2; half++) {
            vec sum = __builtin_convertvector(acc[2 * r + half] - 128 * x.sum[r], vec);
            store(tile + half * LANES, sum);
        }
        float *out = y + r * w->n_out + n;
        if (left >= PANEL) {
            for (int half = 0; half < PANEL; half += LANES) {
                vec scaled = load(tile + half) * load(w->step + n + half);
                vec largest = splat(x.largest[r]);
                store(out + half, w->bias ? fma_vec(scaled, largest, load(w->bias + n + half)) : scaled * largest);
            }
        } else {
            for (int64_t c = 0; c < left; c++) {
                float scaled = tile[c] * w->step[n + c];
                out[c] = w->bias ? fmaf(scaled, x.largest[r], w->bias[n + c]) : scaled * x.largest[r];
            }
        }
    }
}

#define TILE(rows) \
    case rows: \
        multiply_tile(rows, w, panel, x, y, n, ahead); \
        break;

static void multiply_rows(int64_t rows, const Linear *w, const ivec *panel, Quantized x, float *y, int64_t n,
                          int64_t ahead) {
    switch (rows) {
        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if MOST_ROWS == 12
        TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
    }
}

static void multiply_chunk(const Linear *w, Quantized x, float *y, int64_t m) {
    int64_t n_tiles = (m + MOST_ROWS - 1) / MOST_ROWS;
    for (int64_t n = 0; n < w->n_out; n += PANEL) {
        const ivec *panel = (const ivec *)((const char *)w->weight + n * ((w->n_in + 3) / 4 * 4));
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t start = m * t / n_tiles, end = m * (t + 1) / n_tiles;
            Quantized part = {x.values + start * x.stride, x.largest + start, x.sum + start, x.stride};
            multiply_rows(end - start, w, panel, part, y + start * w->n_out, n, t ? 0 : AHEAD_BYTES);
        }
    }
}

void regard_linear_int8(const Linear *w, const float *x, float *y, int64_t m) {
    int64_t stride = (w->n_in + LANES - 1) / LANES * LANES, chunk = CHUNK_BYTES / stride;
    chunk = chunk < MOST_ROWS ? MOST_ROWS : chunk > m ? m : chunk;
    int8_t *memory = malloc((size_t)chunk * (stride + 8));
    Quantized q = {memory + 8 * chunk, (float *)memory, (int32_t *)memory + chunk, stride};
    for (int64_t start = 0; start < m; start += chunk) {
        int64_t rows = m - start < chunk ? m - start : chunk;
        for (int64_t i = 0; i < rows; i++)
            quantize_row(x + (start + i) * w->n_in, w->column_factor, w->n_in, q.values + i * stride, q.largest + i,
                         q.sum + i);
        multiply_chunk(w, q, y + start * w->n_out, rows);
    }
    free(memory);
}
#else
void regard_linear_int8(const Linear *w, const float *x, float *y, int64_t m) { (void)w, (void)x, (void)y, (void)m; }
#endif
