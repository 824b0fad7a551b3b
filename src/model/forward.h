// The forward pass: one for all families, driven by what the parameters and the weights say.
#ifndef SETUN_MODEL_FORWARD_H
#define SETUN_MODEL_FORWARD_H

#include "model/model.h"
#include "setun.h"

// What one session computes in: a queue, activations for up to n_batch tokens, and the KV cache.
typedef struct st_run {
  const st_model *model;
  st_queue *queue;
  st_cache *cache;
  uint32_t n_ctx, n_batch;
  uint32_t n_logits;          // tokens whose logits are computed together at most
  setun_kv_type keys, values; // formats of the cache
  // Of the one sequence there is: [n_layer][stride], see st_token_run.
  uint32_t *pages;
  size_t stride;
  st_dvector *rope, *rope_local; // tables; rope_local NULL where all layers share one
  st_array *x, *q, *k, *v, *attn, *branch, *gate, *up, *logits;
  struct st_moe *moe; // NULL: the model has no experts
  struct st_products *products;
} st_run;

typedef struct st_run_options {
  uint32_t n_ctx, n_batch;
  int threads;
  setun_kv_type keys, values; // formats of the cache
  bool all_logits;            // not only those after the last token will be asked for
} st_run_options;

// The options of a session of the model: defaults filled in, limits checked.
setun_status st_run_options_of(const st_model *m, const setun_session_params *params, st_run_options *options,
                               setun_error *err);
// Bytes of a run's cache, of everything else in it, and of what it takes more where the head streams, for logits of
// several tokens at once; before there is one. `workload`: that of all matrices.
typedef struct st_run_size {
  uint64_t cache, work, more_logits;
} st_run_size;
// How many tokens' logits are computed at once where the head streams.
uint32_t st_run_logits_at_once(const st_run_options *options);
st_run_size st_run_size_of(const st_model *model, const st_run_options *options, const st_workload *workload);

setun_status st_run_new(const st_model *model, const st_run_options *options, st_run **run, setun_error *err);
void st_run_free(st_run *run);

// What a pass reports; either may be NULL.
typedef struct st_pass {
  setun_hidden_fn on_hidden;
  void *user;
  float *hidden;     // scratch [n_batch, n_embd]; needed with on_hidden
  uint32_t n_logits; // tokens whose logits will be asked for when the pass is over
  // Asked before each block; true ends the pass early, and then nothing of it counts.
  bool (*stop)(void *context);
  void *stop_context;
} st_pass;

// Runs `n` tokens (1 to n_batch, their ids below n_vocab) that stand at `position` and after it; their keys and values
// go to the cache. SETUN_ERROR_CANCELED when it was stopped; SETUN_ERROR_IO where weights that stream cannot be read.
setun_status st_run_tokens(st_run *run, const int32_t *ids, uint32_t n, uint32_t position, const st_pass *pass,
                           setun_error *err);

// The logits after the tokens [first, first + n) of the last pass: [n, n_vocab] floats; n is at most run->n_logits.
// `left`: tokens for which they will be asked for after these. SETUN_ERROR_IO where a head that streams cannot be read.
setun_status st_run_logits(st_run *run, uint32_t first, uint32_t n, uint32_t left, float *out, setun_error *err);

#endif
