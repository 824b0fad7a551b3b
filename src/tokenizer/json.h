// The parts of the tokenizer.json reader.
#ifndef SETUN_TOKENIZER_JSON_H
#define SETUN_TOKENIZER_JSON_H

#include "base/json.h"
#include "tokenizer/internal.h"

// The text of an object's "type" member; an absent one is an error that names `what`.
setun_status st_json_type(const st_json *object, const char *what, const char **type, setun_error *err);
// A string member, copied into the tokenizer's arena; absence is an error.
setun_status st_json_copy(st_tokenizer *t, const st_json *object, const char *key, const char *what, st_bytes *out,
                          setun_error *err);
// An id: an integer from 0 to `limit`-1.
setun_status st_json_id(const st_json *value, const char *what, uint32_t limit, uint32_t *id, setun_error *err);

// json_vocab.c: "model" and "added_tokens". *t is set on failure too, if it came that far.
setun_status st_json_read_vocabulary(const st_json *root, st_tokenizer **t, setun_error *err);
// A tokenizer with the tokens of a vocab object, {"text": id, ...}, and room for those of `added` (may be NULL).
setun_status st_json_object_vocab(const st_json *vocab, const st_json *added, st_tokenizer **t, setun_error *err);
// One added token's settings, from an entry of added_tokens or of added_tokens_decoder.
setun_status st_json_read_added(st_tokenizer *t, const st_json *token, uint32_t id, setun_error *err);
// json_steps.c: the steps around the model; each value may be null.
setun_status st_json_read_normalizer(st_tokenizer *t, const st_json *value, setun_error *err);
setun_status st_json_read_pretokenizer(st_tokenizer *t, const st_json *value, setun_error *err);
// json_output.c
setun_status st_json_read_postprocessor(st_tokenizer *t, const st_json *value, setun_error *err);
setun_status st_json_read_decoder(st_tokenizer *t, const st_json *value, setun_error *err);

#endif
