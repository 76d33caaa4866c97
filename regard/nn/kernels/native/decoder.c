/* One step of a stack of Transformer decoder layers: a new token of each of W hypotheses of B sentences.

   Keys and values are read where they are: of each hypothesis the cached tokens of its prefix, which the mask tells,
   and of its sentence the tokens of the source. Every row is computed as if it were alone. */

#include "attention.h"
#include "linear.h"
#include <stdlib.h>

typedef struct {
    const float *gain, *shift;
    double eps;
} Norm;

typedef struct {
    Linear projection, output, query, cross_output, up, down;
    Norm norm, cross_norm, feed_forward_norm;
} Layer;

/* Where the number e of head h of token t of row r is: r row + h head + t token + e. */
typedef struct {
    float *start;
    int64_t row, head, token;
} Cache;

typedef struct {
    Cache key, value;
} KeyValue;

typedef struct {
    const Layer *layers;
    int64_t n_layers, d_model, d_feed_forward, n_heads, d_key, d_value, norm_first, activation;
} Decoder;

/* Tokens that queries may attend to, those of a cache from `first` on: `mask` has n_keys bytes for each query, or is
   missing. Row i of a batch is rows[i] of the cache. */
typedef struct {
    const KeyValue *layers;
    const int64_t *rows;
    const uint8_t *mask;
    int64_t mask_stride, n_keys, first;
} Context;

typedef struct {
    float *normed, *heads, *projected, *hidden, *scores;
    int32_t *index, *source_index, *count, *source_count;
} Memory;

static void normalise(const Norm *norm, const float *x, float *y, int64_t m, int64_t d) {
    for (int64_t i = 0; i < m; i++, x += d, y += d) {
        vec total = {0}, squares = {0};
        for (int64_t j = 0; j < d; j += LANES) total += load(x + j);
        vec mean = splat(sum_vec(total) / (float)d);
        for (int64_t j = 0; j < d; j += LANES) {
            vec centred = load(x + j) - mean;
            squares = fma_vec(centred, centred, squares);
        }
        vec scale = splat(1.0f / sqrtf(sum_vec(squares) / (float)d + (float)norm->eps));
        for (int64_t j = 0; j < d; j += LANES)
            store(y + j, (load(x + j) - mean) * scale * load(norm->gain + j) + load(norm->shift + j));
    }
}

static void add(float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) store(x + i, load(x + i) + load(y + i));
}

/* The numbers of the keys that each of m queries may attend to. */
static void list_keys(const Context *context, int64_t m, int32_t *index, int32_t *count) {
    for (int64_t i = 0; i < m; i++, index += context->n_keys) {
        const uint8_t *mask = context->mask ? context->mask + i * context->mask_stride : NULL;
        count[i] = 0;
        for (int32_t j = 0; j < context->n_keys; j++) {
            index[count[i]] = j;
            count[i] += !mask || mask[j];
        }
    }
}

/* Attention of `width` queries of each of B rows; the queries of a row share its keys. */
static void attend(const Decoder *d, const KeyValue *kv, const Context *context, const float *query, int64_t stride,
                   int64_t b, int64_t width, int64_t per_query, const int32_t *index, const int32_t *count,
                   float *scores, float *out) {
    for (int64_t i = 0; i < b; i++) {
        int64_t row = context->rows[i];
        for (int64_t h = 0; h < d->n_heads; h++) {
            const float *keys = kv->key.start + row * kv->key.row + h * kv->key.head + context->first * kv->key.token;
            const float *values = kv->value.start + row * kv->value.row + h * kv->value.head + context->first * kv->value.token;
            for (int64_t w = 0; w < width; w++) {
                int64_t q = i * width + w, list = per_query ? q : i;
                const int32_t *which = index + list * context->n_keys;
                float *to = out + q * d->n_heads * d->d_value + h * d->d_value;
                weigh(query + q * stride + h * d->d_key, keys, kv->key.token, which, count[list], d->d_key, scores);
                mix(scores, values, kv->value.token, which, count[list], d->d_value, to);
            }
        }
    }
}

/* Write the keys and values of the new tokens to the last `width` columns of the cache. */
static void append(const Decoder *d, const KeyValue *kv, const Context *context, const float *projected, int64_t stride,
                   int64_t b, int64_t width) {
    for (int64_t i = 0; i < b; i++) {
        int64_t row = context->rows[i];
        for (int64_t w = 0; w < width; w++) {
            int64_t column = context->first + context->n_keys - width + w;
            const float *key = projected + (i * width + w) * stride + d->n_heads * d->d_key;
            const float *value = key + d->n_heads * d->d_key;
            for (int64_t h = 0; h < d->n_heads; h++) {
                memcpy(kv->key.start + row * kv->key.row + h * kv->key.head + column * kv->key.token,
                       key + h * d->d_key, 4 * d->d_key);
                memcpy(kv->value.start + row * kv->value.row + h * kv->value.head + column * kv->value.token,
                       value + h * d->d_value, 4 * d->d_value);
            }
        }
    }
}

/* x = norm(x + y), or x = x + y where norms come first. */
static void close_residual(const Decoder *d, const Norm *norm, float *x, const float *y, int64_t m) {
    add(x, y, m * d->d_model);
    if (!d->norm_first) normalise(norm, x, x, m, d->d_model);
}

/* What a sublayer reads: x, or norm(x) where norms come first. */
static const float *open_residual(const Decoder *d, const Norm *norm, const float *x, int64_t m, Memory *memory) {
    if (!d->norm_first) return x;
    normalise(norm, x, memory->normed, m, d->d_model);
    return memory->normed;
}

static void run_layer(const Decoder *d, int64_t l, const Context *own, const Context *source, float *x, int64_t b,
                      int64_t width, Memory *memory) {
    const Layer *layer = d->layers + l;
    int64_t m = b * width, stride = layer->projection.n_out, queries = layer->query.n_out;
    regard_linear(&layer->projection, open_residual(d, &layer->norm, x, m, memory), memory->projected, m);
    append(d, own->layers + l, own, memory->projected, stride, b, width);
    attend(d, own->layers + l, own, memory->projected, stride, b, width, 1, memory->index, memory->count,
           memory->scores, memory->heads);
    regard_linear(&layer->output, memory->heads, memory->hidden, m);
    close_residual(d, &layer->norm, x, memory->hidden, m);

    regard_linear(&layer->query, open_residual(d, &layer->cross_norm, x, m, memory), memory->projected, m);
    attend(d, source->layers + l, source, memory->projected, queries, b, width, 0, memory->source_index,
           memory->source_count, memory->scores, memory->heads);
    regard_linear(&layer->cross_output, memory->heads, memory->hidden, m);
    close_residual(d, &layer->cross_norm, x, memory->hidden, m);

    regard_linear(&layer->up, open_residual(d, &layer->feed_forward_norm, x, m, memory), memory->hidden, m);
    regard_activate(memory->hidden, m * d->d_feed_forward, d->activation);
    regard_linear(&layer->down, memory->hidden, memory->projected, m);
    close_residual(d, &layer->feed_forward_norm, x, memory->projected, m);
}

/* Replace x, B x W rows, by the output of the last layer. */
void regard_decoder_step(const Decoder *d, const Context *own, const Context *source, float *x, int64_t b,
                         int64_t width) {
    int64_t m = b * width, heads = d->n_heads * (2 * d->d_key + d->d_value);
    int64_t projected = heads > d->d_model ? heads : d->d_model;
    int64_t hidden = d->d_feed_forward > d->d_model ? d->d_feed_forward : d->d_model;
    int64_t keys = (own->n_keys > source->n_keys ? own->n_keys : source->n_keys) + LANES;
    float *floats = malloc(4 * (m * (d->d_model + d->n_heads * d->d_value + projected + hidden) + keys));
    int32_t *ints = malloc(4 * (m * (own->n_keys + 1) + 1 + b * (source->n_keys + 1) + 1));
    Memory memory = {.normed = floats};
    memory.heads = memory.normed + m * d->d_model;
    memory.projected = memory.heads + m * d->n_heads * d->d_value;
    memory.hidden = memory.projected + m * projected;
    memory.scores = memory.hidden + m * hidden;
    memory.index = ints;
    memory.count = memory.index + m * own->n_keys + 1; /* a list is written one behind its end */
    memory.source_index = memory.count + m;
    memory.source_count = memory.source_index + b * source->n_keys + 1;
    list_keys(own, m, memory.index, memory.count);
    list_keys(source, b, memory.source_index, memory.source_count);
    for (int64_t l = 0; l < d->n_layers; l++) run_layer(d, l, own, source, x, b, width, &memory);
    free(floats);
    free(ints);
}
