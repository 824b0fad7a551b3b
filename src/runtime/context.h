// A context: a model's workspace and sequences, of which one pass computes several at once. A session is a context with
// one sequence.
#ifndef SETUN_RUNTIME_CONTEXT_H
#define SETUN_RUNTIME_CONTEXT_H

#include "runtime/sequences.h"

typedef struct st_context st_context;

// The bytes that a context of the model will take, with a sampler for each sequence; see st_run_size_of.
st_run_size st_context_size_of(const st_model *model, const st_run_options *options, const st_workload *workload);

// `what` is its name in messages: static text.
setun_status st_context_new(const st_model *model, const setun_context_params *params, const char *what,
                            st_context **context, setun_error *err);
void st_context_free(st_context *context);
void st_context_info(const st_context *context, setun_context_info *info);
const st_model *st_context_model(const st_context *context);
// Bytes of the KV cache read for decoding one token with `tokens` in its sequence.
uint64_t st_context_cache_bytes(const st_context *context, uint32_t tokens);

setun_status st_context_add(st_context *context, int *sequence, setun_error *err);
setun_status st_context_drop(st_context *context, int sequence, setun_error *err);
setun_status st_context_fork(st_context *context, int sequence, int *copy, setun_error *err);
// The adapters of future sequences, see setun_context_use_adapters; and those of an existing one.
setun_status st_context_adapt(st_context *context, const st_adapting *adapting, setun_error *err);
setun_status st_context_adapt_sequence(st_context *context, int sequence, const st_adapting *adapting,
                                       setun_error *err);
setun_status st_context_truncate(st_context *context, int sequence, uint32_t n, setun_error *err);
setun_status st_context_reuse(st_context *context, const setun_token *ids, size_t n, int *sequence, uint32_t *position,
                              setun_error *err);
uint32_t st_context_position(const st_context *context, int sequence);
uint32_t st_context_forgotten(const st_context *context, int sequence);
const setun_token *st_context_tokens(const st_context *context, int sequence);
setun_status st_context_save(st_context *context, int sequence, const char *path, setun_error *err);
setun_status st_context_load(st_context *context, int sequence, const char *path, setun_error *err);
setun_status st_context_save_memory(st_context *context, int sequence, void *bytes, size_t capacity, size_t *length,
                                    setun_error *err);
setun_status st_context_load_memory(st_context *context, int sequence, const void *bytes, size_t length,
                                    setun_error *err);

// As setun_context_eval. `params` may have on_hidden and, with one entry, on_logits, which gets the logits of each
// token; the last token's are kept.
setun_status st_context_eval(st_context *context, const setun_batch_entry *entries, size_t n,
                             const setun_eval_params *params, setun_error *err);
// As setun_context_get_embedding and setun_context_embed; embeddings[] has `n_dimensions` floats per text,
// or per token where they are not pooled.
setun_status st_context_get_embedding(st_context *context, int sequence, const setun_embedding_params *params,
                                      float *embedding, setun_error *err);
setun_status st_context_embed(st_context *context, const setun_embedding_input *texts, size_t n,
                              const setun_embedding_params *params, float *embeddings, setun_error *err);
// The next evaluation, of one entry with the last token's logits, finds the largest of these only, where its device can
// and `usable` agrees; otherwise it finds all, and few->count is 0. NULL: it finds all.
void st_context_seek_few(st_context *context, st_few_logits *few,
                         bool (*usable)(const st_few_logits *few, const void *user), const void *user);
bool st_context_finds_few(const st_context *context); // whether its device can
bool st_context_device_work(const st_context *context, size_t index, st_op_counts *counts);
const float *st_context_logits(const st_context *context, size_t entry, size_t i);
void st_context_stop(st_context *context);

#endif
