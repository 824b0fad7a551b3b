// Products, embeddings and norms.
#include "backend/vulkan/device.h"

#include <string.h>

enum { WIDE = 128 };  // invocations of a workgroup that takes a whole token
enum { NARROW = 64 }; // of a workgroup whose subgroups take rows, unless these are wider
enum { ROWS = 8 };    // of a workgroup, see shaders/outputs.glsl
enum { GATE_CONSTANT = 8 };
enum { CODES = 160 }; // columns of prepared tokens are padded to this: 8 words of 20, 10 of 16

static uint32_t code_words(uint32_t columns) {
  return (columns + CODES - 1) / CODES * (CODES / 4);
}

// ---- norms --------------------------------------------------------------------------------------------------------

typedef struct {
  VkDeviceAddress x, norm, dst;
  uint32_t x_stride, dst_stride, width, tokens;
  float eps;
  uint32_t pad;
} norm_push;

static void run_norm(st_queue *q, const norm_push *push, uint32_t heads, const st_array *x, st_vk_use *dst) {
  const st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  st_vk_op op = st_vk_op_of(ST_VK_NORM, &special, push, sizeof *push, (st_vk_groups){heads, push->tokens});
  st_vk_op_uses(&op, ST_VK_READS(x));
  st_vk_op_uses(&op, (st_vk_access){dst, true});
  op.written = (uint64_t)push->tokens * heads * push->width * sizeof(float);
  op.read = op.written + push->width * sizeof(float);
  st_vk_run(q, &op);
}

static void normalize(st_queue *q, const st_array *x, uint32_t n, uint32_t heads, uint32_t width,
                      const st_dvector *norm, float eps, st_array *dst) {
  if (!st_vk_begin(q)) return;
  const norm_push push = {.x = x->data.address,
                          .norm = norm->values.address,
                          .dst = dst->data.address,
                          .x_stride = (uint32_t)x->width,
                          .dst_stride = (uint32_t)dst->width,
                          .width = width,
                          .tokens = n,
                          .eps = eps};
  run_norm(q, &push, heads, x, &dst->use);
}

void st_vk_rmsnorm(st_queue *q, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                   float eps) {
  normalize(q, x, n, heads, width, norm, eps, x);
}

void st_vk_norm_into(st_queue *q, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                     st_array *dst) {
  normalize(q, x, n, 1, width, norm, eps, dst);
}

// ---- embeddings ---------------------------------------------------------------------------------------------------

typedef struct {
  VkDeviceAddress codes, scales, ids, dst;
  uint32_t dst_stride, columns, row_words, block;
  float scale;
  uint32_t pad;
} embed_push;

void st_vk_embed(st_queue *q, const st_dmatrix *m, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                 uint32_t first) {
  st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  if (m->form == ST_VK_VALUES) st_vk_values_special(&m->values, &special);
  if (!n || !st_vk_begin(q) || !st_vk_stream_room(q, st_vk_matrix_borrows(m))) return;
  const embed_push push = {.codes = st_vk_matrix_codes(q, m),
                           .scales = m->scales.address,
                           .ids = st_vk_upload_copy(q, ids, n * sizeof *ids),
                           .dst = dst->data.address + (VkDeviceAddress)first * dst->width * sizeof(float),
                           .dst_stride = (uint32_t)dst->width,
                           .columns = m->columns,
                           .row_words = m->row_words,
                           .block = m->block,
                           .scale = scale};
  st_vk_op op =
      st_vk_op_of((st_vk_shader)(ST_VK_EMBED_F32 + m->form), &special, &push, sizeof push, (st_vk_groups){n, 1});
  st_vk_op_uses(&op, ST_VK_WRITES(dst));
  op.read = (uint64_t)n * (m->row_words + m->row_scales) * sizeof(uint32_t);
  op.written = (uint64_t)n * m->columns * sizeof(float);
  st_vk_run(q, &op);
}

// ---- products -----------------------------------------------------------------------------------------------------

// The input of some products, prepared: floats of an array or of q->floats, or codes in q->codes.
typedef struct {
  VkDeviceAddress address;
  uint32_t stride; // floats of a token, or words of its codes
  uint32_t columns, tokens;
  const st_vk_use *use;
} input;

// The layouts of `Out` in shaders/outputs.glsl and `Preparation` in prepare.glsl.
enum { BIAS = 1, SUM = 2 };
typedef struct {
  VkDeviceAddress codes, scales, bias, dst, sum;
  uint32_t rows, dst_stride, sum_stride, first_group, flags;
  float factor;
  uint32_t x_row, dst_row, tokens;
} output;
_Static_assert(sizeof(output) == ST_VK_RECORD, "experts.comp writes such records too");

typedef struct {
  VkDeviceAddress x, norm, codes;
  uint32_t columns, stride, normed;
  float eps;
} preparation;

typedef struct {
  VkDeviceAddress x, outs, tail, counter;
  uint32_t count, group, x_stride, columns, row_words, block;
} linear_push;

typedef struct {
  preparation p;
  VkDeviceAddress gate, up;
  uint32_t x_stride, gate_stride, up_stride, pad;
} prepare_push;

// Tokens [first, first + n) of x.
typedef struct {
  const st_array *x;
  uint32_t first, n;
  const st_dvector *norm; // NULL: none
  float eps;
} source;

static VkDeviceAddress token_of(const st_array *a, uint32_t token) {
  return a->data.address + (VkDeviceAddress)token * a->width * sizeof(float);
}

bool st_vk_add_held(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  st_vk_held *held = &q->held;
  output *o = held->output;
  if (held->kind != ST_VK_HELD_LINEAR || !o || held->dst != y || held->n != n || held->width != width) return false;
  for (uint32_t i = 0; i < held->op.n_accesses; i++) {
    if (held->op.accesses[i].use == &x->use) return false; // its input, or added already
  }
  o->sum = x->data.address;
  o->sum_stride = (uint32_t)x->width;
  o->factor = scale;
  o->flags |= SUM;
  held->dst = x;
  held->output = NULL;
  uint64_t bytes = (uint64_t)n * width * sizeof(float);
  held->op.read += bytes, held->op.written += bytes;
  st_vk_op_uses(&held->op, ST_VK_READS(x));
  st_vk_op_uses(&held->op, ST_VK_WRITES(x));
  return true;
}

// Where the result is another array than the gates, these would be lost.
bool st_vk_gate_held(st_queue *q, uint32_t fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
                     st_array *dst) {
  st_vk_held *held = &q->held;
  if (held->kind != ST_VK_HELD_LINEAR || !held->gate || held->gate != gate || held->up != up || dst != gate ||
      held->n != n || held->width != width) {
    return false;
  }
  held->op.special.constants[GATE_CONSTANT] = fn;
  held->op.groups.x /= 2;
  held->gate = held->up = NULL;
  held->dst = dst;
  return true;
}

// Whether what is held makes the whole input of the products.
static bool makes(const st_queue *q, st_vk_holding kind, const source *s, uint32_t columns) {
  const st_vk_held *held = &q->held;
  return held->kind == kind && held->dst == s->x && !s->first && held->n == s->n && held->width == columns;
}

// The product that is held prepares the codes when it ends. False: it cannot.
static bool prepare_in_tail(st_queue *q, const source *s, const preparation *p) {
  st_vk_held *held = &q->held;
  linear_push push;
  if (!makes(q, ST_VK_HELD_LINEAR, s, p->columns) || s->n != 1 || !q->device->tails) return false;
  if (held->op.shader < ST_VK_INT8_TRITS2 || held->op.shader > ST_VK_DOTS_BLOCKS2 || held->op.special.constants[2])
    return false;
  memcpy(&push, held->op.push, sizeof push);
  push.counter = st_vk_ended(q);
  push.tail = st_vk_upload_copy(q, p, sizeof *p);
  if (!push.counter || !push.tail) return false;
  memcpy(held->op.push, &push, sizeof push);
  held->op.special.constants[2] = 1;
  held->op.read += 2 * (uint64_t)p->columns * sizeof(float);
  held->op.written += (p->stride + 4) * sizeof(uint32_t);
  st_vk_op_uses(&held->op, ST_VK_WRITES_TO(q->codes_use));
  st_vk_op_uses(&held->op, ST_VK_WRITES_TO(q->ended_use));
  return true;
}

// The gate that is held becomes a part of the preparation.
static void take_gate(st_queue *q, prepare_push *push, st_vk_op *op) {
  const st_vk_held *held = &q->held;
  push->gate = held->gate->data.address;
  push->up = held->up->data.address;
  push->gate_stride = (uint32_t)held->gate->width;
  push->up_stride = (uint32_t)held->up->width;
  op->special.constants[1] = held->fn;
  st_vk_op_uses(op, ST_VK_READS(held->gate));
  st_vk_op_uses(op, ST_VK_READS(held->up));
  st_vk_op_uses(op, ST_VK_WRITES(held->dst));
  op->read += held->op.read, op->written += held->op.written;
  q->held.kind = ST_VK_NOTHING;
}

static bool prepare_codes(st_queue *q, const source *s, uint32_t columns, input *in) {
  uint32_t stride = code_words(columns);
  const st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  if (!st_vk_grow(q, &q->codes, (uint64_t)s->n * (stride + 4) * sizeof(uint32_t))) return false;
  prepare_push push = {.p = {.x = token_of(s->x, s->first),
                             .norm = s->norm ? s->norm->values.address : 0,
                             .codes = q->codes.address,
                             .columns = columns,
                             .stride = stride,
                             .normed = s->norm != NULL,
                             .eps = s->eps},
                       .x_stride = (uint32_t)s->x->width};
  *in = (input){q->codes.address, stride, columns, s->n, &q->codes_use};
  if (prepare_in_tail(q, s, &push.p)) return true;
  st_vk_op op = st_vk_op_of(ST_VK_PREPARE, &special, &push, sizeof push, (st_vk_groups){s->n, 1});
  bool gated = makes(q, ST_VK_HELD_GATE, s, columns);
  if (gated)
    take_gate(q, &push, &op);
  else if (!st_vk_begin(q))
    return false;
  memcpy(op.push, &push, sizeof push);
  st_vk_op_uses(&op, ST_VK_READS(s->x));
  st_vk_op_uses(&op, ST_VK_WRITES_TO(q->codes_use));
  op.read += gated ? 0 : (uint64_t)s->n * columns * sizeof(float);
  op.read += s->norm ? columns * sizeof(float) : 0;
  op.written += (uint64_t)s->n * (stride + 4) * sizeof(uint32_t);
  st_vk_run(q, &op);
  return true;
}

static bool prepare_floats(st_queue *q, const source *s, uint32_t columns, input *in) {
  *in = (input){token_of(s->x, s->first), (uint32_t)s->x->width, columns, s->n, &s->x->use};
  if (!s->norm) return true;
  if (!st_vk_grow(q, &q->floats, (uint64_t)s->n * columns * sizeof(float))) return false;
  if (!st_vk_begin(q)) return false;
  const norm_push push = {.x = in->address,
                          .norm = s->norm->values.address,
                          .dst = q->floats.address,
                          .x_stride = in->stride,
                          .dst_stride = columns,
                          .width = columns,
                          .tokens = s->n,
                          .eps = s->eps};
  run_norm(q, &push, 1, s->x, &q->floats_use);
  *in = (input){q->floats.address, columns, columns, s->n, &q->floats_use};
  return true;
}

static st_vk_shader shader_for(const st_device *d, const st_dmatrix *m) {
  int form = m->form - ST_VK_TRITS2;
  if (!m->int8) return (st_vk_shader)(ST_VK_FLOAT_F32 + m->form);
  return (st_vk_shader)((d->traits.dots ? ST_VK_DOTS_TRITS2 : ST_VK_INT8_TRITS2) + form);
}

// Whether the products of two matrices are one dispatch.
static bool together(const st_device *d, const st_dmatrix *a, const st_dmatrix *b) {
  return shader_for(d, a) == shader_for(d, b) && a->row_words == b->row_words && a->block == b->block &&
         !memcmp(&a->values, &b->values, sizeof a->values);
}

// Tokens that share a reading of the weights.
static uint32_t tile_of(const input *in) {
  enum { FEW = 4 };
  return in->tokens > 1 ? FEW : 1;
}

// The products of a list of matrices, of which the last piece is held.
static void run_products(st_queue *q, const input *in, const st_dmatrix *m, linear_push push, uint32_t groups,
                         st_vk_op *op) {
  uint32_t tile = tile_of(in), most = q->device->traits.most_groups;
  st_vk_special special = {{st_vk_local(q->device, NARROW), tile}};
  if (m->form == ST_VK_VALUES) st_vk_values_special(&m->values, &special);
  op->shader = shader_for(q->device, m);
  op->special = special;
  op->push_bytes = sizeof push;
  for (; push.group < groups; push.group += most) {
    uint32_t left = groups - push.group;
    op->groups = (st_vk_groups){left < most ? left : most, (in->tokens + tile - 1) / tile};
    memcpy(op->push, &push, sizeof push);
    if (left > most) st_vk_run(q, op), op->read = op->written = 0;
  }
  st_vk_hold(q, ST_VK_HELD_LINEAR, op);
}

static output output_of(st_queue *q, const input *in, const st_linear_out *o, uint32_t first_group) {
  const st_dmatrix *m = o->matrix;
  return (output){.codes = st_vk_matrix_codes(q, m),
                  .scales = m->scales.address,
                  .bias = o->bias ? o->bias->values.address + o->column * sizeof(float) : 0,
                  .dst = o->dst->data.address + ((VkDeviceAddress)o->row * o->dst->width + o->column) * sizeof(float),
                  .rows = m->rows,
                  .dst_stride = (uint32_t)o->dst->width,
                  .first_group = first_group,
                  .flags = o->bias ? BIAS : 0,
                  .tokens = in->tokens};
}

static void count_product(st_vk_op *op, const input *in, const st_linear_out *o) {
  const st_dmatrix *m = o->matrix;
  uint64_t tiles = (in->tokens + tile_of(in) - 1) / tile_of(in);
  op->read += tiles * m->rows * (m->row_words + m->row_scales + (o->bias != NULL)) * sizeof(uint32_t);
  op->written += (uint64_t)in->tokens * m->rows * sizeof(float);
}

static bool shares(const st_device *d, const st_dmatrix *a, const st_dmatrix *b) {
  return a->int8 == b->int8 && together(d, a, b);
}

// Room for the codes of outs[first] and of those that can share its dispatch.
static uint64_t borrowed_by(const st_device *d, const st_linear_out *outs, int first, int count, const bool *done) {
  uint64_t bytes = 0;
  for (int i = first; i < count; i++) {
    if (!done[i] && shares(d, outs[i].matrix, outs[first].matrix)) bytes += st_vk_matrix_borrows(outs[i].matrix);
  }
  return bytes;
}

static bool is_whole(const st_linear_out *o) {
  return !o->row && !o->column;
}

// Notes what the product of a matrix, or of two, is, so that the next operation may become a part of its dispatch.
static void hold_what_may_join(st_queue *q, const input *in, const st_linear_out *const *outs, uint32_t n,
                               output *listed) {
  const st_linear_out *a = outs[0], *b = outs[n - 1];
  if (n > 2 || !is_whole(a) || !is_whole(b) || a->matrix->rows != b->matrix->rows) return;
  q->held.n = in->tokens, q->held.width = a->matrix->rows;
  if (n == 1) {
    q->held.dst = a->dst;
    q->held.output = listed;
  } else if (a->dst != b->dst) {
    q->held.gate = a->dst, q->held.up = b->dst;
  }
}

// The products of outs[first] and of all later ones that can share its dispatch; `done` marks them.
static void multiply_from(st_queue *q, const input *in, const st_linear_out *outs, int first, int count, bool *done) {
  enum { MOST = ST_VK_ACCESSES - 8 };
  const st_dmatrix *m = outs[first].matrix;
  const st_linear_out *made[MOST];
  output list[MOST];
  st_vk_op op = {.accesses = {{(st_vk_use *)in->use, false}}, .n_accesses = 1};
  uint32_t n = 0, groups = 0;
  if (!st_vk_begin(q) || !st_vk_stream_room(q, borrowed_by(q->device, outs, first, count, done))) return;
  for (int i = first; i < count && n < MOST; i++) {
    if (done[i] || !shares(q->device, outs[i].matrix, m)) continue;
    done[i] = true;
    made[n] = &outs[i];
    list[n] = output_of(q, in, &outs[i], groups);
    groups += (list[n++].rows + ROWS - 1) / ROWS;
    st_vk_op_uses(&op, ST_VK_WRITES(outs[i].dst)); // a part of an array: several may be of one
    count_product(&op, in, &outs[i]);
  }
  op.read += (uint64_t)in->tokens * (m->int8 ? in->stride + 4 : in->columns) * sizeof(uint32_t);
  linear_push push = {.x = in->address,
                      .count = n,
                      .x_stride = in->stride,
                      .columns = in->columns,
                      .row_words = m->row_words,
                      .block = m->block};
  output *listed = st_vk_upload_new(q, n * sizeof *list, &push.outs);
  if (!listed) return;
  memcpy(listed, list, n * sizeof *list);
  run_products(q, in, m, push, groups, &op);
  if (groups <= q->device->traits.most_groups) hold_what_may_join(q, in, made, n, listed);
}

void st_vk_linear(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                  const st_linear_out *outs, int count) {
  enum { MOST = 256 };
  bool done[MOST] = {false};
  const source s = {x, first, n, norm, eps};
  for (; count > MOST; count -= MOST, outs += MOST) st_vk_linear(q, x, first, n, norm, eps, outs, MOST);
  for (int kind = 0; kind < 2; kind++) {
    input in;
    bool prepared = false;
    for (int i = 0; i < count; i++) {
      const st_dmatrix *m = outs[i].matrix;
      if (done[i] || m->int8 != (kind == 0)) continue;
      if (!prepared && !(m->int8 ? prepare_codes : prepare_floats)(q, &s, m->columns, &in)) return;
      prepared = true;
      multiply_from(q, &in, outs, i, count, done);
    }
  }
}

// ---- planned products ---------------------------------------------------------------------------------------------

bool st_vk_are_alike(const st_device *d, const st_dmatrix *a, const st_dmatrix *b) {
  uint32_t groups = (a->rows + ROWS - 1) / ROWS;
  return shares(d, a, b) && a->rows == b->rows && a->columns == b->columns && a->codes.size && b->codes.size &&
         groups <= d->traits.most_groups;
}

void st_vk_multiply_planned(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_dmatrix *like,
                            const st_vk_planned *list, st_vk_op *op) {
  const source s = {.x = x, .first = first, .n = n};
  input in;
  if (!(like->int8 ? prepare_codes : prepare_floats)(q, &s, like->columns, &in) || !st_vk_begin(q)) return;
  const linear_push push = {.x = in.address,
                            .outs = list->records,
                            .x_stride = in.stride,
                            .columns = in.columns,
                            .row_words = like->row_words,
                            .block = like->block};
  op->shader = shader_for(q->device, like);
  op->special = (st_vk_special){{st_vk_local(q->device, NARROW), list->tile}};
  op->special.constants[GATE_CONSTANT] = list->gate;
  if (like->form == ST_VK_VALUES) st_vk_values_special(&like->values, &op->special);
  op->groups = (st_vk_groups){(like->rows + ROWS - 1) / ROWS, list->pieces};
  op->push_bytes = sizeof push;
  memcpy(op->push, &push, sizeof push);
  st_vk_op_uses(op, (st_vk_access){(st_vk_use *)in.use, false});
  op->read += (uint64_t)n * (like->int8 ? in.stride + 4 : in.columns) * sizeof(uint32_t);
  st_vk_run(q, op);
}
