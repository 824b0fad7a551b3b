// What a model's files say of embeddings: sentence-transformers' modules, or keys of GGUF.
#ifndef SETUN_MODEL_EMBEDDING_H
#define SETUN_MODEL_EMBEDDING_H

#include "model/hparams.h"

// Fills h->embedding; the sizes are known. What is not supported is refused by its name.
setun_status st_embedding_read(const st_directory *directory, st_hparams *h, setun_error *err);

// Floats of an embedding.
uint32_t st_embedding_width(const st_hparams *h);
// How the model pools where nobody says otherwise; SETUN_POOLING_OFF: its files say that it does not.
setun_pooling st_embedding_pooling(const st_hparams *h);

// "mean", "cls", "last"; NULL: none of them.
const char *st_pooling_name(setun_pooling pooling);

#endif
