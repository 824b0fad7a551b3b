// The forward pass: one for all families, driven by the parameters and the weights that the model has.
#ifndef SETUN_MODEL_FORWARD_H
#define SETUN_MODEL_FORWARD_H

#include "model/model.h"
#include "model/windows.h"
#include "setun.h"

// Sees the inputs of products, after their norms; for calibration. Experts see the tokens that are routed to them.
typedef struct st_tap {
  void *context;
  // An array of n_batch tokens, so wide; NULL: out of memory. The tap keeps and frees it.
  st_array *(*room)(void *context, uint32_t columns);
  // The matrices that take an input, and n tokens of it, in the array of `room`.
  void (*see)(void *context, const st_linear *const *linears, int count, st_array *input, uint32_t n);
} st_tap;

// A context's workspace: a queue, activations for up to n_batch tokens, and the pages of the KV cache. The caller
// decides which sequence owns which page.
typedef struct st_run {
  const st_model *model;
  st_queue *queue;
  st_cache *cache;
  uint32_t n_ctx, n_batch; // positions of a sequence, tokens of a pass
  st_windows windows;
  uint32_t n_logits;                // most tokens whose logits are computed together
  uint32_t n_pages[ST_LAYER_KINDS]; // in the cache: first those for layers of the first kind, then the others
  setun_kv_type keys, values;       // the cache's formats
  st_dvector *rope, *rope_local;    // [positions][2][head_dim / 2], see rope.h; rope_local NULL: all layers share one
  st_array *x;                      // [n_batch, n_embd] the residual stream
  st_array *q, *attn;               // [n_batch, n_head * head_dim] queries, attention's output
  st_array *q_far, *q_sink;         // like q, rotated for keys of the previous period, and for sinks; NULL: none
  st_array *k, *v;                  // [n_batch, n_head_kv * head_dim] keys and values of this pass
  st_array *branch;                 // [n_batch, n_embd] what half a block adds to x
  st_array *gate, *up;              // [n_batch, n_ff]; with experts [max(n_batch, used), widest of the parts]
  st_array *logits;                 // [tokens computed at once, n_vocab]
  st_array *dense[2];               // [1, widest] inputs and outputs of an embedding's dense matrices, alternating
  st_states *states;                // states of recurrent layers; NULL: the model has none
  uint32_t n_states;                // their slots
  size_t state_bytes;               // bytes of a slot
  // For models with recurrent layers: [n_batch, ...] products and what follows from them, see delta.c; `mixed` also
  // holds queries with their gates, and `z` these gates.
  st_array *mixed, *convolved, *z, *alpha, *beta, *switches;
  struct st_moe *moe; // NULL: the model has no experts
  struct st_products *products;
  const st_lora *lora; // adapters for the next pass; NULL: none
  float lora_scale;
  const st_tap *tap; // NULL: none
} st_run;

typedef struct st_run_options {
  uint32_t n_ctx, n_batch; // positions of a sequence, tokens of a pass
  uint32_t limit;          // most tokens in a sequence: n_ctx, or UINT32_MAX where its length is not limited
  st_windows windows;
  uint32_t n_seq;    // sequences
  uint32_t n_blocks; // pages, of ST_CACHE_POSITIONS positions, for each layer without a window
  uint32_t n_logits; // tokens whose logits are kept
  uint32_t n_states; // slots of recurrent states; 0: the model has none
  int threads;
  setun_kv_type keys, values; // the cache's formats
  setun_pooling pooling;      // for embeddings; never SETUN_POOLING_MODEL; SETUN_POOLING_OFF: none are made
} st_run_options;

// The options of a context of the model: defaults filled in, limits checked. NULL: those of a default session.
setun_status st_run_options_of(const st_model *m, const setun_context_params *params, st_run_options *options,
                               setun_error *err);
// Cache pages for the layers of each kind.
void st_run_count_pages(const st_hparams *h, const st_run_options *options, uint32_t pages[ST_LAYER_KINDS]);
// The bytes that a run will take: its cache, the pages of it alone, and everything else. `workload` covers all
// matrices.
typedef struct st_run_size {
  uint64_t cache, pages, states, work; // cache: pages and states included
} st_run_size;
st_run_size st_run_size_of(const st_model *model, const st_run_options *options, const st_workload *workload);

setun_status st_run_new(const st_model *model, const st_run_options *options, st_run **run, setun_error *err);
void st_run_free(st_run *run);

// Callbacks of a pass; either may be NULL.
typedef struct st_pass {
  setun_hidden_fn on_hidden;
  void *user;
  float *hidden;     // scratch [n_batch, n_embd]; needed with on_hidden
  uint32_t n_logits; // tokens whose logits will be requested after the pass
  // Called before each block; true ends the pass early and discards its results.
  bool (*stop)(void *context);
  void *stop_context;
} st_pass;

// Runs the tokens of a batch (1 to n_batch, their ids, in its order, below n_vocab); their keys and values go to the
// cache. SETUN_ERROR_CANCELED when it was stopped; SETUN_ERROR_IO where streamed weights cannot be read.
setun_status st_run_tokens(st_run *run, const int32_t *ids, const st_batch *batch, const st_pass *pass,
                           setun_error *err);

// Some of the logits of one token.
typedef struct st_few_logits {
  uint32_t k; // how many are wanted, at most ST_FEW_LOGITS
  // The largest of all, largest first, of equal ones the first: k or one more. 0: they cannot be told without all
  // logits. The logit is 0 where k is 1.
  uint32_t count;
  int32_t ids[ST_TOP_MOST];
  float logits[ST_TOP_MOST];
} st_few_logits;
enum { ST_FEW_LOGITS = ST_TOP_MOST - 1 };
// Whether a device finds them, so that the others need not leave it.
bool st_run_finds_few(const st_run *run);
setun_status st_run_few(st_run *run, uint32_t row, st_few_logits *few, setun_error *err);

// The parts of a pass of models whose weights are all resident: the embedding of a batch's tokens, to run->x, and one
// layer, from run->x to run->x.
setun_status st_run_embed(st_run *run, const int32_t *ids, uint32_t n, setun_error *err);
setun_status st_run_layer(st_run *run, uint32_t layer, const st_batch *batch, setun_error *err);

// The logits after `n` tokens of the last pass, given as rows of its batch: [n, n_vocab] floats; n is at most
// run->n_logits. `left`: tokens whose logits will be requested after these. SETUN_ERROR_IO where a streamed head cannot
// be read.
setun_status st_run_logits(st_run *run, const uint32_t *rows, uint32_t n, uint32_t left, float *out, setun_error *err);
// Those that st_run_logits, or st_run_few with n = 1, computed last.
setun_status st_run_read_logits(st_run *run, uint32_t n, float *out, setun_error *err);

#endif
