// Shared by hparams.c and the two files that read a container's keys.
#ifndef SETUN_MODEL_HPARAMS_READ_H
#define SETUN_MODEL_HPARAMS_READ_H

#include "model/arch.h"

// The family with that name, or NULL with an error that lists the known ones.
const st_spec *st_spec_find(bool gguf, const char *key, const char *name, size_t length, setun_error *err);
// The family whose name such a model has in the other container, or NULL with an error where there is none.
const st_spec *st_spec_counterpart(const st_spec *spec, bool to_gguf, const st_hparams *h, setun_error *err);
// The activation function with that name.
setun_status st_hparams_fn(const char *key, const char *name, size_t length, st_activation_fn *fn, setun_error *err);

setun_status st_gguf_spec(const st_directory *directory, const st_spec **spec, setun_error *err);
setun_status st_gguf_hparams(const st_directory *directory, const st_spec *spec, st_hparams *h, setun_error *err);
setun_status st_hf_spec(const st_directory *directory, const st_spec **spec, setun_error *err);
setun_status st_hf_hparams(const st_directory *directory, const st_spec *spec, st_hparams *h, setun_error *err);

// Which layers attend to a window, and how wide it is: h->window and h->sliding, by the family's rule and the file's
// keys. GGUF: attention.sliding_window and attention.sliding_window_pattern, each a number, or an array with one
// element per layer.
setun_status st_hf_windows(const st_json *config, const st_spec *spec, st_hparams *h, setun_error *err);
setun_status st_gguf_windows(const st_metadata *m, const char *architecture, const st_spec *spec, st_hparams *h,
                             setun_error *err);

// A number that must be positive; `out` is unchanged where it is absent.
setun_status st_hf_positive(const st_json *config, const char *key, float *out, setun_error *err);

// For the read_hf of families with experts: their number and width, whether weights are renormalized, and which layers
// have them (all except those excluded by decoder_sparse_step and mlp_only_layers).
setun_status st_hf_experts(const st_json *config, st_hparams *h, setun_error *err);

#endif
