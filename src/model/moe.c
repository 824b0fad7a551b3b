// Mixtures of experts. A device that has all of them may choose them itself. Otherwise the host reads the router's
// choice; then each chosen expert runs once, on all of its tokens. Experts that are not resident run as they arrive,
// where there is room for the outputs of all of them, which are added up at the end; otherwise one after the other in
// the order of their numbers.
#include "model/moe.h"

#include "base/memory.h"
#include "model/product.h"
#include "model/run_arrays.h"

// An expert chosen for a token, and the weight of its output, as `route` stores them.
typedef struct {
  float expert, weight;
} choice;
_Static_assert(sizeof(choice) == 2 * sizeof(float), "an array's two columns");

struct st_moe {
  st_array *normed;  // [n_batch, n_embd] the layer's input
  st_array *router;  // [n_batch, n_expert] logits
  st_array *choices; // [n_batch, 2 * used] what the router chooses
  st_array *part;    // [n_batch, n_embd] the tokens of one expert
  st_array *out;     // [rows, n_embd] outputs of one expert, or of all
  st_array *weight;  // [n_batch, 1] the shared expert's
  st_array *shared;  // [n_batch, 2] its choice
  choice *chosen;    // [n_batch, used] the choices
  choice *expected;  // [used] of a later layer
  uint32_t *first;   // [n_expert + 1] offsets of an expert's tokens in the two lists below
  uint32_t *tokens;  // [n_batch * used]
  float *weights;    // the same
  st_product *outs;  // [2 * used]
  uint32_t rows;     // max(n_batch, used)
  // [n_expert] the experts that tokens use, how many tokens use each and, if they are not resident, which are present.
  uint32_t *wanted, *counts, *places;
  uint32_t n_wanted;
  st_dexperts **experts; // [n_layer] those that are chosen on the device; NULL: the others
};

// ---- memory -------------------------------------------------------------------------------------------------------

enum { MOE_ARRAYS = 7 };

static void list_arrays(const st_run *r, st_moe *m, st_run_array list[MOE_ARRAYS]) {
  const st_hparams *h = &r->model->h;
  const st_run_array all[MOE_ARRAYS] = {{&m->normed, r->n_batch, h->n_embd},
                                        {&m->router, r->n_batch, h->n_expert},
                                        {&m->choices, r->n_batch, (size_t)2 * h->n_expert_used},
                                        {&m->part, r->n_batch, h->n_embd},
                                        {&m->out, m->rows, h->n_embd},
                                        {&m->weight, r->n_batch, 1},
                                        {&m->shared, r->n_batch, 2}};
  for (int i = 0; i < MOE_ARRAYS; i++) list[i] = all[i];
}

static bool is_plain(const st_linear *l) {
  return l->matrix && !l->norm && !l->basis && !l->first_row;
}

// The experts of a layer as the device may choose among them: NULL where one has an input of its own.
static setun_status list_layer(const st_run *r, const st_layer *l, st_dexperts **experts, setun_error *err) {
  uint32_t n = r->model->h.n_expert;
  st_expert_weights *list = st_malloc(n, sizeof *list);
  if (!list) return st_fail_memory(err, "the experts' lists");
  bool plain = true;
  for (uint32_t i = 0; i < n; i++) {
    const st_linear *const all[] = {[ST_MATRIX_GATE] = &l->experts[i].gate,
                                    [ST_MATRIX_UP] = &l->experts[i].up,
                                    [ST_MATRIX_DOWN] = &l->experts[i].down};
    for (int k = 0; k < ST_EXPERT_MATRICES; k++) {
      plain = plain && is_plain(all[k]);
      list[i].matrix[k] = all[k]->matrix;
      list[i].bias[k] = all[k]->bias;
    }
  }
  setun_status s = plain ? r->model->backend->experts_new(r->model->device, list, n, experts, err) : SETUN_OK;
  st_free(list);
  return s;
}

static setun_status list_all(const st_run *r, st_moe *m, setun_error *err) {
  const st_model *model = r->model;
  setun_status s = SETUN_OK;
  m->experts = st_calloc(model->h.n_layer, sizeof *m->experts);
  if (!m->experts) return st_fail_memory(err, "the experts' lists");
  for (uint32_t i = 0; i < model->h.n_layer && s == SETUN_OK; i++) {
    if (model->layers[i].experts) s = list_layer(r, &model->layers[i], &m->experts[i], err);
  }
  return s;
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
  m->chosen = st_malloc(n, sizeof *m->chosen);
  m->expected = st_malloc(used, sizeof *m->expected);
  m->first = st_malloc((size_t)h->n_expert + 1, sizeof *m->first);
  m->tokens = st_malloc(n, sizeof *m->tokens);
  m->weights = st_malloc(n, sizeof *m->weights);
  m->outs = st_malloc((size_t)2 * used, sizeof *m->outs);
  m->wanted = st_malloc((size_t)3 * h->n_expert, sizeof *m->wanted);
  bool whole = m->chosen && m->expected && m->first && m->tokens && m->weights && m->outs && m->wanted;
  m->counts = whole ? m->wanted + h->n_expert : NULL;
  m->places = whole ? m->counts + h->n_expert : NULL;
  if (s == SETUN_OK && !whole) s = st_fail_memory(err, "the experts' lists");
  if (s == SETUN_OK) s = list_all(r, m, err);
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
  for (uint32_t i = 0; m->experts && i < r->model->h.n_layer; i++) {
    if (m->experts[i]) r->model->backend->experts_free(m->experts[i]);
  }
  void *blocks[] = {m->experts, m->chosen, m->expected, m->first, m->tokens, m->weights, m->outs, m->wanted};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) st_free(blocks[i]);
  st_free(m);
}

// ---- the experts --------------------------------------------------------------------------------------------------

// The choice of a layer's router for n tokens of x, in m->choices.
static void route(st_run *r, const st_layer *l, const st_array *x, uint32_t n) {
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  const st_route_args args = {h->n_expert, h->n_expert_used, h->router, h->router_renormalize};
  const st_product router = {&l->linear[ST_ROUTER], m->router, 0};
  st_multiply(r, x, 0, n, NULL, &router, 1);
  r->model->backend->route(r->queue, m->router, n, &args, m->choices);
}

static setun_status read_choices(st_run *r, uint32_t n, choice *to, setun_error *err) {
  const st_hparams *h = &r->model->h;
  size_t all = (size_t)n * h->n_expert_used;
  setun_status s = r->model->backend->read(r->queue, r->moe->choices, 0, 2 * all, (float *)to, err);
  for (size_t i = 0; s == SETUN_OK && i < all; i++) { // a device's memory may hold anything
    if (!(to[i].expert >= 0 && to[i].expert < (float)h->n_expert))
      s = st_fail(err, SETUN_ERROR_IO, "a router's choice: expected an expert below %u, found %g", h->n_expert,
                  (double)to[i].expert);
  }
  return s;
}

static uint32_t expert_of(const choice *c) {
  return (uint32_t)c->expert;
}

// The list of tokens for each expert that was chosen.
static setun_status list_experts(st_run *r, uint32_t n, setun_error *err) {
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  uint32_t used = h->n_expert_used, all = n * used;
  setun_status s = read_choices(r, n, m->chosen, err);
  if (s != SETUN_OK) return s;
  for (uint32_t e = 0; e <= h->n_expert; e++) m->first[e] = 0;
  for (uint32_t i = 0; i < all; i++) m->first[expert_of(&m->chosen[i]) + 1]++;
  for (uint32_t e = 0; e < h->n_expert; e++) m->first[e + 1] += m->first[e];
  for (uint32_t i = 0; i < all; i++) { // first[e] moves to the end of e's tokens, where e + 1's began
    uint32_t at = m->first[expert_of(&m->chosen[i])]++;
    m->tokens[at] = i / used;
    m->weights[at] = m->chosen[i].weight;
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
    const st_expert *e = &l->experts[expert_of(&m->chosen[m->places[i]])];
    m->outs[2 * i] = (st_product){&e->gate, r->gate, i};
    m->outs[2 * i + 1] = (st_product){&e->up, r->up, i};
  }
  st_multiply(r, m->normed, 0, 1, NULL, m->outs, (int)(2 * n));
  b->glu(r->queue, h->fn, r->gate, r->up, n, h->n_ff_expert, r->gate);
  for (uint32_t i = 0; i < n; i++) {
    const st_product down = {&l->experts[expert_of(&m->chosen[m->places[i]])].down, m->out, m->places[i]};
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
    if (!l->experts) continue;
    b->norm_into(r->queue, r->x, 1, h->n_embd, l->vector[ST_FFN_NORM], h->norm_eps, m->part);
    route(r, l, m->part, 1);
    if ((s = read_choices(r, 1, m->expected, err)) != SETUN_OK) return s;
    for (uint32_t i = 0; i < h->n_expert_used; i++) m->places[i] = expert_of(&m->expected[i]);
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
static void shared_expert(st_run *r, const st_layer *l, uint32_t n) {
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
  b->route(r->queue, m->weight, n, &(st_route_args){.n_expert = 1, .used = 1, .router = ST_ROUTER_SIGMOID}, m->shared);
  b->add_chosen(r->queue, r->branch, m->shared, n, 1, h->n_embd, m->out);
}

static bool is_adapted(const st_run *r, const st_expert *e) {
  const st_lora_pair *pairs = r->lora ? r->lora->pairs : NULL;
  return pairs && (pairs[e->gate.number].a || pairs[e->up.number].a || pairs[e->down.number].a);
}

// Whether the device chooses: nobody else needs to know, and the experts are all there and as they are.
static bool is_on_device(const st_run *r, uint32_t layer) {
  const st_layer *l = &r->model->layers[layer];
  if (!r->moe->experts || !r->moe->experts[layer] || r->tap || r->model->on_experts) return false;
  if (r->model->supply && r->model->supply->want) return false;
  for (uint32_t i = 0; i < r->model->h.n_expert; i++) {
    if (is_adapted(r, &l->experts[i])) return false;
  }
  return true;
}

static void experts_on_device(st_run *r, uint32_t layer, uint32_t n) {
  const st_hparams *h = &r->model->h;
  st_moe *m = r->moe;
  r->model->backend->experts(r->queue, &(st_experts_args){.experts = m->experts[layer],
                                                          .x = m->normed,
                                                          .chosen = m->choices,
                                                          .n = n,
                                                          .used = h->n_expert_used,
                                                          .fn = h->fn,
                                                          .part = m->part,
                                                          .gate = r->gate,
                                                          .up = r->up,
                                                          .out = m->out,
                                                          .rows = m->rows,
                                                          .dst = r->branch});
}

// The experts that the host chooses after reading.
static setun_status experts_by_host(st_run *r, uint32_t layer, uint32_t n, setun_error *err) {
  const st_layer *l = &r->model->layers[layer];
  const st_hparams *h = &r->model->h;
  setun_status s = list_experts(r, n, err);
  if (s != SETUN_OK) return s;
  const st_moe *m = r->moe;
  if (r->model->on_experts) {
    r->model->on_experts(layer, n, m->wanted, m->counts, m->n_wanted, r->model->experts_user);
  }
  r->model->backend->clear(r->queue, r->branch, n, h->n_embd);
  if (r->model->supply && r->model->supply->want) {
    s = supplied_experts(r, layer, n, err);
  } else if (n == 1) {
    for (uint32_t i = 0; i < h->n_expert_used; i++) r->moe->places[i] = i;
    one_token(r, l, h->n_expert_used);
    add_outputs(r, 0, h->n_expert_used);
  } else {
    many_tokens(r, l);
  }
  return s;
}

setun_status st_moe_forward(st_run *r, uint32_t layer, uint32_t n, setun_error *err) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_layer *l = &r->model->layers[layer];
  b->norm_into(r->queue, r->x, n, h->n_embd, l->vector[ST_FFN_NORM], h->norm_eps, r->moe->normed);
  route(r, l, r->moe->normed, n);
  setun_status s = SETUN_OK;
  if (is_on_device(r, layer)) {
    experts_on_device(r, layer, n);
  } else {
    s = experts_by_host(r, layer, n, err);
  }
  if (s == SETUN_OK && l->linear[ST_SHARED_GATE].matrix) shared_expert(r, l, n);
  return s;
}
