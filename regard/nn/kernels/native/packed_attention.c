/* Self-attention within the sentences of packed rows.

   The keys and values of a sentence and head are copied side by side, where all its queries read them. */

#include "attention.h"
#include <stdlib.h>

typedef struct {
    int64_t n_heads, width, causal;
    float *keys, *values, *scores;
    int32_t *index;
} Memory;

static void attend_sentence(const Memory *m, const float *qkv, int64_t n, float *out) {
    int64_t all = m->n_heads * m->width, e = m->width;
    for (int64_t h = 0; h < m->n_heads; h++) {
        for (int64_t t = 0; t < n; t++) {
            memcpy(m->keys + t * e, qkv + t * 3 * all + all + h * e, 4 * e);
            memcpy(m->values + t * e, qkv + t * 3 * all + 2 * all + h * e, 4 * e);
        }
        for (int64_t t = 0; t < n; t++) {
            int32_t n_keys = (int32_t)(m->causal ? t + 1 : n);
            weigh(qkv + t * 3 * all + h * e, m->keys, e, m->index, n_keys, e, m->scores);
            mix(m->scores, m->values, e, m->index, n_keys, e, out + t * all + h * e);
        }
    }
}

/* Queries, keys and values of all heads are side by side; segment 0 is empty and gets zeros. */
void regard_packed_attention(const float *qkv, const int64_t *segment, int64_t n_rows, int64_t n_tokens,
                             int64_t n_heads, int64_t width, int64_t causal, float *out) {
    float *floats = malloc(4 * (2 * n_tokens * width + n_tokens + LANES));
    int32_t *index = malloc(4 * n_tokens);
    Memory memory = {n_heads, width, causal, floats, floats + n_tokens * width, floats + 2 * n_tokens * width, index};
    for (int32_t t = 0; t < n_tokens; t++) index[t] = t;
    for (int64_t start = 0, end; start < n_rows * n_tokens; start = end) {
        int64_t row_end = (start / n_tokens + 1) * n_tokens;
        for (end = start + 1; end < row_end && segment[end] == segment[start];) end++;
        float *to = out + start * n_heads * width;
        if (segment[start]) attend_sentence(&memory, qkv + 3 * start * n_heads * width, end - start, to);
        else memset(to, 0, 4 * (end - start) * n_heads * width);
    }
    free(floats);
    free(index);
}
