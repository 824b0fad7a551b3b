// Hyperparameters of files that are written.
#ifndef SETUN_MODEL_HPARAMS_WRITE_H
#define SETUN_MODEL_HPARAMS_WRITE_H

#include "format/gguf_keys.h"
#include "model/arch.h"

// Appends the family's first name and its hyperparameters; `keys` keeps a failure.
void st_hparams_write_gguf(const st_spec *spec, const st_hparams *h, st_keys *keys);

#endif
