// Shapes of well-known models, by name, for synthetic models to measure.
#ifndef SETUN_SYNTHETIC_PRESETS_H
#define SETUN_SYNTHETIC_PRESETS_H

#include "model/arch.h"

// The name of the preset at `index`; NULL past the last.
const char *st_preset_name(size_t index);

// The family and the hyperparameters of a preset; *hparams owns nothing. An unknown name is an error that lists the
// known ones.
setun_status st_preset_find(const char *name, const st_spec **spec, st_hparams *hparams, setun_error *err);

#endif
