/* x W^T in float32, with W as PyTorch stores it: a row for each output.

   A tile of the result is ROWS x COLUMNS = LANES numbers, each the sum of one vector along the inputs:

       x row 0  ----------- k --------->          acc[0][0] acc[0][1] ...      the lanes of all of them are summed
       x row 1  ----------- k --------->          acc[1][0] acc[1][1] ...      at once, by sum_lanes

   A number is summed in the same order in every tile, so a row does not depend on the rows beside it. */

#include "linear.h"
#include "vectors.h"

#define CHUNK_BYTES (1 << 18) /* rows of x that stay in a core's second cache while W passes by */

INLINE void multiply_tile(int rows, int columns, const float *x, const float *const *w, int64_t k, int64_t ahead,
                          float *tile) {
    vec acc[LANES] = {0};
    for (int64_t i = 0; i < k; i += LANES) {
        vec a[LANES], b[LANES];
        for (int r = 0; r < rows; r++) a[r] = load(x + r * k + i);
        for (int c = 0; c < columns; c++) {
            b[c] = load(w[c] + i);
            if (ahead) __builtin_prefetch(w[c] + i + ahead);
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) acc[r * columns + c] = fma_vec(a[r], b[c], acc[r * columns + c]);
    }
    store(tile, sum_lanes(acc));
}

INLINE void multiply_rows(int rows, const Linear *w, const float *x, float *y, int64_t n, int64_t ahead) {
    enum { most = LANES };
    const int columns = LANES / rows;
    const float *row[most];
    float tile[LANES];
    int64_t left = w->n_out - n < columns ? w->n_out - n : columns;
    for (int c = 0; c < columns; c++) row[c] = (const float *)w->weight + (n + (c < left ? c : left - 1)) * w->n_in;
    multiply_tile(rows, columns, x, row, w->n_in, ahead, tile);
    for (int r = 0; r < rows; r++)
        for (int64_t c = 0; c < left; c++) y[r * w->n_out + n + c] = tile[r * columns + c];
}

enum { TILE_ROWS = 4 };

static void multiply_chunk(const Linear *w, const float *x, float *y, int64_t m) {
    int64_t k = w->n_in, full = m / TILE_ROWS * TILE_ROWS, ahead = LANES / TILE_ROWS * k;
    for (int64_t n = 0; n < w->n_out && full; n += LANES / TILE_ROWS)
        for (int64_t i = 0; i < full; i += TILE_ROWS) multiply_rows(TILE_ROWS, w, x + i * k, y + i * w->n_out, n, i ? 0 : ahead);
    x += full * k, y += full * w->n_out, m -= full;
    if (m >= 2)
        for (int64_t n = 0; n < w->n_out; n += LANES / 2) multiply_rows(2, w, x, y, n, LANES / 2 * k);
    x += m / 2 * 2 * k, y += m / 2 * 2 * w->n_out;
    if (m % 2)
        for (int64_t n = 0; n < w->n_out; n += LANES) multiply_rows(1, w, x, y, n, LANES * k);
}

void regard_linear_float32(const Linear *w, const float *x, float *y, int64_t m) {
    int64_t chunk = CHUNK_BYTES / (4 * w->n_in) / TILE_ROWS * TILE_ROWS;
    chunk = chunk < TILE_ROWS ? TILE_ROWS : chunk;
    for (int64_t start = 0; start < m; start += chunk) {
        int64_t rows = m - start < chunk ? m - start : chunk;
        multiply_chunk(w, x + start * w->n_in, y + start * w->n_out, rows);
    }
    if (w->bias)
        for (int64_t i = 0; i < m; i++)
            for (int64_t n = 0; n < w->n_out; n++) y[i * w->n_out + n] += w->bias[n];
}
