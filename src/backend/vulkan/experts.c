// Mixtures of experts: the router's choice, and the products of the experts that it chooses.
//
// The matrices of a layer's experts have a table of their addresses. For some tokens, experts.comp makes a plan of
// their choices and this table: rows in the order of the experts, and records of products, which the shaders of
// linear.c take as their list. So the host knows none of the choices, and records the same commands for each token.
#include "backend/vulkan/device.h"

#include "base/memory.h"

enum { WIDE = 128, FEW = 4 }; // invocations of a workgroup; tokens that share a reading of an expert's weights
enum { BIAS = 1 };

struct st_dexperts {
  st_device *device;
  const st_dmatrix *like[ST_EXPERT_MATRICES]; // the first expert's
  uint32_t n;
  uint64_t bytes[ST_EXPERT_MATRICES]; // that a product reads
  st_vk_piece table;                  // [n][3] of `entry`
};

// The layout of the table in shaders/experts.comp.
typedef struct {
  VkDeviceAddress codes, scales, bias;
  uint32_t rows, flags;
} entry;

// ---- the table ----------------------------------------------------------------------------------------------------

static bool can_list(const st_device *d, const st_expert_weights *list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const st_dmatrix *const *own = list[i].matrix, *const *first = list[0].matrix;
    if (!st_vk_are_alike(d, own[ST_MATRIX_GATE], own[ST_MATRIX_UP])) return false;
    for (int k = 0; k < ST_EXPERT_MATRICES; k++) {
      if (!st_vk_are_alike(d, own[k], first[k])) return false;
    }
  }
  return n <= ST_MAX_EXPERTS;
}

static setun_status write_table(st_dexperts *e, const st_expert_weights *list, setun_error *err) {
  size_t bytes = (size_t)e->n * ST_EXPERT_MATRICES * sizeof(entry);
  entry *table = st_malloc(bytes, 1);
  setun_status s = table ? st_vk_piece_new(e->device, bytes, "a table of experts", &e->table, err)
                         : st_fail_memory(err, "a table of experts");
  for (uint32_t i = 0; i < e->n && s == SETUN_OK; i++) {
    for (uint32_t k = 0; k < ST_EXPERT_MATRICES; k++) {
      const st_dmatrix *m = list[i].matrix[k];
      const st_dvector *bias = list[i].bias[k];
      table[i * ST_EXPERT_MATRICES + k] = (entry){.codes = m->codes.address,
                                                  .scales = m->scales.address,
                                                  .bias = bias ? bias->values.address : 0,
                                                  .rows = m->rows,
                                                  .flags = bias ? BIAS : 0};
      e->bytes[k] = (uint64_t)m->rows * (m->row_words + m->row_scales + (bias != NULL)) * sizeof(uint32_t);
    }
  }
  if (s == SETUN_OK) s = st_vk_piece_write(e->device, &e->table, 0, table, bytes, err);
  st_free(table);
  return s;
}

setun_status st_vk_experts_new(st_device *d, const st_expert_weights *list, uint32_t n, st_dexperts **experts,
                               setun_error *err) {
  setun_status checked = st_vk_check_experts(d, err);
  *experts = NULL;
  if (checked != SETUN_OK || d->lost_experts || !can_list(d, list, n)) return checked;
  st_dexperts *e = st_calloc(1, sizeof *e);
  if (!e) return st_fail_memory(err, "a table of experts");
  e->device = d;
  e->n = n;
  for (int k = 0; k < ST_EXPERT_MATRICES; k++) e->like[k] = list[0].matrix[k];
  setun_status s = write_table(e, list, err);
  if (s == SETUN_OK) {
    *experts = e;
  } else {
    st_vk_experts_free(e);
  }
  return s;
}

void st_vk_experts_free(st_dexperts *e) {
  if (!e) return;
  st_vk_piece_free(e->device, &e->table);
  st_free(e);
}

// ---- the choice ---------------------------------------------------------------------------------------------------

void st_vk_route(st_queue *q, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen) {
  const st_vk_special special = {{st_vk_local(q->device, WIDE), args->n_expert, args->used}};
  const struct {
    VkDeviceAddress logits, chosen;
    uint32_t logits_stride, chosen_stride, router, renormalize;
  } push = {logits->data.address,    chosen->data.address, (uint32_t)logits->width,
            (uint32_t)chosen->width, args->router,         args->renormalize};
  if (!st_vk_begin(q)) return;
  st_vk_op op = st_vk_op_of(ST_VK_ROUTE, &special, &push, sizeof push, (st_vk_groups){n, 1});
  st_vk_op_uses(&op, ST_VK_READS(logits));
  st_vk_op_uses(&op, ST_VK_WRITES(chosen));
  op.read = (uint64_t)n * args->n_expert * sizeof(float);
  op.written = (uint64_t)n * args->used * 2 * sizeof(float);
  st_vk_run(q, &op);
}

void st_vk_add_chosen(st_queue *q, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                      const st_array *y) {
  st_vk_sum_chosen(q, &(st_vk_sum){.x = x, .chosen = chosen, .y = y, .n = n, .used = used, .width = width});
}

// ---- the products -------------------------------------------------------------------------------------------------

// The tokens [first, first + n) of an operation, and where their plan is.
typedef struct {
  uint32_t first, n, choices, tile;
  uint32_t pieces;                     // most that there may be
  VkDeviceAddress order, inner, outer; // see shaders/experts.comp
} span;

typedef struct {
  VkDeviceAddress table, chosen, order, inner, outer, gate, up, dst;
  uint32_t gate_stride, up_stride, dst_stride, chosen_stride, tokens, used, n_expert, most;
} plan_push;

static bool plan(st_queue *q, const st_experts_args *a, span *s) {
  uint32_t some = s->choices < a->experts->n ? s->choices : a->experts->n;
  s->tile = s->n > 1 ? FEW : 1;
  s->pieces = s->n > 1 ? s->choices / FEW + some : s->choices;
  uint64_t order = (2 * (uint64_t)s->choices * sizeof(uint32_t) + 15) / 16 * 16;
  uint64_t records = (uint64_t)s->pieces * ST_VK_RECORD;
  if (!st_vk_grow(q, &q->plan, order + 3 * records) || !st_vk_begin(q)) return false;
  s->order = q->plan.address, s->inner = s->order + order, s->outer = s->inner + 2 * records;
  const st_vk_special special = {{st_vk_local(q->device, WIDE), s->tile}};
  const plan_push push = {.table = a->experts->table.address,
                          .chosen = a->chosen->data.address + (uint64_t)s->first * a->chosen->width * sizeof(float),
                          .order = s->order,
                          .inner = s->inner,
                          .outer = s->outer,
                          .gate = a->gate->data.address,
                          .up = a->up->data.address,
                          .dst = a->out->data.address,
                          .gate_stride = (uint32_t)a->gate->width,
                          .up_stride = (uint32_t)a->up->width,
                          .dst_stride = (uint32_t)a->out->width,
                          .chosen_stride = (uint32_t)a->chosen->width,
                          .tokens = s->n,
                          .used = a->used,
                          .n_expert = a->experts->n,
                          .most = s->pieces};
  st_vk_op op = st_vk_op_of(ST_VK_EXPERTS, &special, &push, sizeof push, (st_vk_groups){1, 1});
  st_vk_op_uses(&op, ST_VK_READS(a->chosen));
  st_vk_op_uses(&op, ST_VK_WRITES_TO(q->plan_use));
  op.read = (uint64_t)s->choices * (2 * sizeof(float) + ST_EXPERT_MATRICES * sizeof(entry));
  op.written = order + 3 * records;
  st_vk_run(q, &op);
  return true;
}

static void multiply(st_queue *q, const st_experts_args *a, const span *s, bool last, const st_array *x, uint32_t first,
                     uint32_t n) {
  const st_dexperts *e = a->experts;
  const st_dmatrix *like = e->like[last ? ST_MATRIX_DOWN : ST_MATRIX_GATE];
  st_vk_planned list = {.records = s->outer, .pieces = s->pieces, .tile = s->tile};
  st_vk_op op = {.n_accesses = 0};
  st_vk_op_uses(&op, (st_vk_access){&q->plan_use, false});
  if (last) {
    st_vk_op_uses(&op, ST_VK_WRITES(a->out));
  } else {
    st_vk_op_uses(&op, ST_VK_WRITES(a->gate));
    st_vk_op_uses(&op, ST_VK_WRITES(a->up));
    list.records = s->inner, list.gate = st_vk_gate_of(a->fn);
  }
  op.read = (uint64_t)s->pieces * (last ? e->bytes[ST_MATRIX_DOWN] : e->bytes[ST_MATRIX_GATE] + e->bytes[ST_MATRIX_UP]);
  op.written = (uint64_t)s->choices * like->rows * (last ? 1 : 2) * sizeof(float);
  st_vk_multiply_planned(q, x, first, n, like, &list, &op);
}

// Several tokens' inputs are copied to the rows of their experts; that of one token is shared by all of its experts.
static void compute(st_queue *q, const st_experts_args *a, span *s) {
  const st_dmatrix *gate = a->experts->like[ST_MATRIX_GATE], *down = a->experts->like[ST_MATRIX_DOWN];
  if (!plan(q, a, s)) return;
  if (s->n > 1) {
    st_vk_gather_planned(q, a->x, s->first, s->order, s->choices, gate->columns, a->part);
    multiply(q, a, s, false, a->part, 0, s->choices);
  } else {
    multiply(q, a, s, false, a->x, s->first, 1);
  }
  multiply(q, a, s, true, a->gate, 0, s->choices);
  st_vk_sum_chosen(q, &(st_vk_sum){.x = a->dst,
                                   .chosen = a->chosen,
                                   .y = a->out,
                                   .first = s->first,
                                   .n = s->n,
                                   .used = a->used,
                                   .width = down->rows,
                                   .rows = s->order + s->choices * sizeof(uint32_t),
                                   .alone = true});
}

void st_vk_experts(st_queue *q, const st_experts_args *a) {
  uint32_t most = a->rows / a->used;
  for (uint32_t first = 0; first < a->n; first += most) {
    uint32_t n = a->n - first < most ? a->n - first : most;
    compute(q, a, &(span){.first = first, .n = n, .choices = n * a->used});
  }
}
