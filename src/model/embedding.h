// How a model makes embeddings, according to its files: sentence-transformers' modules, or GGUF keys.
#ifndef SETUN_MODEL_EMBEDDING_H
#define SETUN_MODEL_EMBEDDING_H

#include "model/hparams.h"

// Fills h->embedding; the sizes are known already. What is not supported is refused by name.
setun_status st_embedding_read(const st_directory *directory, st_hparams *h, setun_error *err);

// Floats of a pooled state after the dense matrices.
uint32_t st_embedding_width(const st_hparams *h);
// The most floats of an embedding, and as many as it has by default: the width, or what the files truncate it to.
uint32_t st_embedding_length(const st_hparams *h);
// Whether the model's embeddings may have only their first `n` floats; SETUN_ERROR_ARGUMENT if not.
setun_status st_embedding_check_length(const st_hparams *h, uint32_t n, setun_error *err);
// The model's default pooling; SETUN_POOLING_OFF: its files say that it does not pool.
setun_pooling st_embedding_pooling(const st_hparams *h);

// "mean", "cls", "last", "none"; NULL for other values.
const char *st_pooling_name(setun_pooling pooling);

#endif
