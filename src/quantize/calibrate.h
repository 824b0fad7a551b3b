// Calibration: a model's layers run on a text, one after the other, and each layer's matrices are quantized for the
// inputs that they receive from the layers before it, which are quantized already.
//
// The model stays in its own format except for one matrix at a time of the current layer, which is float32. Each
// finished layer is written to a file beside the target (TARGET.layer-N), so that an interrupted run continues from
// there.
#ifndef SETUN_QUANTIZE_CALIBRATE_H
#define SETUN_QUANTIZE_CALIBRATE_H

#include "placement/placement.h"
#include "quantize/quantize.h"

typedef struct st_calibration {
  st_recipe *recipe;
  const int32_t *ids; // [n_windows][window] of the text
  uint32_t n_windows, window;
  st_placement_options placement; // its progress function is also called during calibration
  const char *target;
  uint64_t sums; // most bytes of sums of inputs in memory, unless one alone has more; 0: 1 GiB
  bool force;    // also where ternary formats are far from the floats
} st_calibration;

// The quantized matrices. Only the list of them is in memory.
typedef struct st_calibrated st_calibrated;

// `source` is a GGUF file, and must outlive the result. Errors name the matrix; SETUN_ERROR_CANCELED if the
// progress function cancels.
setun_status st_calibrate(const st_directory *source, const st_calibration *options, st_calibrated **calibrated,
                          setun_error *err);
// Rows of a matrix of the target; *found is false where it was not calibrated.
setun_status st_calibrated_rows(const st_calibrated *calibrated, const char *name, uint64_t row, uint64_t count,
                                void *bytes, bool *found, setun_error *err);
// The same for a matrix of a ternary format: int8 [count, columns], and the scales of its groups.
setun_status st_calibrated_trits(const st_calibrated *calibrated, const char *name, uint64_t row, uint64_t count,
                                 int8_t *trits, float *scales, bool *found, setun_error *err);
// With `finished` also removes the layers' files. NULL is fine.
void st_calibrated_free(st_calibrated *calibrated, bool finished);

#endif
