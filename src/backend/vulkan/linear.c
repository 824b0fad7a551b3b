// Products, embeddings and norms.
#include "backend/vulkan/device.h"

#include <string.h>

enum { WIDE = 128 };  // invocations of a workgroup that takes a whole token
enum { NARROW = 64 }; // of a workgroup whose subgroups take rows, unless these are wider
enum { ROWS = 8 };    // of a workgroup, see shaders/outputs.glsl
enum { CODES = 160 }; // columns of prepared tokens are padded to this: 8 words of 20, 10 of 16

static uint32_t code_words(uint32_t columns) {
  return (columns + CODES - 1) / CODES * (CODES / 4);
}

// ---- norms --------------------------------------------------------------------------------------------------------

typedef struct {
  VkDeviceAddress x, norm, dst;
  uint32_t x_stride, dst_stride, width, tokens;
  float eps;
} norm_push;

static void run_norm(st_queue *q, const norm_push *push, uint32_t heads) {
  const st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  st_vk_dispatch(q, ST_VK_NORM, &special, push, sizeof *push, (st_vk_groups){heads, push->tokens});
}

static void normalize(st_queue *q, const st_array *x, uint32_t n, uint32_t heads, uint32_t width,
                      const st_dvector *norm, float eps, st_array *dst) {
  const st_vk_access uses[] = {ST_VK_READS(x), ST_VK_WRITES(dst)};
  if (!st_vk_begin(q, uses, 2)) return;
  const norm_push push = {.x = x->data.address,
                          .norm = norm->values.address,
                          .dst = dst->data.address,
                          .x_stride = (uint32_t)x->width,
                          .dst_stride = (uint32_t)dst->width,
                          .width = width,
                          .tokens = n,
                          .eps = eps};
  run_norm(q, &push, heads);
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
} embed_push;

void st_vk_embed(st_queue *q, const st_dmatrix *m, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                 uint32_t first) {
  const st_vk_access uses[] = {ST_VK_WRITES(dst)};
  const st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  if (!n || !st_vk_begin(q, uses, 1)) return;
  const embed_push push = {.codes = st_vk_matrix_codes(q, m),
                           .scales = m->scales.address,
                           .ids = st_vk_upload_copy(q, ids, n * sizeof *ids),
                           .dst = dst->data.address + (VkDeviceAddress)first * dst->width * sizeof(float),
                           .dst_stride = (uint32_t)dst->width,
                           .columns = m->columns,
                           .row_words = m->row_words,
                           .block = m->block,
                           .scale = scale};
  st_vk_dispatch(q, (st_vk_shader)(ST_VK_EMBED_F32 + m->form), &special, &push, sizeof push, (st_vk_groups){n, 1});
}

// ---- products -----------------------------------------------------------------------------------------------------

// The input of some products, prepared: floats of an array or of q->floats, or codes in q->codes.
typedef struct {
  VkDeviceAddress address;
  uint32_t stride; // floats of a token, or words of its codes
  uint32_t columns, tokens;
  const st_vk_use *use;
} input;

// The layout of `Out` in shaders/outputs.glsl.
typedef struct {
  VkDeviceAddress codes, scales, bias, dst;
  uint32_t rows, dst_stride, first_group, has_bias;
} output;

typedef struct {
  VkDeviceAddress x, outs;
  uint32_t count, group, x_stride, columns, row_words, tokens, block;
} linear_push;

typedef struct {
  VkDeviceAddress x, norm, codes;
  uint32_t x_stride, columns, stride, normed;
  float eps;
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

static bool prepare_codes(st_queue *q, const source *s, uint32_t columns, input *in) {
  uint32_t stride = code_words(columns);
  const st_vk_special special = {{st_vk_local(q->device, WIDE)}};
  const st_vk_access uses[] = {ST_VK_READS(s->x), {&q->codes_use, true}};
  if (!st_vk_grow(q, &q->codes, (uint64_t)s->n * (stride + 4) * sizeof(uint32_t))) return false;
  if (!st_vk_begin(q, uses, 2)) return false;
  const prepare_push push = {.x = token_of(s->x, s->first),
                             .norm = s->norm ? s->norm->values.address : 0,
                             .codes = q->codes.address,
                             .x_stride = (uint32_t)s->x->width,
                             .columns = columns,
                             .stride = stride,
                             .normed = s->norm != NULL,
                             .eps = s->eps};
  st_vk_dispatch(q, ST_VK_PREPARE, &special, &push, sizeof push, (st_vk_groups){s->n, 1});
  *in = (input){q->codes.address, stride, columns, s->n, &q->codes_use};
  return true;
}

static bool prepare_floats(st_queue *q, const source *s, uint32_t columns, input *in) {
  *in = (input){token_of(s->x, s->first), (uint32_t)s->x->width, columns, s->n, &s->x->use};
  if (!s->norm) return true;
  const st_vk_access uses[] = {ST_VK_READS(s->x), {&q->floats_use, true}};
  if (!st_vk_grow(q, &q->floats, (uint64_t)s->n * columns * sizeof(float))) return false;
  if (!st_vk_begin(q, uses, 2)) return false;
  const norm_push push = {.x = in->address,
                          .norm = s->norm->values.address,
                          .dst = q->floats.address,
                          .x_stride = in->stride,
                          .dst_stride = columns,
                          .width = columns,
                          .tokens = s->n,
                          .eps = s->eps};
  run_norm(q, &push, 1);
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
  return shader_for(d, a) == shader_for(d, b) && a->row_words == b->row_words && a->block == b->block;
}

static void run_products(st_queue *q, const input *in, const st_dmatrix *m, VkDeviceAddress outs, uint32_t count,
                         uint32_t groups) {
  enum { FEW = 4 };
  uint32_t tile = in->tokens > 1 ? FEW : 1;
  const st_vk_special special = {{st_vk_local(q->device, NARROW), tile}};
  linear_push push = {.x = in->address,
                      .outs = outs,
                      .count = count,
                      .x_stride = in->stride,
                      .columns = in->columns,
                      .row_words = m->row_words,
                      .tokens = in->tokens,
                      .block = m->block};
  while (push.group < groups) {
    uint32_t left = groups - push.group, most = q->device->traits.most_groups, n = left < most ? left : most;
    st_vk_dispatch(q, shader_for(q->device, m), &special, &push, sizeof push,
                   (st_vk_groups){n, (in->tokens + tile - 1) / tile});
    push.group += n;
  }
}

static output output_of(st_queue *q, const st_linear_out *o, uint32_t first_group) {
  const st_dmatrix *m = o->matrix;
  return (output){.codes = st_vk_matrix_codes(q, m),
                  .scales = m->scales.address,
                  .bias = o->bias ? o->bias->values.address + o->column * sizeof(float) : 0,
                  .dst = o->dst->data.address + ((VkDeviceAddress)o->row * o->dst->width + o->column) * sizeof(float),
                  .rows = m->rows,
                  .dst_stride = (uint32_t)o->dst->width,
                  .first_group = first_group,
                  .has_bias = o->bias != NULL};
}

// The products of outs[first] and of all later ones that can share its dispatch; `done` marks them.
static void multiply_from(st_queue *q, const input *in, const st_linear_out *outs, int first, int count, bool *done) {
  enum { MOST = 32 };
  const st_dmatrix *m = outs[first].matrix;
  st_vk_access uses[MOST + 1] = {{(st_vk_use *)in->use, false}};
  output list[MOST];
  int picked[MOST];
  uint32_t n = 0, groups = 0;
  for (int i = first; i < count && n < MOST; i++) {
    if (done[i] || outs[i].matrix->int8 != m->int8 || !together(q->device, outs[i].matrix, m)) continue;
    done[i] = true;
    uses[n + 1] = ST_VK_WRITES(outs[i].dst);
    picked[n++] = i;
  }
  // The outputs are parts of arrays: several may be of one.
  if (!st_vk_begin(q, uses, (int)n + 1)) return;
  for (uint32_t i = 0; i < n; i++) {
    list[i] = output_of(q, &outs[picked[i]], groups);
    groups += (list[i].rows + ROWS - 1) / ROWS;
  }
  VkDeviceAddress address = st_vk_upload_copy(q, list, n * sizeof *list);
  if (address) run_products(q, in, m, address, n, groups);
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
