// Ternary weights from floats, see ternary.h.
#include "quantize/ternary.h"

#include "quant/canonical.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b) {
  float x = ((const st_magnitude *)a)->size, y = ((const st_magnitude *)b)->size;
  return (x < y) - (x > y);
}

// The weights that are not zero are the largest ones; their mean magnitude is the best scale for them. All numbers of
// them are tried.
float st_ternary_scale(const float *x, const float *importance, size_t n, st_magnitude *room) {
  double weight = 0, sum = 0, most = 0, best = 0;
  for (size_t i = 0; i < n; i++) room[i] = (st_magnitude){fabsf(x[i]), importance ? importance[i] : 1};
  qsort(room, n, sizeof *room, by_size);
  for (size_t i = 0; i < n; i++) {
    weight += (double)room[i].importance;
    sum += (double)room[i].importance * (double)room[i].size;
    double gain = weight > 0 ? sum * sum / weight : 0; // by how much the error is less than with zeros alone
    if (gain > most) most = gain, best = sum / weight;
  }
  return (float)best;
}

void st_ternary_row(const st_format *format, uint64_t columns, const float *x, const float *importance,
                    st_magnitude *room, int8_t *trits, float *scales) {
  uint64_t group = st_ternary_group(format, columns);
  for (uint64_t k = 0; k < columns; k += group) {
    float d = st_ternary_scale(x + k, importance ? importance + k : NULL, (size_t)group, room);
    d = st_scale_rounded(format, d);
    for (uint64_t i = k; i < k + group; i++) trits[i] = (int8_t)((x[i] > 0.5f * d) - (x[i] < -0.5f * d));
    *scales++ = d;
  }
}

// ---- what is lost -------------------------------------------------------------------------------------------------

static void close_matrix(st_ternary_loss *l) {
  double share = l->whole > 0 ? sqrt(l->part / l->whole) : 0;
  if (l->current && (!l->matrices++ || share > l->worst)) {
    l->worst = share;
    snprintf(l->name, sizeof l->name, "%s", l->current);
  }
  l->lost += l->part, l->all += l->whole;
  l->part = l->whole = 0;
  l->current = NULL;
}

void st_ternary_loss_add(st_ternary_loss *l, const char *name, const st_format *format, uint64_t rows, uint64_t columns,
                         const float *x, const int8_t *trits, const float *scales) {
  uint64_t group = st_ternary_group(format, columns);
  if (l->finished) return;
  if (l->current && strcmp(l->current, name)) close_matrix(l);
  l->current = name;
  l->format = format;
  for (uint64_t i = 0; i < rows * columns; i++) {
    double miss = (double)x[i] - (double)scales[i / group] * trits[i];
    l->part += miss * miss;
    l->whole += (double)x[i] * (double)x[i];
  }
}

setun_status st_ternary_loss_judge(st_ternary_loss *l, bool force, const st_log *log, setun_error *err) {
  const double least = 0.01; // rounding of trits times a scale to bfloat16 is below 0.4%
  char text[512];
  if (l->finished) return SETUN_OK;
  close_matrix(l);
  l->finished = true;
  double share = l->all > 0 ? sqrt(l->lost / l->all) : 0;
  if (share < least) return SETUN_OK;
  snprintf(text, sizeof text,
           "ternary weights (%s) differ by %.0f%% from the floats of %llu matrices (root of the mean square; the most, "
           "%.0f%%, in %s)",
           l->format->name, 100 * share, (unsigned long long)l->matrices, 100 * l->worst, l->name);
  if (!force) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: the model was not trained for them; expected latent or ternary weights, or to be forced", text);
  }
  st_log_write(log, SETUN_LOG_WARNING, "%s: the model was not trained for them", text);
  return SETUN_OK;
}
