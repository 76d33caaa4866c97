/* The most likely tokens of rows of logits, and the update of beams; plain.py and plain_beam_update.py define them. */

#include "vectors.h"

typedef struct {
    float score;
    int64_t token;
} Scored;

/* Put a token where it belongs among the best n, best first; equal ones stay behind earlier ones. */
static void insert(Scored *best, int64_t n, float score, int64_t token) {
    int64_t i = n - 1;
    for (; i > 0 && best[i - 1].score < score; i--) best[i] = best[i - 1];
    best[i] = (Scored){score, token};
}

static void find_best(const float *x, int64_t v, Scored *best, int64_t n) {
    for (int64_t i = 0; i < n; i++) best[i] = (Scored){-INFINITY, i};
    for (int64_t i = 0; i < n; i++) insert(best, i + 1, x[i], i);
    int64_t i = n, whole = v - (v - n) % (4 * LANES);
    for (; i < whole; i += 4 * LANES) {
        vec most = larger(larger(load(x + i), load(x + i + LANES)), larger(load(x + i + 2 * LANES), load(x + i + 3 * LANES)));
        if (!any_lane(most > splat(best[n - 1].score))) continue;
        for (int64_t j = i; j < i + 4 * LANES; j++)
            if (x[j] > best[n - 1].score) insert(best, n, x[j], j);
    }
    for (; i < v; i++)
        if (x[i] > best[n - 1].score) insert(best, n, x[i], i);
}

/* log sum exp(x - largest): not a number if one of x is not, or is infinite. */
static float log_sum_exp(const float *x, int64_t v, float largest) {
    vec total[4] = {0};
    float left = 0;
    int64_t i = 0;
    for (; i + 4 * LANES <= v; i += 4 * LANES)
        for (int j = 0; j < 4; j++) total[j] += exp_vec(load(x + i + j * LANES) - splat(largest));
    for (; i < v; i++) left += expf(x[i] - largest);
    return logf(sum_vec((total[0] + total[1]) + (total[2] + total[3])) + left);
}

/* The n best tokens of each of m rows of v logits, their log-probabilities, and that of the token eos. */
void regard_top_log_probs(float *logits, int64_t m, int64_t v, int64_t n, int64_t eos, const int64_t *suppressed,
                          int64_t n_suppressed, float *score, int64_t *token, float *end) {
    Scored best[n];
    float kept[n_suppressed + 1];
    for (int64_t i = 0; i < m; i++, logits += v) {
        float largest = -INFINITY;
        for (int64_t j = 0; j < n_suppressed; j++) {
            kept[j] = logits[suppressed[j]];
            largest = kept[j] > largest ? kept[j] : largest;
            logits[suppressed[j]] = -INFINITY;
        }
        find_best(logits, v, best, n);
        for (int64_t j = 0; j < n_suppressed; j++) logits[suppressed[j]] = kept[j];
        largest = best[0].score > largest ? best[0].score : largest;
        float sum = log_sum_exp(logits, v, largest);
        for (int64_t j = 0; j < n; j++) {
            score[i * n + j] = best[j].score - largest - sum;
            token[i * n + j] = best[j].token;
        }
        end[i] = logits[eos] - largest - sum;
    }
}

/* The tensors of beams, as native_advance_beams.py lists them, and the beams that the next go on from. */
typedef struct {
    const float *score;
    const int64_t *token_in;
    const float *end, *penalties;
    int64_t *token, *parent;
    float *log_prob;
    int64_t *last_token;
    float *cum_log_prob;
    int64_t *length;
    const int64_t *max_length;
    float *finished_score;
    int64_t *finished_length, *finished_beam;
    float *finished_log_prob;
    uint8_t *done, *has_failed;
    int64_t *parents;
} Beams;

typedef struct {
    float total, log_prob;
    int64_t beam, token;
} Extension;

/* The best extensions of a sentence, best first; at its limit only eos is one. Returns 1 if a total is not a number. */
static int find_extensions(const Beams *s, int64_t b, int64_t width, int64_t n_beams, int64_t per_beam, int64_t n,
                           int64_t eos, Extension *best) {
    int at_limit = s->length[b] + 1 == s->max_length[b], failed = 0;
    for (int64_t i = 0; i < n; i++) best[i] = (Extension){-INFINITY, -INFINITY, 0, eos};
    for (int64_t beam = 0, found = 0; beam < n_beams; beam++) {
        for (int64_t c = 0; c < per_beam; c++, found++) {
            int64_t at = (b * n_beams + beam) * per_beam + c;
            float log_prob = !at_limit ? s->score[at] : c ? -INFINITY : s->end[b * n_beams + beam];
            float total = s->cum_log_prob[b * width + beam] + log_prob;
            failed |= total != total;
            if (found >= n && !(total > best[n - 1].total)) continue;
            int64_t i = found < n ? found : n - 1;
            for (; i > 0 && best[i - 1].total < total; i--) best[i] = best[i - 1];
            best[i] = (Extension){total, log_prob, beam, at_limit ? eos : s->token_in[at]};
        }
    }
    return failed;
}

/* Keep an extension that ends among the best finished hypotheses, behind those that score as high. */
static void keep_finished(const Beams *s, int64_t at, int64_t width, float score, int64_t length, const Extension *e) {
    int64_t i = at + width - 1;
    if (!(score > s->finished_score[i])) return;
    for (; i > at && s->finished_score[i - 1] < score; i--) {
        s->finished_score[i] = s->finished_score[i - 1], s->finished_length[i] = s->finished_length[i - 1];
        s->finished_beam[i] = s->finished_beam[i - 1], s->finished_log_prob[i] = s->finished_log_prob[i - 1];
    }
    s->finished_score[i] = score, s->finished_length[i] = length;
    s->finished_beam[i] = e->beam, s->finished_log_prob[i] = e->log_prob;
}

static void advance(const Beams *s, int64_t b, int64_t width, int64_t n_steps, int64_t n_beams, int64_t per_beam,
                    int64_t n, int64_t eos) {
    Extension best[n];
    int failed = find_extensions(s, b, width, n_beams, per_beam, n, eos, best);
    int64_t length = s->length[b] + 1, first = b * width, step = (b * n_steps + s->length[b]) * width, going = 0;
    float penalty = s->penalties[length];
    for (int64_t i = 0; i < n; i++) {
        if (best[i].token == eos) {
            if (best[i].total > -INFINITY) keep_finished(s, first, width, best[i].total / penalty, length, best + i);
        } else if (going < width) {
            best[going++] = best[i];
        }
    }
    for (int64_t w = 0; w < width; w++) {
        Extension e = w < going ? best[w] : (Extension){-INFINITY, 0, 0, eos};
        s->token[step + w] = s->last_token[first + w] = e.token;
        s->parent[step + w] = s->parents[first + w] = e.beam;
        s->log_prob[step + w] = e.log_prob, s->cum_log_prob[first + w] = e.total;
    }
    float worst = s->finished_score[first + width - 1], most = s->cum_log_prob[first];
    int beaten = most / penalty <= worst && worst > -INFINITY;
    s->length[b] = length;
    s->has_failed[b] |= failed;
    s->done[b] = !(most > -INFINITY) || beaten || length >= s->max_length[b] || failed;
}

/* Write the next token of each beam of each sentence that is not done. */
void regard_advance_beams(const Beams *s, int64_t n_sentences, int64_t width, int64_t n_steps, int64_t n_beams,
                          int64_t per_beam, int64_t n, int64_t eos) {
    for (int64_t b = 0; b < n_sentences; b++) {
        if (!s->done[b]) advance(s, b, width, n_steps, n_beams, per_beam, n, eos);
        else
            for (int64_t w = 0; w < width; w++) s->parents[b * width + w] = w;
    }
}
