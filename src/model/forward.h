// The forward pass: one for all families, driven by what the parameters and the weights say.
#ifndef SETUN_MODEL_FORWARD_H
#define SETUN_MODEL_FORWARD_H

#include "model/model.h"
#include "setun.h"

// What a layer keeps of a sequence: the keys and values of all positions, or only of those in its window.
typedef enum st_layer_kind { ST_LAYER_FULL, ST_LAYER_WINDOW, ST_LAYER_KINDS } st_layer_kind;

// What a context computes in: a queue, activations for up to n_batch tokens, and the pages of the KV cache. Whose pages
// these are is up to whoever gives the batches.
typedef struct st_run {
  const st_model *model;
  st_queue *queue;
  st_cache *cache;
  uint32_t n_ctx, n_batch;
  uint32_t n_logits;                // tokens whose logits are computed together at most
  uint32_t n_pages[ST_LAYER_KINDS]; // of the cache: first those for layers of the first kind, then the others
  setun_kv_type keys, values;       // formats of the cache
  st_dvector *rope, *rope_local;    // [n_ctx][2][head_dim / 2], see rope.h; rope_local NULL: all layers share one
  st_array *x;                      // [n_batch, n_embd] what runs through the blocks
  st_array *q, *attn;               // [n_batch, n_head * head_dim] queries, attention's output
  st_array *k, *v;                  // [n_batch, n_head_kv * head_dim] keys and values of this pass
  st_array *branch;                 // [n_batch, n_embd] what a part of a block adds to x
  st_array *gate, *up;              // [n_batch, n_ff]; with experts [max(n_batch, used), widest of the parts]
  st_array *logits;                 // [tokens computed at once, n_vocab]
  struct st_moe *moe;               // NULL: the model has no experts
  struct st_products *products;
} st_run;

typedef struct st_run_options {
  uint32_t n_ctx, n_batch; // positions of a sequence, tokens of a pass
  uint32_t n_seq;          // sequences
  uint32_t n_blocks;       // of ST_CACHE_POSITIONS positions: pages of each layer without a window
  uint32_t n_logits;       // tokens whose logits are kept
  int threads;
  setun_kv_type keys, values; // formats of the cache
} st_run_options;

// The options of a context of the model: defaults filled in, limits checked. NULL: of a session with defaults.
setun_status st_run_options_of(const st_model *m, const setun_context_params *params, st_run_options *options,
                               setun_error *err);
// Pages of a layer that hold so many positions.
static inline uint32_t st_run_blocks(uint32_t positions) {
  return (positions + ST_CACHE_POSITIONS - 1) / ST_CACHE_POSITIONS;
}
// A layer's window: how many positions it sees, its own included; 0: all.
static inline uint32_t st_layer_window(const st_hparams *h, uint32_t layer) {
  return h->sliding[layer] ? h->window : 0;
}
static inline st_layer_kind st_layer_kind_of(const st_hparams *h, uint32_t layer) {
  return st_layer_window(h, layer) ? ST_LAYER_WINDOW : ST_LAYER_FULL;
}
// Pages of a layer that a sequence has at most: those of all positions, or of the window and one pass.
uint32_t st_layer_blocks(const st_hparams *h, uint32_t layer, uint32_t n_ctx, uint32_t n_batch);
// Pages of the cache for the layers of each kind.
void st_run_count_pages(const st_hparams *h, const st_run_options *options, uint32_t pages[ST_LAYER_KINDS]);
// Bytes of a run's cache, and of everything else in it, before there is one. `workload`: that of all matrices.
typedef struct st_run_size {
  uint64_t cache, work;
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
