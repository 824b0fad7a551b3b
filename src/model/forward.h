// The forward pass: one for all families, driven by what the parameters and the weights say.
#ifndef SETUN_MODEL_FORWARD_H
#define SETUN_MODEL_FORWARD_H

#include "model/model.h"
#include "model/windows.h"
#include "setun.h"

// What a context computes in: a queue, activations for up to n_batch tokens, and the pages of the KV cache. Whose pages
// these are is up to whoever gives the batches.
typedef struct st_run {
  const st_model *model;
  st_queue *queue;
  st_cache *cache;
  uint32_t n_ctx, n_batch; // positions of a sequence, tokens of a pass
  st_windows windows;
  uint32_t n_logits;                // tokens whose logits are computed together at most
  uint32_t n_pages[ST_LAYER_KINDS]; // of the cache: first those for layers of the first kind, then the others
  setun_kv_type keys, values;       // formats of the cache
  st_dvector *rope, *rope_local;    // [positions][2][head_dim / 2], see rope.h; rope_local NULL: all layers share one
  st_array *x;                      // [n_batch, n_embd] what runs through the blocks
  st_array *q, *attn;               // [n_batch, n_head * head_dim] queries, attention's output
  st_array *q_far, *q_sink; // like q, rotated for keys of the period before, and for sinks; NULL: there are none
  st_array *k, *v;          // [n_batch, n_head_kv * head_dim] keys and values of this pass
  st_array *branch;         // [n_batch, n_embd] what a part of a block adds to x
  st_array *gate, *up;      // [n_batch, n_ff]; with experts [max(n_batch, used), widest of the parts]
  st_array *logits;         // [tokens computed at once, n_vocab]
  st_array *dense[2];       // [1, widest] what goes through the dense matrices of an embedding, in turns
  st_states *states;        // of recurrent layers; NULL: the model has none
  uint32_t n_states;        // slots of them
  size_t state_bytes;       // of a slot
  // Of models with recurrent layers: [n_batch, ...] products and what is made of them, see delta.c; `mixed` also takes
  // queries with their gates, and `z` these gates.
  st_array *mixed, *convolved, *z, *alpha, *beta, *switches;
  struct st_moe *moe; // NULL: the model has no experts
  struct st_products *products;
  const st_lora *lora; // adapters of the pass that comes; NULL: none
  float lora_scale;
} st_run;

typedef struct st_run_options {
  uint32_t n_ctx, n_batch; // positions of a sequence, tokens of a pass
  uint32_t limit;          // tokens that a sequence may have: n_ctx, or UINT32_MAX where it goes on for ever
  st_windows windows;
  uint32_t n_seq;    // sequences
  uint32_t n_blocks; // of ST_CACHE_POSITIONS positions: pages of each layer without a window
  uint32_t n_logits; // tokens whose logits are kept
  uint32_t n_states; // slots of recurrent states; 0: the model has none
  int threads;
  setun_kv_type keys, values; // formats of the cache
  setun_pooling pooling;      // of embeddings, the model's own by its name; SETUN_POOLING_OFF: none are made
} st_run_options;

// The options of a context of the model: defaults filled in, limits checked. NULL: of a session with defaults.
setun_status st_run_options_of(const st_model *m, const setun_context_params *params, st_run_options *options,
                               setun_error *err);
// Pages of the cache for the layers of each kind.
void st_run_count_pages(const st_hparams *h, const st_run_options *options, uint32_t pages[ST_LAYER_KINDS]);
// Bytes of a run's cache, of its pages alone, and of everything else in it, before there is one. `workload`: that of
// all matrices.
typedef struct st_run_size {
  uint64_t cache, pages, states, work; // cache: pages and states included
} st_run_size;
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

// Runs the tokens of a batch (1 to n_batch, their ids, in its order, below n_vocab); their keys and values go to the
// cache. SETUN_ERROR_CANCELED when it was stopped; SETUN_ERROR_IO where weights that stream cannot be read.
setun_status st_run_tokens(st_run *run, const int32_t *ids, const st_batch *batch, const st_pass *pass,
                           setun_error *err);

// The logits after `n` tokens of the last pass, rows of its batch: [n, n_vocab] floats; n is at most run->n_logits.
// `left`: tokens for which they will be asked for after these. SETUN_ERROR_IO where a head that streams cannot be read.
setun_status st_run_logits(st_run *run, const uint32_t *rows, uint32_t n, uint32_t left, float *out, setun_error *err);

#endif
