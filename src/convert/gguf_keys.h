// The keys of a GGUF file that is written, and the check that they say what the source says.
#ifndef SETUN_CONVERT_GGUF_KEYS_H
#define SETUN_CONVERT_GGUF_KEYS_H

#include "convert/conversion.h"

// All keys: a GGUF source's own but for those that the conversion makes wrong; otherwise the family's hyperparameters
// and the tokenizer's keys that the options bring. Then those of Setun.
setun_status st_gguf_keys(const st_conversion *plan, st_keys *keys, setun_error *err);

// The family's name and hyperparameters, under its first name.
void st_gguf_hparams_keys(const st_spec *spec, const st_hparams *h, st_keys *keys);

// Reads the hyperparameters of what was written and compares them with the source's: what the target's container cannot
// say is refused, by name. Nothing where the source's family is not known.
setun_status st_verify_hparams(const st_conversion *plan, const st_directory *written, setun_error *err);

#endif
