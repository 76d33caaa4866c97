/* Attention of one query at a time over keys that lie anywhere. */
#ifndef REGARD_ATTENTION_H
#define REGARD_ATTENTION_H

#include "vectors.h"

/* Scores of the keys by LANES at a time, then their softmax; `scores` has room for LANES more. */
INLINE void weigh(const float *q, const float *keys, int64_t token, const int32_t *index, int32_t n, int64_t width,
                  float *scores) {
    const float scale = 1.0f / sqrtf((float)width);
    vec most = splat(-INFINITY), total = {0};
    for (int32_t j = 0; j < n; j += LANES) {
        const float *key[LANES];
        vec acc[LANES];
        for (int t = 0; t < LANES; t++) {
            key[t] = keys + token * index[j + t < n ? j + t : n - 1];
            acc[t] = load(q) * load(key[t]);
        }
        for (int64_t e = LANES; e < width; e += LANES) {
            vec part = load(q + e);
            for (int t = 0; t < LANES; t++) acc[t] = fma_vec(part, load(key[t] + e), acc[t]);
        }
        store(scores + j, sum_lanes(acc) * scale);
        for (int32_t t = n; t < j + LANES; t++) scores[t] = -INFINITY;
        most = larger(most, load(scores + j));
    }
    vec shift = splat(max_vec(most));
    for (int32_t j = 0; j < n; j += LANES) {
        vec weight = exp_vec(load(scores + j) - shift);
        total += weight;
        store(scores + j, weight);
    }
    vec share = splat(1.0f / sum_vec(total));
    for (int32_t j = 0; j < n; j += LANES) store(scores + j, load(scores + j) * share);
}

/* The sum of values by their weights. */
INLINE void mix(const float *weights, const float *values, int64_t token, const int32_t *index, int32_t n,
                int64_t width, float *out) {
    for (int64_t e = 0; e < width; e += 4 * LANES) {
        int parts = width - e < 4 * LANES ? (int)(width - e) / LANES : 4;
        vec total[4] = {0};
        for (int32_t j = 0; j < n; j++) {
            const float *value = values + token * index[j] + e;
            vec weight = splat(weights[j]);
            for (int p = 0; p < parts; p++) total[p] = fma_vec(weight, load(value + p * LANES), total[p]);
        }
        for (int p = 0; p < parts; p++) store(out + e + p * LANES, total[p]);
    }
}

#endif
