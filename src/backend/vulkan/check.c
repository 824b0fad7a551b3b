// The check at start: when a device is opened, and when a model's weights and cache are planned for it, small examples
// of what it will compute are compared with the CPU's scalar kernels. Some drivers compute something else. What differs
// is not used, which is logged; a device is refused where nothing else can be used in its place. Each kind is checked
// once in a process.
#include "backend/vulkan/device.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const st_backend st_backend_vulkan;

enum { TOKENS = 5, WIDTH = 256, WIDEST = 512, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 48, POSITIONS = 70 };

// One of the two devices that are compared, with what a trial makes on it.
typedef struct {
  const st_backend *b;
  st_device *device;
  st_queue *queue;
  st_dmatrix *matrix;
  st_dvector *norm, *table;
  st_array *x, *y, *z, *alpha, *beta; // the last two only of recurrent layers
  st_array *part[4];                  // only of experts
  st_cache *cache;
  st_states *states;
  uint8_t *codes; // of the borrowed matrix
  float *out;     // [n_out] the results
  size_t n_out;
  uint32_t width; // of the arrays
} side;

typedef struct {
  st_device *d, *cpu;
  uint32_t width;
  const char *distrusted; // for tests: what counts as different; NULL: nothing
  setun_status status;    // of what is not a difference
  setun_error *err;
} trials;

static void close_side(side *s) {
  const st_backend *b = s->b;
  st_array *arrays[] = {s->x, s->y, s->z, s->alpha, s->beta};
  for (int i = 0; i < 5; i++) {
    if (arrays[i]) b->array_free(arrays[i]);
  }
  for (int i = 0; i < 4; i++) {
    if (s->part[i]) b->array_free(s->part[i]);
  }
  if (s->cache) b->cache_free(s->cache);
  if (s->states) b->states_free(s->states);
  if (s->norm) b->vector_free(s->norm);
  if (s->table) b->vector_free(s->table);
  if (s->matrix) b->matrix_free(s->matrix);
  if (s->queue) b->queue_free(s->queue);
  st_free(s->codes);
  st_free(s->out);
}

// Arrays of random numbers, the same on each side.
static setun_status open_arrays(side *s, setun_error *err) {
  static const st_queue_options options = {.threads = 1, .n_batch = POSITIONS};
  st_array **arrays[] = {&s->x, &s->y, &s->z};
  float *numbers = s->out = st_malloc((size_t)4 * POSITIONS * s->width, sizeof *s->out);
  st_random r;
  st_random_seed(&r, 7);
  for (size_t i = 0; numbers && i < POSITIONS * s->width; i++) numbers[i] = (float)st_random_unit(&r) * 2 - 1;
  if (!numbers) return st_fail_memory(err, "the check of a device");
  setun_status status = s->b->queue_new(s->device, &options, &s->queue, err);
  for (int i = 0; i < 3 && status == SETUN_OK; i++) {
    status = s->b->array_new(s->queue, POSITIONS, s->width, arrays[i], err);
    if (status == SETUN_OK) status = s->b->write(s->queue, *arrays[i], 0, POSITIONS * s->width, numbers, err);
  }
  if (status == SETUN_OK) status = s->b->vector_new(s->device, numbers, s->width, &s->norm, err);
  if (status == SETUN_OK) status = s->b->vector_new(s->device, numbers, POSITIONS * HEAD_DIM, &s->table, err);
  return status;
}

// Adds the first n tokens of an array to the results.
static setun_status take(side *s, const st_array *a, uint32_t n, setun_error *err) {
  float *to = s->out + s->n_out;
  s->n_out += (size_t)n * s->width;
  return s->b->read(s->queue, a, 0, (size_t)n * s->width, to, err);
}

// Whether the largest difference of the results, relative to the largest number, is more than allowed, or one of them
// is not finite.
static bool differ(const side *a, const side *b, double allowed) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a->n_out; i++) {
    double off = fabs((double)a->out[i] - b->out[i]), size = fabs((double)b->out[i]);
    if (!isfinite(off)) return true;
    if (off > most) most = off;
    if (size > largest) largest = size;
  }
  return most > allowed * largest;
}

// Runs a trial on the device and on the CPU; true where the results differ.
typedef setun_status (*trial_fn)(side *s, const void *what, setun_error *err);
static bool compare(trials *t, const char *name, trial_fn run, const void *what, double allowed) {
  side sides[] = {{.b = &st_backend_vulkan, .device = t->d, .width = t->width},
                  {.b = st_backend_at(0), .device = t->cpu, .width = t->width}};
  for (int i = 0; i < 2 && t->status == SETUN_OK; i++) t->status = run(&sides[i], what, t->err);
  bool different = t->status == SETUN_OK && differ(&sides[0], &sides[1], allowed);
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
  return t->status == SETUN_OK && (different || (t->distrusted && !strcmp(t->distrusted, name)));
}

// ---- products -----------------------------------------------------------------------------------------------------

// Random trits and scales.
static void make_trits(st_random *r, uint32_t width, int8_t *trits, float *scales) {
  for (size_t i = 0; i < (size_t)width * width; i++) {
    trits[i] = (int8_t)((int)(st_random_u64(r) % 3) - 1);
    scales[i] = 0.5f + (float)(st_random_u64(r) % 256) / 256; // half precision holds it
  }
}

// Random numbers in the format, as the matrix takes them: as stored, or as floats.
static void make_numbers(st_random *r, uint32_t width, const st_format *f, st_rows rows, float *numbers, void *stored) {
  const st_shape shape = {width, width};
  const st_strip all = st_format_locate(f, shape, 0, width);
  for (size_t i = 0; i < (size_t)width * width; i++) numbers[i] = (float)st_random_unit(r) * 2 - 1;
  if (f->ops->encode) {
    f->ops->encode(f, shape, &all, numbers, stored);
  } else { // any bytes
    uint8_t *bytes = stored;
    for (uint64_t i = 0; i < all.bytes; i++) bytes[i] = (uint8_t)st_random_u64(r);
    st_format_bound_scales(f, bytes, (size_t)all.bytes);
  }
  if (rows == ST_ROWS_FLOAT) f->ops->decode(f, shape, &all, stored, numbers);
}

static setun_status fill(side *s, const st_matrix_desc *desc, setun_error *err) {
  st_rows rows = s->b->matrix_info(s->device, desc).rows;
  size_t n = (size_t)s->width * s->width;
  float *numbers = st_malloc(n, sizeof *numbers);
  void *stored = st_malloc(n, sizeof(float));
  st_matrix_rows all = {.count = s->width, .data = rows == ST_ROWS_FLOAT ? (void *)numbers : stored};
  st_random r;
  st_random_seed(&r, 11);
  setun_status status = numbers && stored ? SETUN_OK : st_fail_memory(err, "the check of a device");
  if (status == SETUN_OK && rows == ST_ROWS_TRITS) {
    make_trits(&r, s->width, stored, numbers);
    all.scales = numbers;
  } else if (status == SETUN_OK) {
    make_numbers(&r, s->width, desc->format, rows, numbers, stored);
  }
  if (status == SETUN_OK) status = s->b->matrix_write(s->matrix, &all, err);
  st_free(numbers);
  st_free(stored);
  return status;
}

// A product, its sum with another array, the product of that, which is prepared when the first ends; two products,
// their gate and the product of that; and rows; of one token and of several.
static setun_status run_products(side *s, const void *what, setun_error *err) {
  const st_matrix_desc *given = what;
  const int32_t ids[TOKENS] = {0, 7, 31, (int32_t)s->width - 1, 3};
  st_matrix_desc desc = *given;
  if (s->b != &st_backend_vulkan) desc.ownership = ST_OWNED;
  setun_status status = s->b->matrix_new(s->device, &desc, &s->matrix, err);
  if (status == SETUN_OK) status = open_arrays(s, err);
  if (status == SETUN_OK && desc.ownership != ST_OWNED) {
    s->codes = st_calloc(1, (size_t)s->b->matrix_info(s->device, &desc).codes);
    if (!s->codes) return st_fail_memory(err, "a trial");
    s->b->matrix_borrow(s->matrix, s->codes);
  }
  if (status == SETUN_OK) status = fill(s, &desc, err);
  for (uint32_t n = 1; n <= TOKENS && status == SETUN_OK; n += TOKENS - 1) {
    const st_linear_out first = {.matrix = s->matrix, .dst = s->y}, second = {.matrix = s->matrix, .dst = s->z};
    s->b->linear(s->queue, s->x, 0, n, s->norm, 1e-5f, &first, 1);
    s->b->add(s->queue, s->x, s->y, n, s->width, 0.01f);
    s->b->linear(s->queue, s->x, 0, n, s->norm, 1e-5f, &second, 1);
    status = take(s, s->z, n, err);
    if (status != SETUN_OK) break;
    const st_linear_out both[] = {first, second};
    s->b->linear(s->queue, s->x, 0, n, NULL, 0, both, 2);
    s->b->glu(s->queue, ST_FN_RELU2, s->y, s->z, n, s->width, s->y);
    s->b->linear(s->queue, s->y, 0, n, s->norm, 1e-5f, &second, 1);
    status = take(s, s->z, n, err);
  }
  if (status == SETUN_OK) s->b->embed(s->queue, s->matrix, ids, TOKENS, 1, s->y, 0);
  return status == SETUN_OK ? take(s, s->y, TOKENS, err) : status;
}

// VALUES are named as their formats.
static const char *const form_names[] = {
    [ST_VK_F32] = "float32 weights",  [ST_VK_F16] = "half-precision weights", [ST_VK_BF16] = "bfloat16 weights",
    [ST_VK_TRITS2] = "2-bit weights", [ST_VK_TRITS5] = "1.6-bit weights",     [ST_VK_BLOCKS2] = "2-bit blocks"};

static void warn(const st_device *d, const char *what) {
  st_log_write(&d->log, SETUN_LOG_WARNING, "%s: %s", d->traits.name, what);
}

// The products of a matrix; false: they differ whatever is avoided. The order is that of what is avoided first.
static bool try_products(trials *t, const char *name, const st_matrix_desc *desc) {
  const double allowed = desc->precision == ST_PRECISION_INT8 ? 2e-2 : 1e-4; // a code of an input may differ
  st_device *d = t->d;
  bool dots = d->traits.dots, tails = d->tails;
  for (int attempt = 0; attempt < 4; attempt++) {
    bool uses_tails = tails && !(attempt & 1), uses_dots = dots && attempt < 2;
    d->tails = uses_tails, d->traits.dots = uses_dots;
    bool different = compare(t, name, run_products, desc, allowed);
    if (t->distrusted && uses_tails) different = different || !strcmp(t->distrusted, "tails");
    if (t->distrusted && uses_dots) different = different || !strcmp(t->distrusted, "dots");
    if (t->status != SETUN_OK || !different) break;
    if (attempt == 3) return false;
  }
  if (tails && !d->tails) warn(d, "inputs prepared at the end of products are wrong, and are not used");
  if (dots && !d->traits.dots) warn(d, "its instructions for products of bytes give wrong results, and are not used");
  return true;
}

static void try_form(trials *t, st_vk_form form, bool int8) {
  st_device *d = t->d;
  st_matrix_desc desc = {.shape = {WIDTH, WIDTH}};
  if (!st_vk_desc_of(form, int8, &desc) || try_products(t, form_names[form], &desc) || t->status != SETUN_OK) return;
  if (form == ST_VK_F16 || form == ST_VK_BF16 || form == ST_VK_TRITS5) {
    d->lost_forms |= 1u << form;
    st_log_write(&d->log, SETUN_LOG_WARNING, "%s: products of %s are wrong; these are stored in another form",
                 d->traits.name, form_names[form]);
    return;
  }
  t->status = st_fail(t->err, SETUN_ERROR_UNSUPPORTED, "%s cannot be used: its products of %s differ from the CPU's",
                      d->traits.name, form_names[form]);
}

static void try_format(trials *t, const st_format *f) {
  st_device *d = t->d;
  t->width = WIDTH % f->block ? WIDEST : WIDTH;
  const st_matrix_desc desc = {.format = f, .shape = {t->width, t->width}};
  if (try_products(t, f->name, &desc) || t->status != SETUN_OK) return;
  d->lost_formats[f->id] = true;
  st_log_write(&d->log, SETUN_LOG_WARNING, "%s: products of %s weights are wrong; these are stored as float32",
               d->traits.name, f->name);
}

// ---- other operations ---------------------------------------------------------------------------------------------

// Queries and keys rotated, keys and values stored, attention over two pages.
static setun_status run_attention(side *s, const void *what, setun_error *err) {
  const setun_kv_type *kv = what;
  const uint32_t pages[] = {1, 0};
  const st_token_run run = {.n = POSITIONS, .pages = pages, .stride = 2};
  const st_batch batch = {&run, 1, POSITIONS};
  const st_cache_shape shape = {2, POSITIONS, HEADS, KV_HEADS, HEAD_DIM, kv[0], kv[1]};
  setun_status status = open_arrays(s, err);
  if (status == SETUN_OK) status = s->b->cache_new(s->queue, &shape, &s->cache, err);
  if (status != SETUN_OK) return status;
  st_rope_args rope = {.heads = HEADS, .head_dim = HEAD_DIM, .n_rot = HEAD_DIM, .table = s->table, .most = UINT32_MAX};
  s->b->rope(s->queue, s->x, &batch, &rope, s->x);
  rope.heads = KV_HEADS;
  s->b->rope(s->queue, s->y, &batch, &rope, s->y);
  s->b->cache_write(s->queue, s->cache, 0, &batch, s->y, s->z);
  const st_attend_args attend = {.n_head = HEADS, .window = 66, .scale = 0.3f, .q = s->x, .dst = s->z};
  s->b->attend(s->queue, s->cache, &batch, &attend);
  return take(s, s->z, POSITIONS, err);
}

static setun_status run_gate(side *s, const void *what, setun_error *err) {
  setun_status status = open_arrays(s, err);
  if (status != SETUN_OK) return status;
  s->b->rmsnorm(s->queue, s->y, TOKENS, HEADS, WIDTH / HEADS, s->norm, 1e-5f);
  s->b->glu(s->queue, *(const st_activation_fn *)what, s->x, s->y, TOKENS, WIDTH, s->z);
  return take(s, s->z, TOKENS, err);
}

// Two turns of a recurrent layer's convolution and delta rule, the second from the first one's state.
static setun_status run_recurrent(side *s, const void *what, setun_error *err) {
  enum { KEY_HEADS = 1, VALUE_HEADS = 2, DIM = 32, TAPS = 4 };
  const st_state_shape shape = {1, 1, KEY_HEADS, VALUE_HEADS, DIM, DIM, TAPS, false};
  (void)what;
  setun_status status = open_arrays(s, err);
  if (status == SETUN_OK) status = s->b->array_new(s->queue, TOKENS, WIDTH, &s->alpha, err);
  if (status == SETUN_OK) status = s->b->array_new(s->queue, TOKENS, WIDTH, &s->beta, err);
  if (status == SETUN_OK) status = s->b->states_new(s->queue, &shape, &s->states, err);
  for (int turn = 0; turn < 2 && status == SETUN_OK; turn++) {
    const st_token_run run = {.n = TOKENS, .state_from = turn ? 0 : ST_NO_STATE, .state_to = 0};
    const st_batch batch = {&run, 1, TOKENS};
    const st_delta_args delta = {
        .mixed = s->y, .alpha = s->alpha, .beta = s->beta, .rate = s->norm, .bias = s->norm, .dst = s->z};
    const st_columns all = {.n = WIDTH, .count = 1}, later = {.from = 9, .n = VALUE_HEADS, .count = 1};
    s->b->copy_columns(s->queue, s->x, TOKENS, &all, s->alpha); // which a turn changes
    s->b->copy_columns(s->queue, s->x, TOKENS, &later, s->beta);
    s->b->convolve(s->queue, s->states, 0, &batch, s->x, s->table, s->y);
    s->b->delta(s->queue, s->states, &batch, &delta);
    status = take(s, s->z, TOKENS, err);
  }
  return status;
}

static setun_status run_rows(side *s, const void *what, setun_error *err) {
  const uint32_t tokens[TOKENS] = {3, 0, 3, 1, 4};
  const float weights[TOKENS] = {1, 2, -1, 0.5f, 3};
  const st_hadamard_args turned = {.width = WIDTH, .block = WIDTH / 4, .norm = s->norm, .eps = 1e-5f, .after = s->norm};
  const st_columns columns = {.from = 1, .from_step = 60, .to = 5, .to_step = 50, .n = 20, .count = 3};
  int32_t largest[TOKENS] = {0};
  uint32_t order[WIDTH];
  (void)what;
  setun_status status = open_arrays(s, err);
  if (status != SETUN_OK) return status;
  s->b->gather(s->queue, s->x, tokens, TOKENS, WIDTH, s->y);
  s->b->scatter_add(s->queue, s->y, tokens, weights, TOKENS, WIDTH, s->x);
  s->b->copy_columns(s->queue, s->x, TOKENS, &columns, s->y);
  s->b->clip(s->queue, s->y, TOKENS, WIDTH, 0.9f);
  s->b->clear(s->queue, s->z, 2, WIDTH);
  s->b->add(s->queue, s->y, s->z, TOKENS, WIDTH, 0.5f);
  for (uint32_t i = 0; i < WIDTH; i++) order[i] = (i + 3) * 5 % WIDTH;
  s->b->hadamard(s->queue, s->y, 0, TOKENS, &turned, s->y);
  s->b->reorder(s->queue, s->y, 1, TOKENS - 1, WIDTH, order, s->z);
  status = s->b->argmax(s->queue, s->x, TOKENS, WIDTH, largest, err);
  if (status == SETUN_OK) status = take(s, s->z, TOKENS, err);
  for (int i = 0; i < TOKENS; i++) s->out[s->n_out++] = (float)largest[i];
  return status;
}

enum { EXPERTS = 9, USED = 3 };

// The choice of a router of each kind, and a sum of rows by it.
static setun_status run_choices(side *s, const void *what, setun_error *err) {
  (void)what;
  setun_status status = open_arrays(s, err);
  for (st_router router = ST_ROUTER_ALL; router <= ST_ROUTER_SIGMOID && status == SETUN_OK; router++) {
    const st_route_args args = {EXPERTS, USED, router, true};
    s->b->route(s->queue, s->x, TOKENS, &args, s->y);
    s->b->add_chosen(s->queue, s->z, s->y, TOKENS, USED, s->width, s->x);
    status = take(s, s->y, TOKENS, err);
    if (status == SETUN_OK) status = take(s, s->z, TOKENS, err);
  }
  return status;
}

// The same for the CPU, which is called for each expert. All have one matrix, but not the same bias.
static setun_status run_each(side *s, uint32_t n, const st_dvector *const *bias, setun_error *err) {
  float chosen[2 * USED];
  setun_status status = SETUN_OK;
  s->b->clear(s->queue, s->z, n, s->width);
  for (uint32_t t = 0; t < n && status == SETUN_OK; t++) {
    status = s->b->read(s->queue, s->y, t, 2 * USED, chosen, err);
    for (int i = 0; i < USED && status == SETUN_OK; i++) {
      const st_dvector *own = bias[(int)chosen[2 * i] % 2];
      const st_linear_out inner[] = {{.matrix = s->matrix, .bias = own, .dst = s->part[0]},
                                     {.matrix = s->matrix, .bias = own, .dst = s->part[1]}},
                          outer = {.matrix = s->matrix, .bias = own, .dst = s->part[2]};
      s->b->linear(s->queue, s->x, t, 1, NULL, 0, inner, 2);
      s->b->glu(s->queue, ST_FN_SILU, s->part[0], s->part[1], 1, s->width, s->part[0]);
      s->b->linear(s->queue, s->part[0], 0, 1, NULL, 0, &outer, 1);
      s->b->scatter_add(s->queue, s->z, &t, &chosen[2 * i + 1], 1, s->width, s->part[2]);
    }
  }
  return status;
}

static setun_status run_chosen(side *s, uint32_t n, const st_dvector *const *bias, setun_error *err) {
  st_expert_weights list[EXPERTS];
  st_dexperts *experts = NULL;
  for (int i = 0; i < EXPERTS * ST_EXPERT_MATRICES; i++) {
    list[i / ST_EXPERT_MATRICES].matrix[i % ST_EXPERT_MATRICES] = s->matrix;
    list[i / ST_EXPERT_MATRICES].bias[i % ST_EXPERT_MATRICES] = bias[i / ST_EXPERT_MATRICES % 2];
  }
  setun_status status = s->b->experts_new(s->device, list, EXPERTS, &experts, err);
  if (status != SETUN_OK || !experts) return status; // without a table the results differ from the CPU's
  s->b->experts(s->queue, &(st_experts_args){.experts = experts,
                                             .x = s->x,
                                             .chosen = s->y,
                                             .n = n,
                                             .used = USED,
                                             .fn = ST_FN_SILU,
                                             .gate = s->part[0],
                                             .up = s->part[1],
                                             .out = s->part[2],
                                             .part = s->part[3],
                                             .rows = TOKENS * USED,
                                             .dst = s->z});
  status = s->b->finish(s->queue, err);
  s->b->experts_free(experts);
  return status;
}

// Experts of one token, and of several.
static setun_status run_experts(side *s, const void *what, setun_error *err) {
  st_matrix_desc desc = {.shape = {s->width, s->width}};
  const st_route_args route = {EXPERTS, USED, ST_ROUTER_ALL, true};
  (void)what;
  if (!st_vk_desc_of(ST_VK_F32, false, &desc)) return SETUN_OK;
  setun_status status = s->b->matrix_new(s->device, &desc, &s->matrix, err);
  if (status == SETUN_OK) status = fill(s, &desc, err);
  if (status == SETUN_OK) status = open_arrays(s, err);
  for (int i = 0; i < 4 && status == SETUN_OK; i++)
    status = s->b->array_new(s->queue, TOKENS * USED, s->width, &s->part[i], err);
  const st_dvector *const bias[] = {NULL, s->norm};
  for (uint32_t n = 1; n <= TOKENS && status == SETUN_OK; n += TOKENS - 1) {
    s->b->route(s->queue, s->x, n, &route, s->y);
    status = (s->b == &st_backend_vulkan ? run_chosen : run_each)(s, n, bias, err);
    if (status == SETUN_OK) status = take(s, s->z, n, err);
  }
  return status;
}

static void try_operation(trials *t, const char *name, trial_fn run, const void *what, double allowed) {
  if (t->status != SETUN_OK || !compare(t, name, run, what, allowed)) return;
  t->status = st_fail(t->err, SETUN_ERROR_UNSUPPORTED, "%s cannot be used: its results for %s differ from the CPU's",
                      t->d->traits.name, name);
}

static void try_experts(trials *t) {
  if (t->status != SETUN_OK || !compare(t, "experts", run_experts, NULL, 1e-4)) return;
  t->d->lost_experts = true;
  warn(t->d, "products of experts that it chooses are wrong; the host calls them");
}

// Keys and values in these formats. The CPU rounds queries and factors too where they are codes.
static void try_cache(trials *t, setun_kv_type keys, setun_kv_type values) {
  static const double allowed[] = {
      [SETUN_KV_F16] = 1e-4, [SETUN_KV_F32] = 1e-4, [SETUN_KV_Q8] = 1e-3, [SETUN_KV_Q4] = 5e-2};
  const setun_kv_type kv[] = {keys, values};
  double most = allowed[keys] > allowed[values] ? allowed[keys] : allowed[values];
  try_operation(t, "attention", run_attention, kv, most);
}

static void try_operations(trials *t) {
  for (st_activation_fn fn = ST_FN_SILU; fn <= ST_FN_SILU_CLAMPED; fn++)
    try_operation(t, "norms and gates", run_gate, &fn, 1e-4);
  try_operation(t, "rows", run_rows, NULL, 1e-4);
  try_operation(t, "choices", run_choices, NULL, 1e-5);
}

// ---- memory of what was found -------------------------------------------------------------------------------------

enum {
  KIND_OPERATIONS,
  KIND_STATES,
  KIND_EXPERTS,
  KIND_CACHES,
  KIND_FORMS = KIND_CACHES + 16,
  KIND_FORMATS = KIND_FORMS + 2 * ST_VK_VALUES,
  KINDS = KIND_FORMATS + ST_FORMAT_COUNT
};

// What was found about a device, which its driver's identity tells from others.
typedef struct {
  uint8_t identity[ST_VK_IDENTITY];
  bool done[KINDS]; // the kinds that were checked
  bool used, dots, tails, lost_experts;
  uint32_t lost_forms;
  bool lost_formats[ST_FORMAT_COUNT];
} verdict;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static verdict verdicts[ST_VK_DEVICES];
static _Thread_local bool checking; // a check asks about its own matrices

// The device's verdict, or a new one; NULL: the table is full, so that each check is repeated.
static verdict *verdict_of(const st_device *d) {
  for (size_t i = 0; i < ST_VK_DEVICES; i++) {
    verdict *v = &verdicts[i];
    if (!v->used) {
      v->used = true;
      memcpy(v->identity, d->traits.identity, sizeof v->identity);
      v->dots = d->traits.dots, v->tails = d->tails;
    }
    if (!memcmp(v->identity, d->traits.identity, sizeof v->identity)) return v;
  }
  return NULL;
}

static void check_kind(trials *t, int kind) {
  if (kind == KIND_OPERATIONS)
    try_operations(t);
  else if (kind == KIND_STATES)
    try_operation(t, "recurrent layers", run_recurrent, NULL, 1e-4);
  else if (kind == KIND_EXPERTS)
    try_experts(t);
  else if (kind < KIND_FORMS)
    try_cache(t, (setun_kv_type)((kind - KIND_CACHES) / 4), (setun_kv_type)((kind - KIND_CACHES) % 4));
  else if (kind >= KIND_FORMATS)
    try_format(t, st_format_get((st_format_id)(kind - KIND_FORMATS)));
  else
    try_form(t, (st_vk_form)((kind - KIND_FORMS) / 2), (kind - KIND_FORMS) % 2);
}

static setun_status check(st_device *d, int kind, setun_error *err) {
  const st_backend *cpu = st_backend_at(0);
  trials t = {.d = d, .width = WIDTH, .distrusted = d->distrusted, .err = err};
  if (checking) return SETUN_OK;
  pthread_mutex_lock(&lock);
  verdict *v = d->distrusted ? NULL : verdict_of(d);
  if (v) {
    d->traits.dots = v->dots, d->tails = v->tails, d->lost_forms = v->lost_forms, d->lost_experts = v->lost_experts;
    memcpy(d->lost_formats, v->lost_formats, sizeof d->lost_formats);
  }
  if (!v || !v->done[kind]) {
    checking = true;
    t.status = cpu->device_new(&(st_device_options){.isa = cpu->isa_name(0)}, &t.cpu, err);
    if (t.status == SETUN_OK) {
      check_kind(&t, kind);
      cpu->device_free(t.cpu);
    }
    checking = false;
    if (t.status == SETUN_OK && v) {
      v->done[kind] = true;
      memcpy(v->lost_formats, d->lost_formats, sizeof v->lost_formats);
      v->dots = d->traits.dots, v->tails = d->tails, v->lost_forms = d->lost_forms, v->lost_experts = d->lost_experts;
    }
  }
  pthread_mutex_unlock(&lock);
  return t.status;
}

setun_status st_vk_check(st_device *d, setun_error *err) {
  return check(d, KIND_OPERATIONS, err);
}

setun_status st_vk_check_cache(st_device *d, setun_kv_type keys, setun_kv_type values, setun_error *err) {
  return check(d, KIND_CACHES + 4 * (int)keys + (int)values, err);
}

setun_status st_vk_check_format(st_device *d, const st_format *f, setun_error *err) {
  return check(d, KIND_FORMATS + (int)f->id, err);
}

setun_status st_vk_check_states(st_device *d, setun_error *err) {
  return check(d, KIND_STATES, err);
}

setun_status st_vk_check_experts(st_device *d, setun_error *err) {
  return check(d, KIND_EXPERTS, err);
}

setun_status st_vk_check_form(st_device *d, st_vk_form form, bool int8, setun_error *err) {
  return check(d, KIND_FORMS + 2 * (int)form + int8, err);
}
