// Between hparams.c and the two files that read a container's keys.
#ifndef SETUN_MODEL_HPARAMS_READ_H
#define SETUN_MODEL_HPARAMS_READ_H

#include "model/arch.h"

// The family with that name; NULL and an error that lists the known ones.
const st_spec *st_spec_find(bool gguf, const char *key, const char *name, size_t length, setun_error *err);
// The family under whose name the other container holds such a model; NULL and an error where it has none.
const st_spec *st_spec_counterpart(const st_spec *spec, bool to_gguf, const st_hparams *h, setun_error *err);
// The activation function of that name.
setun_status st_hparams_fn(const char *key, const char *name, size_t length, st_activation_fn *fn, setun_error *err);

setun_status st_gguf_spec(const st_directory *directory, const st_spec **spec, setun_error *err);
setun_status st_gguf_hparams(const st_directory *directory, const st_spec *spec, st_hparams *h, setun_error *err);
setun_status st_hf_spec(const st_directory *directory, const st_spec **spec, setun_error *err);
setun_status st_hf_hparams(const st_directory *directory, const st_spec *spec, st_hparams *h, setun_error *err);

// Which layers attend to a window, and how wide it is: h->window and h->sliding, by the family's rule and what the file
// says. GGUF: attention.sliding_window and attention.sliding_window_pattern, each a number or an array of one a layer.
setun_status st_hf_windows(const st_json *config, const st_spec *spec, st_hparams *h, setun_error *err);
setun_status st_gguf_windows(const st_metadata *m, const char *architecture, const st_spec *spec, st_hparams *h,
                             setun_error *err);

// A number that must be positive; `out` stays as it is where there is none.
setun_status st_hf_positive(const st_json *config, const char *key, float *out, setun_error *err);

// For families with experts, from their read_hf: how many, how wide, renormalized or not, and which layers have them
// (all but those that decoder_sparse_step and mlp_only_layers leave out).
setun_status st_hf_experts(const st_json *config, st_hparams *h, setun_error *err);

#endif
