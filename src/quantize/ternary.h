// Ternary weights from floats: for each group of weights that share a scale the scale and the trits with the least
// squared error, and how much of the weights is lost by them.
#ifndef SETUN_QUANTIZE_TERNARY_H
#define SETUN_QUANTIZE_TERNARY_H

#include "base/log.h"
#include "quant/quant.h"

typedef struct st_magnitude {
  float size, importance;
} st_magnitude;

// The scale d for which the sum of importance * (x - d * trit)^2 over n weights is least, each with its nearest trit.
// `importance`: [n], at least 0, NULL: all equal. `room`: [n].
float st_ternary_scale(const float *x, const float *importance, size_t n, st_magnitude *room);

// The weights of a row that share a scale: a block, or all `columns`.
static inline uint64_t st_ternary_group(const st_format *format, uint64_t columns) {
  return format->scales == ST_SCALE_BLOCK ? format->block : columns;
}

// The least error for a row of a ternary format, whose scales are rounded to what it holds: `trits` [columns] and
// `scales`, one a group. `room`: [columns].
void st_ternary_row(const st_format *format, uint64_t columns, const float *x, const float *importance,
                    st_magnitude *room, int8_t *trits, float *scales);

// What ternary weights lose, over all matrices. Zero-initialize.
typedef struct st_ternary_loss {
  double lost, all;    // sums of squares: of the differences, and of the weights
  double part, whole;  // of the matrix at work
  const char *current; // its name
  double worst;        // the largest share of a matrix
  char name[128];      // and its name
  const st_format *format;
  uint64_t matrices;
  bool finished;
} st_ternary_loss;

// Adds rows of the matrix `name`, which must live until the next matrix begins; those of a matrix one after the other.
void st_ternary_loss_add(st_ternary_loss *loss, const char *name, const st_format *format, uint64_t rows,
                         uint64_t columns, const float *x, const int8_t *trits, const float *scales);
// Once all are added: floats that lose 1% or more were not trained to be ternary, which is an error, or with `force` a
// warning, that states the loss. Later calls do nothing.
setun_status st_ternary_loss_judge(st_ternary_loss *loss, bool force, const st_log *log, setun_error *err);

#endif
