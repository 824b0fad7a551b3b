// Gated DeltaNet: projections, the causal convolution, the delta rule on the state, the gated norm, and the output.
#include "model/delta.h"

#include "model/product.h"

enum { SNAPSHOTS = 2 }; // at least, for all sequences together

static uint32_t channels_of(const st_hparams *h) {
  st_state_shape shape = st_state_shape_of(h, 0);
  return st_state_channels(&shape);
}

static uint32_t out_of(const st_hparams *h) {
  return h->delta.n_value_heads * h->delta.value_dim;
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

st_delta_widths st_delta_widths_of(const st_hparams *h) {
  const st_delta_params *d = &h->delta;
  size_t q = h->gated_attention ? (size_t)h->n_head * h->head_dim : 0;
  st_delta_widths w = {.mixed = 2 * q, .z = q};
  if (!d->n_taps) return w;
  w.channels = channels_of(h);
  w.mixed = larger(w.mixed, w.channels + (d->joined_mixed ? out_of(h) : 0));
  w.z = larger(w.z, out_of(h));
  w.heads = d->n_value_heads;
  w.switches = d->joined_switches ? 2 * w.heads : 0;
  return w;
}

uint32_t st_delta_slots(const st_hparams *h, uint32_t n_seq) {
  return h->delta.n_taps ? 2 * n_seq + (n_seq < SNAPSHOTS ? SNAPSHOTS : n_seq) : 0;
}

// The index of a layer among the recurrent ones; for n_layer, their count.
static uint32_t number_of(const st_hparams *h, uint32_t layer) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < layer; i++) n += h->recurrent[i];
  return n;
}

st_state_shape st_state_shape_of(const st_hparams *h, uint32_t n_slots) {
  const st_delta_params *d = &h->delta;
  return (st_state_shape){.n_slots = n_slots,
                          .n_layers = number_of(h, h->n_layer),
                          .n_key_heads = d->n_key_heads,
                          .n_value_heads = d->n_value_heads,
                          .key_dim = d->key_dim,
                          .value_dim = d->value_dim,
                          .n_taps = d->n_taps,
                          .tiled = d->tiled};
}

// Splits `mixed`, which is ordered key head by key head, into q, k and v (to `convolved`) and z.
static void split_mixed(st_run *r, uint32_t n) {
  const st_backend *b = r->model->backend;
  const st_delta_params *d = &r->model->h.delta;
  uint32_t dk = d->key_dim, values = d->n_value_heads / d->n_key_heads * d->value_dim, keys = d->n_key_heads * dk;
  const st_columns pieces[] = {{.from = 0, .n = dk, .to = 0, .to_step = dk},
                               {.from = dk, .n = dk, .to = keys, .to_step = dk},
                               {.from = 2 * dk, .n = values, .to = 2 * keys, .to_step = values},
                               {.from = 2 * dk + values, .n = values, .to = 0, .to_step = values}};
  for (int i = 0; i < 4; i++) {
    st_columns c = pieces[i];
    c.from_step = 2 * (dk + values);
    c.count = d->n_key_heads;
    b->copy_columns(r->queue, r->mixed, n, &c, i < 3 ? r->convolved : r->z);
  }
}

// The same for beta and alpha.
static void split_switches(st_run *r, uint32_t n) {
  const st_backend *b = r->model->backend;
  const st_delta_params *d = &r->model->h.delta;
  uint32_t each = d->n_value_heads / d->n_key_heads;
  st_columns c = {.from_step = 2 * each, .to_step = each, .n = each, .count = d->n_key_heads};
  b->copy_columns(r->queue, r->switches, n, &c, r->beta);
  c.from = each;
  b->copy_columns(r->queue, r->switches, n, &c, r->alpha);
}

// All products of the layer's input; returns the array with q, k and v, before the convolution.
static st_array *project(st_run *r, const st_layer *l, uint32_t n) {
  const st_delta_params *d = &r->model->h.delta;
  st_product outs[4];
  int count = 0;
  if (d->joined_mixed) {
    outs[count++] = (st_product){&l->linear[ST_DELTA_QKVZ], r->mixed, 0};
  } else {
    outs[count++] = (st_product){&l->linear[ST_DELTA_QKV], r->mixed, 0};
    outs[count++] = (st_product){&l->linear[ST_DELTA_Z], r->z, 0};
  }
  if (d->joined_switches) {
    outs[count++] = (st_product){&l->linear[ST_DELTA_SWITCHES], r->switches, 0};
  } else {
    outs[count++] = (st_product){&l->linear[ST_DELTA_ALPHA], r->alpha, 0};
    outs[count++] = (st_product){&l->linear[ST_DELTA_BETA], r->beta, 0};
  }
  st_multiply(r, r->x, 0, n, l->vector[ST_ATTN_NORM], outs, count);
  if (d->joined_switches) split_switches(r, n);
  if (!d->joined_mixed) return r->mixed;
  split_mixed(r, n);
  return r->convolved;
}

// Where value heads are tiled, a rotated output matrix may take them key head by key head
// (prism.hadamard.gdn_v_grouped): they are then reordered into another array.
static st_array *group_heads(st_run *r, const st_linear *out, st_array *x, st_array *to, uint32_t n) {
  const st_hparams *h = &r->model->h;
  const st_delta_params *d = &h->delta;
  uint32_t each = d->n_value_heads / d->n_key_heads, dim = d->value_dim;
  if (!out->basis || out->basis->order || !h->rotation->gdn_v_grouped || !d->tiled || each == 1) return x;
  for (uint32_t i = 0; i < each; i++) {
    const st_columns c = {.from = i * d->n_key_heads * dim,
                          .from_step = dim,
                          .to = i * dim,
                          .to_step = each * dim,
                          .n = dim,
                          .count = d->n_key_heads};
    r->model->backend->copy_columns(r->queue, x, n, &c, to);
  }
  return to;
}

void st_delta_forward(st_run *r, uint32_t layer, const st_batch *batch) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_delta_params *d = &h->delta;
  const st_layer *l = &r->model->layers[layer];
  uint32_t n = batch->n_tokens, number = number_of(h, layer);
  st_array *from = project(r, l, n),
           *mixed = from == r->mixed ? r->convolved : r->mixed; // `from` is unused from here on
  b->convolve(r->queue, r->states, number, batch, from, l->vector[ST_DELTA_TAPS], mixed);
  b->delta(r->queue, r->states, batch,
           &(st_delta_args){.layer = number,
                            .mixed = mixed,
                            .alpha = r->alpha,
                            .beta = r->beta,
                            .rate = l->vector[ST_DELTA_RATE],
                            .bias = l->vector[ST_DELTA_BIAS],
                            .dst = from});
  b->rmsnorm(r->queue, from, n, d->n_value_heads, d->value_dim, l->vector[ST_DELTA_NORM], h->norm_eps);
  b->glu(r->queue, ST_FN_SILU, r->z, from, n, out_of(h), from);
  const st_product out = {&l->linear[ST_DELTA_OUT], r->branch, 0};
  st_multiply(r, group_heads(r, out.linear, from, mixed, n), 0, n, NULL, &out, 1);
}
