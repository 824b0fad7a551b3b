// Products with adapters: the first of an adapter's two matrices takes the same input as the matrix that it adapts, so
// they share one product; the second one's result is added to the output.
#include "model/product.h"

#include "base/memory.h"
#include "model/run_arrays.h"

struct st_products {
  st_linear_out *outs; // [2 * most]
  st_array *low;       // [max(4 n_batch, most), max_rank] outputs of first matrices
  st_array *added;     // [n_batch, max_lora_rows] output of a second matrix
  st_array *head;      // [n_logits, n_vocab] the same for the head; NULL: not adapted
  st_array *input;     // [n_batch, widest input] where it is normalized separately; NULL: never
  st_array *rotated;   // [n_batch, widest such input] in another basis; NULL: no matrix has one
  uint32_t *tokens;    // [n_batch] tokens to add to
  float *scales;       // [n_batch] factors: the run's scale
};

enum { PRODUCT_ARRAYS = 5 };

static void list_arrays(const st_run *r, uint32_t most, st_products *p, st_run_array list[PRODUCT_ARRAYS]) {
  const st_model *m = r->model;
  size_t n = r->n_batch, low = 4 * n > most ? 4 * n : most; // at most four outputs of many tokens, or `most` of one
  const st_run_array all[PRODUCT_ARRAYS] = {
      {&p->low, m->max_rank ? low : 0, m->max_rank},
      {&p->added, m->max_rank && m->max_lora_rows ? n : 0, m->max_lora_rows},
      {&p->head, m->max_rank && m->lora_head ? r->n_logits : 0, m->h.n_vocab},
      {&p->input, m->max_normed_columns ? n : 0, m->max_normed_columns},
      {&p->rotated, m->max_rotated_columns ? n : 0, m->max_rotated_columns},
  };
  for (int i = 0; i < PRODUCT_ARRAYS; i++) list[i] = all[i];
}

setun_status st_products_new(const st_run *r, uint32_t most, st_products **products, setun_error *err) {
  st_products *p = st_calloc(1, sizeof *p);
  if (!p) return st_fail_memory(err, "the session's products");
  setun_status s = SETUN_OK;
  p->outs = st_malloc((size_t)2 * most, sizeof *p->outs);
  p->tokens = st_malloc(r->n_batch, sizeof *p->tokens);
  p->scales = st_malloc(r->n_batch, sizeof *p->scales);
  if (!p->outs || !p->tokens || !p->scales) s = st_fail_memory(err, "the session's products");
  st_run_array list[PRODUCT_ARRAYS];
  list_arrays(r, most, p, list);
  if (s == SETUN_OK) s = st_run_arrays_new(r, list, PRODUCT_ARRAYS, err);
  if (s == SETUN_OK) {
    *products = p;
  } else {
    st_products_free(r, p);
  }
  return s;
}

void st_products_free(const st_run *r, st_products *p) {
  if (!p) return;
  st_run_array list[PRODUCT_ARRAYS];
  list_arrays(r, 0, p, list);
  st_run_arrays_free(r, list, PRODUCT_ARRAYS);
  st_free(p->outs);
  st_free(p->tokens);
  st_free(p->scales);
  st_free(p);
}

// The pair of factors that adapts a matrix; NULL: not adapted.
static const st_lora_pair *pair_of(const st_run *r, const st_linear *l) {
  const st_lora_pair *pair = r->lora ? &r->lora->pairs[l->number] : NULL;
  return pair && pair->a ? pair : NULL;
}

// dst[row + t] += scale * B low[at + t].
static void add_adapter(st_run *r, const st_product *out, const st_lora_pair *pair, uint32_t at, uint32_t n) {
  const st_backend *b = r->model->backend;
  st_products *p = r->products;
  st_array *added = out->linear->number == ST_LORA_HEAD ? p->head : p->added;
  const st_linear_out second = {.matrix = pair->b, .dst = added};
  b->linear(r->queue, p->low, at, n, NULL, 0, &second, 1);
  for (uint32_t t = 0; t < n; t++) {
    p->tokens[t] = out->row + t;
    p->scales[t] = r->lora_scale;
  }
  b->scatter_add(r->queue, out->dst, p->tokens, p->scales, n, pair->rows, added);
}

// Matrices with their own norms: each has a separate input.
static void multiply_normed(st_run *r, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                            const st_product *outs, int count) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  st_products *p = r->products;
  uint32_t columns = outs[0].linear->columns;
  for (uint32_t t = 0; t < n; t++) p->tokens[t] = first + t;
  b->gather(r->queue, x, p->tokens, n, columns, p->input);
  if (norm) b->rmsnorm(r->queue, p->input, n, 1, columns, norm, h->norm_eps);
  for (int i = 0; i < count; i++) {
    const st_linear *l = outs[i].linear;
    const st_linear_out out = {
        .matrix = l->matrix, .bias = l->bias, .dst = outs[i].dst, .row = outs[i].row, .column = l->first_row};
    const st_lora_pair *pair = pair_of(r, l);
    b->linear(r->queue, p->input, 0, n, l->norm, h->linear_norm_eps, &out, 1);
    if (!pair) continue;
    const st_linear_out low = {.matrix = pair->a, .dst = p->low, .row = (uint32_t)i * n};
    b->linear(r->queue, p->input, 0, n, NULL, 0, &low, 1); // an adapter takes the input before the norm
  }
}

// Lists the matrices whose inputs are in that basis; for plain inputs also the adapters, whose inputs are always plain.
// Returns the number of outputs in p->outs.
static int list_outs(st_run *r, const st_product *outs, int count, uint32_t n, const st_basis *basis) {
  st_products *p = r->products;
  int all = 0;
  for (int i = 0; i < count; i++) {
    const st_linear *l = outs[i].linear;
    if (l->basis != basis) continue;
    p->outs[all++] = (st_linear_out){
        .matrix = l->matrix, .bias = l->bias, .dst = outs[i].dst, .row = outs[i].row, .column = l->first_row};
  }
  for (int i = 0; i < count && !basis; i++) {
    const st_lora_pair *pair = pair_of(r, outs[i].linear);
    if (pair) p->outs[all++] = (st_linear_out){.matrix = pair->a, .dst = p->low, .row = (uint32_t)i * n};
  }
  return all;
}

// The input in a basis, in p->rotated.
static void change_basis(st_run *r, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                         const st_basis *basis) {
  const st_backend *b = r->model->backend;
  st_products *p = r->products;
  float eps = r->model->h.norm_eps;
  if (!basis->order) {
    const st_hadamard_args args = {
        .width = basis->width, .block = basis->block, .norm = norm, .eps = eps, .before = basis->signs};
    b->hadamard(r->queue, x, first, n, &args, p->rotated);
  } else if (!norm) {
    b->reorder(r->queue, x, first, n, basis->width, basis->order, p->rotated);
  } else {
    for (uint32_t t = 0; t < n; t++) p->tokens[t] = first + t;
    b->gather(r->queue, x, p->tokens, n, basis->width, p->input);
    b->rmsnorm(r->queue, p->input, n, 1, basis->width, norm, eps);
    b->reorder(r->queue, p->input, 0, n, basis->width, basis->order, p->rotated);
  }
}

// Matrices with one input share its other bases, each of which is made once.
static void multiply_rotated(st_run *r, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                             const st_product *outs, int count) {
  st_products *p = r->products;
  for (int i = 0; i < count; i++) {
    const st_basis *basis = outs[i].linear->basis;
    bool seen = !basis;
    for (int j = 0; j < i; j++) seen = seen || outs[j].linear->basis == basis;
    if (seen) continue;
    change_basis(r, x, first, n, norm, basis);
    int all = list_outs(r, outs, count, n, basis);
    r->model->backend->linear(r->queue, p->rotated, 0, n, NULL, 0, p->outs, all);
  }
}

// Shows an input to the tap, once for the matrices that share it; those with norms of their own have one each.
static void show_input(st_run *r, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                       const st_product *outs, int count) {
  const st_backend *b = r->model->backend;
  const st_linear *linears[4];
  uint32_t columns = outs[0].linear->columns;
  st_array *input = columns ? r->tap->room(r->tap->context, columns) : NULL;
  if (!input) return;
  for (int i = 0; i < count;) {
    const st_dvector *own = outs[i].linear->norm;
    int same = 0;
    for (; i < count && same < 4 && outs[i].linear->norm == own; i++) linears[same++] = outs[i].linear;
    for (uint32_t t = 0; t < n; t++) r->products->tokens[t] = first + t;
    b->gather(r->queue, x, r->products->tokens, n, columns, input);
    if (norm) b->rmsnorm(r->queue, input, n, 1, columns, norm, r->model->h.norm_eps);
    if (own) b->rmsnorm(r->queue, input, n, 1, columns, own, r->model->h.linear_norm_eps);
    r->tap->see(r->tap->context, linears, same, input, n);
  }
}

void st_multiply(st_run *r, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                 const st_product *outs, int count) {
  st_products *p = r->products;
  if (r->tap) show_input(r, x, first, n, norm, outs, count);
  bool normed = false;
  for (int i = 0; i < count; i++) normed = normed || outs[i].linear->norm;
  if (normed) {
    multiply_normed(r, x, first, n, norm, outs, count);
  } else {
    int plain = list_outs(r, outs, count, n, NULL);
    if (plain) r->model->backend->linear(r->queue, x, first, n, norm, r->model->h.norm_eps, p->outs, plain);
    multiply_rotated(r, x, first, n, norm, outs, count);
  }
  for (int i = 0; i < count; i++) {
    const st_lora_pair *pair = pair_of(r, outs[i].linear);
    if (pair) add_adapter(r, &outs[i], pair, (uint32_t)i * n, n);
  }
}
