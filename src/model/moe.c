// Mixtures of experts. The host reads the router's logits and chooses; then each chosen expert runs once, on all of its
// tokens. Experts that are not resident run as they arrive, where there is room for the outputs of all of them, which
// are added up at the end; otherwise one after the other in the order of their numbers.
#include "model/moe.h"

#include "base/memory.h"
#include "model/product.h"
#include "model/run_arrays.h"

#include <math.h>

struct st_moe {
  st_array *normed;    // [n_batch, n_embd] the layer's input
  st_array *router;    // [n_batch, n_expert] logits
  st_array *part;      // [n_batch, n_embd] the tokens of one expert
  st_array *out;       // [rows, n_embd] outputs of one expert, or of all
  st_array *weight;    // [n_batch, 1] the shared expert's
  float *logits;       // [n_batch, n_expert]
  float *scratch;      // [n_expert]
  st_choice *chosen;   // [n_batch, used]
  st_choice *expected; // [used] of a later layer
  uint32_t *first;     // [n_expert + 1] offsets of an expert's tokens in the two lists below
  uint32_t *tokens;    // [n_batch * used]
  float *weights;      // the same
  st_product *outs;    // [2 * used]
  uint32_t rows;       // max(n_batch, used)
  // [n_expert] the experts that tokens use, how many tokens use each and, if they are not resident, which are present.
  uint32_t *wanted, *counts, *places;
  uint32_t n_wanted;
};

// ---- the choice ---------------------------------------------------------------------------------------------------

// x becomes softmax(x); the maximum is subtracted first.
static void softmax(float *x, uint32_t n) {
  float most = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  for (uint32_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - most);
  for (uint32_t i = 0; i < n; i++) x[i] /= sum;
}

// The k largest, by ascending index. Chosen ones are set to -inf in `scores`; NaN counts as the smallest.
static void largest(float *scores, uint32_t n, uint32_t k, st_choice *chosen) {
  for (uint32_t i = 0; i < n; i++) {
    if (isnan(scores[i])) scores[i] = -INFINITY;
  }
  for (uint32_t j = 0; j < k; j++) {
    uint32_t best = n, at = j;
    for (uint32_t i = 0; i < n; i++) {
      bool taken = false;
      for (uint32_t t = 0; t < j && scores[i] == -INFINITY; t++) taken = taken || chosen[t].expert == i;
      if (!taken && (best == n || scores[i] > scores[best])) best = i;
    }
    while (at && chosen[at - 1].expert > best) {
      chosen[at] = chosen[at - 1];
      at--;
    }
    chosen[at] = (st_choice){best, scores[best]};
    scores[best] = -INFINITY;
  }
}

void st_route(const st_hparams *h, const float *logits, float *scratch, st_choice *chosen) {
  uint32_t n = h->n_expert, k = h->n_expert_used;
  for (uint32_t i = 0; i < n; i++) scratch[i] = logits[i];
  if (h->router == ST_ROUTER_ALL) softmax(scratch, n);
  largest(scratch, n, k, chosen);
  if (h->router == ST_ROUTER_CHOSEN) {
    for (uint32_t i = 0; i < k; i++) scratch[i] = chosen[i].weight;
    softmax(scratch, k);
    for (uint32_t i = 0; i < k; i++) chosen[i].weight = scratch[i];
  } else if (h->router_renormalize) {
    float sum = 0;
    for (uint32_t i = 0; i < k; i++) sum += chosen[i].weight;
    for (uint32_t i = 0; i < k; i++) chosen[i].weight /= sum;
  }
}

// ---- memory -------------------------------------------------------------------------------------------------------

enum { MOE_ARRAYS = 5 };

static void list_arrays(const st_run *r, st_moe *m, st_run_array list[MOE_ARRAYS]) {
  const st_hparams *h = &r->model->h;
  const st_run_array all[MOE_ARRAYS] = {{&m->normed, r->n_batch, h->n_embd},
                                        {&m->router, r->n_batch, h->n_expert},
                                        {&m->part, r->n_batch, h->n_embd},
                                        {&m->out, m->rows, h->n_embd},
                                        {&m->weight, r->n_batch, 1}};
  for (int i = 0; i < MOE_ARRAYS; i++) list[i] = all[i];
}

setun_status st_moe_new(const st_run *r, st_moe **moe, setun_error *err) {
  const st_hparams *h = &r->model->h;
  st_moe *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "the experts' activations");
  uint32_t used = h->n_expert_used, rows = r->n_batch > used ? r->n_batch : used;
  st_run_array list[MOE_ARRAYS];
  m->rows = rows;
  list_arrays(r, m, list);
  setun_status s = st_run_arrays_new(r, list, MOE_ARRAYS, err);
  size_t n = (size_t)rows * used; // both are below 2^25
  m->logits = st_malloc((size_t)r->n_batch * h->n_expert, sizeof *m->logits);
  m->scratch = st_malloc(h->n_expert, sizeof *m->scratch);
  m->chosen = st_malloc(n, sizeof *m->chosen);
  m->expected = st_malloc(used, sizeof *m->expected);
  m->first = st_malloc((size_t)h->n_expert + 1, sizeof *m->first);
  m->tokens = st_malloc(n, sizeof *m->tokens);
  m->weights = st_malloc(n, sizeof *m->weights);
  m->outs = st_malloc((size_t)2 * used, sizeof *m->outs);
  m->wanted = st_malloc((size_t)3 * h->n_expert, sizeof *m->wanted);
  bool whole = m->logits && m->scratch && m->chosen && m->expected && m->first && m->tokens && m->weights && m->outs &&
               m->wanted;
  m->counts = whole ? m->wanted + h->n_expert : NULL;
  m->places = whole ? m->counts + h->n_expert : NULL;
  if (s == SETUN_OK && !whole) s = st_fail_memory(err, "the experts' lists");
  if (s == SETUN_OK) {
    *moe = m;
  } else {
    st_moe_free(r, m);
  }
  return s;
}

void st_moe_free(const st_run *r, st_moe *m) {
  if (!m) return;
  st_run_array list[MOE_ARRAYS];
  list_arrays(r, m, list);
  st_run_arrays_free(r, list, MOE_ARRAYS);
  void *blocks[] = {m->logits, m->scratch, m->chosen, m->expected, m->first, m->tokens, m->weights, m->outs, m->wanted};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) st_free(blocks[i]);
  st_free(m);
}

// ---- the experts --------------------------------------------------------------------------------------------------

// The router's choice for each token, and the resulting list of tokens for each expert.
static setun_status choose(st_run *r, const st_layer *l, uint32_t n, setun_error *err) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  uint32_t used = h->n_expert_used;
  const st_product router = {&l->linear[ST_ROUTER], m->router, 0};
  st_multiply(r, m->normed, 0, n, NULL, &router, 1);
  setun_status s = b->read(r->queue, m->router, 0, (size_t)n * h->n_expert, m->logits, err);
  if (s != SETUN_OK) return s;
  for (uint32_t e = 0; e <= h->n_expert; e++) m->first[e] = 0;
  for (uint32_t t = 0; t < n; t++) {
    st_choice *chosen = m->chosen + (size_t)t * used;
    st_route(h, m->logits + (size_t)t * h->n_expert, m->scratch, chosen);
    for (uint32_t i = 0; i < used; i++) m->first[chosen[i].expert + 1]++;
  }
  for (uint32_t e = 0; e < h->n_expert; e++) m->first[e + 1] += m->first[e];
  for (uint32_t t = 0; t < n; t++) { // first[e] moves to the end of e's tokens, where e + 1's began
    for (uint32_t i = 0; i < used; i++) {
      const st_choice *c = &m->chosen[(size_t)t * used + i];
      uint32_t at = m->first[c->expert]++;
      m->tokens[at] = t;
      m->weights[at] = c->weight;
    }
  }
  for (uint32_t e = h->n_expert; e; e--) m->first[e] = m->first[e - 1];
  m->first[0] = 0;
  m->n_wanted = 0;
  for (uint32_t e = 0; e < h->n_expert; e++) {
    if (m->first[e] == m->first[e + 1]) continue;
    m->counts[m->n_wanted] = m->first[e + 1] - m->first[e];
    m->wanted[m->n_wanted++] = e;
  }
  return SETUN_OK;
}

// The outputs that m->out begins with, of the lists' entries from `first` on, to the tokens.
static void add_outputs(st_run *r, uint32_t first, uint32_t n) {
  const st_moe *m = r->moe;
  r->model->backend->scatter_add(r->queue, r->branch, m->tokens + first, m->weights + first, n, r->model->h.n_embd,
                                 m->out);
}

// One expert on all of its tokens, whose outputs go to rows of m->out from `row` on.
static void one_expert(st_run *r, const st_layer *l, uint32_t expert, uint32_t row) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  uint32_t first = m->first[expert], n = m->first[expert + 1] - first;
  const st_expert *e = &l->experts[expert];
  const st_product gate_up[] = {{&e->gate, r->gate, 0}, {&e->up, r->up, 0}};
  const st_product down = {&e->down, m->out, row};
  b->gather(r->queue, m->normed, m->tokens + first, n, h->n_embd, m->part);
  st_multiply(r, m->part, 0, n, NULL, gate_up, 2);
  b->glu(r->queue, h->fn, r->gate, r->up, n, h->n_ff_expert, r->gate);
  st_multiply(r, r->gate, 0, n, NULL, &down, 1);
}

static void many_tokens(st_run *r, const st_layer *l) {
  const st_moe *m = r->moe;
  for (uint32_t i = 0; i < r->model->h.n_expert; i++) {
    uint32_t n = m->first[i + 1] - m->first[i];
    if (!n) continue;
    one_expert(r, l, i, 0);
    add_outputs(r, m->first[i], n);
  }
}

// `n` of the experts of one token, at m->places of its choice: gate and up of all in one product, since they share
// their input.
static void one_token(st_run *r, const st_layer *l, uint32_t n) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  for (uint32_t i = 0; i < n; i++) {
    const st_expert *e = &l->experts[m->chosen[m->places[i]].expert];
    m->outs[2 * i] = (st_product){&e->gate, r->gate, i};
    m->outs[2 * i + 1] = (st_product){&e->up, r->up, i};
  }
  st_multiply(r, m->normed, 0, 1, NULL, m->outs, (int)(2 * n));
  b->glu(r->queue, h->fn, r->gate, r->up, n, h->n_ff_expert, r->gate);
  for (uint32_t i = 0; i < n; i++) {
    const st_product down = {&l->experts[m->chosen[m->places[i]].expert].down, m->out, m->places[i]};
    st_multiply(r, r->gate, i, 1, NULL, &down, 1);
  }
}

// Predicts which experts the next layers will use, by applying their routers to this layer's hidden state, of one
// token.
static setun_status expect_experts(st_run *r, uint32_t layer, setun_error *err) {
  const st_supply *supply = r->model->supply;
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  setun_status s = SETUN_OK;
  for (uint32_t d = 1; layer + d < h->n_layer && supply->ahead(supply->context, layer + d, d); d++) {
    const st_layer *l = &r->model->layers[layer + d];
    const st_product router = {&l->linear[ST_ROUTER], m->router, 0};
    if (!l->experts) continue;
    b->norm_into(r->queue, r->x, 1, h->n_embd, l->vector[ST_FFN_NORM], h->norm_eps, m->part);
    st_multiply(r, m->part, 0, 1, NULL, &router, 1);
    if ((s = b->read(r->queue, m->router, 0, h->n_expert, m->logits, err)) != SETUN_OK) return s;
    st_route(h, m->logits, m->scratch, m->expected);
    for (uint32_t i = 0; i < h->n_expert_used; i++) m->places[i] = m->expected[i].expert;
    supply->expect(supply->context, layer + d, d, m->places, h->n_expert_used);
  }
  return s;
}

// Experts that are not resident, as the supply gives them.
static setun_status supplied_experts(st_run *r, uint32_t layer, uint32_t n, setun_error *err) {
  const st_supply *supply = r->model->supply;
  const st_layer *l = &r->model->layers[layer];
  st_moe *m = r->moe;
  const st_expert_demand demand = {
      .layer = layer, .experts = m->wanted, .tokens = m->counts, .n = m->n_wanted, .n_tokens = n};
  uint32_t outputs = m->first[r->model->h.n_expert], given = 0;
  bool in_order = outputs > m->rows;
  setun_status s = supply->want(supply->context, &demand, err);
  if (s == SETUN_OK && n == 1) s = expect_experts(r, layer, err);
  for (uint32_t done = 0; s == SETUN_OK && done < demand.n; done += given) {
    given = n == 1 ? demand.n : 1; // that many tokens use: one at a time, so that others can be read meanwhile
    s = supply->next(supply->context, in_order, m->places, &given, err);
    if (s != SETUN_OK) break;
    if (n == 1) one_token(r, l, given);
    if (n > 1) {
      uint32_t e = m->wanted[m->places[0]];
      one_expert(r, l, e, in_order ? 0 : m->first[e]);
      if (in_order) add_outputs(r, m->first[e], m->first[e + 1] - m->first[e]);
    }
    s = r->model->backend->finish(r->queue, err);
    supply->done(supply->context);
  }
  if (s == SETUN_OK && !in_order) add_outputs(r, 0, outputs);
  return s;
}

// The shared expert, weighted by a sigmoid.
static setun_status shared_expert(st_run *r, const st_layer *l, uint32_t n, setun_error *err) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  const st_product outs[] = {{&l->linear[ST_SHARED_GATE], r->gate, 0},
                             {&l->linear[ST_SHARED_UP], r->up, 0},
                             {&l->linear[ST_SHARED_ROUTER], m->weight, 0}};
  const st_product down = {&l->linear[ST_SHARED_DOWN], m->out, 0};
  st_multiply(r, m->normed, 0, n, NULL, outs, 3);
  b->glu(r->queue, h->fn, r->gate, r->up, n, h->n_ff_shared, r->gate);
  st_multiply(r, r->gate, 0, n, NULL, &down, 1);
  setun_status s = b->read(r->queue, m->weight, 0, n, m->weights, err);
  if (s != SETUN_OK) return s;
  for (uint32_t t = 0; t < n; t++) {
    m->tokens[t] = t;
    m->weights[t] = 1 / (1 + expf(-m->weights[t]));
  }
  b->scatter_add(r->queue, r->branch, m->tokens, m->weights, n, h->n_embd, m->out);
  return SETUN_OK;
}

setun_status st_moe_forward(st_run *r, uint32_t layer, uint32_t n, setun_error *err) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_layer *l = &r->model->layers[layer];
  b->norm_into(r->queue, r->x, n, h->n_embd, l->vector[ST_FFN_NORM], h->norm_eps, r->moe->normed);
  setun_status s = choose(r, l, n, err);
  if (s != SETUN_OK) return s;
  const st_moe *m = r->moe;
  if (r->model->on_experts) {
    r->model->on_experts(layer, n, m->wanted, m->counts, m->n_wanted, r->model->experts_user);
  }
  b->clear(r->queue, r->branch, n, h->n_embd);
  if (r->model->supply && r->model->supply->want) {
    s = supplied_experts(r, layer, n, err);
  } else if (n == 1) {
    for (uint32_t i = 0; i < h->n_expert_used; i++) r->moe->places[i] = i;
    one_token(r, l, h->n_expert_used);
    add_outputs(r, 0, h->n_expert_used);
  } else {
    many_tokens(r, l);
  }
  if (s != SETUN_OK) return s;
  return l->linear[ST_SHARED_GATE].matrix ? shared_expert(r, l, n, err) : SETUN_OK;
}
