// From bound weights to the memory plan: the memory of each, the head in pieces, and what a session and adapters add.
#include "placement/loader.h"

#include "base/memory.h"
#include "base/system_memory.h"
#include "placement/copy.h"

enum { PIECE_MOST = 8 << 20 };

typedef struct {
  st_loader *l;
  st_workload workload; // of all matrices
} planner;

st_placing st_placing_of(const st_loader *l, const st_bound *bound) {
  bool exact = st_role_get(bound->role)->kind == ST_KIND_ROUTER;
  const st_weight *w = &bound->weight;
  // Latent floats become ternary when they are read.
  st_placing how = {.format = w->latent ? st_format_of_latent() : w->format,
                    .precision = l->o->precise || exact ? ST_PRECISION_FLOAT : ST_PRECISION_FAST};
  if (l->m->h.int8 && !exact && st_format_is_ternary(how.format)) how.precision = ST_PRECISION_INT8;
  return how;
}

st_matrix_desc st_placing_desc(const st_placing *how, const st_weight *w, st_ownership ownership) {
  return st_copy_desc(w, how->format, how->precision, ownership);
}

bool st_placing_is_fast(const st_placing *how) {
  return how->precision == ST_PRECISION_FAST && (how->format->block > 1 || st_format_is_ternary(how->format));
}

static bool takes_floats(const st_placing *how) {
  return how->precision != ST_PRECISION_INT8 && !st_placing_is_fast(how);
}

// ---- the cost of a token -------------------------------------------------------------------------------------------

static void end_layer(const st_hparams *h, st_decode_cost *c) {
  if (c->expert_bytes) {
    uint64_t macs = (uint64_t)3 * h->n_expert_used * h->n_ff_expert * h->n_embd;
    c->bytes += c->expert_bytes / h->n_expert * h->n_expert_used;
    c->macs += macs;
    if (c->expert_floats) c->float_macs += macs;
  }
  c->expert_bytes = 0;
}

void st_count_decode(const st_loader *l, size_t index, uint64_t bytes, uint64_t beside, st_decode_cost *c) {
  const st_bound *b = &l->weights->items[index];
  const st_placing how = st_placing_of(l, b);
  if (b->layer != c->layer) end_layer(&l->m->h, c);
  c->layer = b->layer;
  if (st_role_get(b->role)->kind == ST_KIND_TABLE || st_role_get(b->role)->part == ST_OF_POOLED) return;
  if (b->expert >= 0) {
    c->expert_bytes += bytes + beside;
    if (st_role_is_matrix(b->role)) c->expert_floats = takes_floats(&how);
    return;
  }
  c->bytes += beside;
  if (!st_role_is_matrix(b->role)) return;
  if (st_role_get(b->role)->kind == ST_KIND_EMBEDDING && index != l->weights->head) return; // one row
  uint64_t macs = b->weight.shape.rows * b->weight.shape.columns;
  c->bytes += bytes;
  c->macs += macs;
  if (takes_floats(&how)) c->float_macs += macs;
}

void st_count_decode_end(const st_hparams *h, st_decode_cost *c) {
  end_layer(h, c);
}

// ---- items --------------------------------------------------------------------------------------------------------

static uint64_t copying(const st_loader *l, const st_weight *w, const st_format *format) {
  const st_copy copy = {.backend = l->m->backend, .device = l->m->device, .weight = w, .format = format};
  return (uint64_t)l->threads * st_copy_bytes(&copy);
}

// An embedding's rows are looked up; all other matrices, and an embedding that is the head too, are multiplied.
static setun_status check_supported(const st_loader *l, size_t index, const st_matrix_desc *desc) {
  const st_backend *b = l->m->backend;
  const st_bound *bound = &l->weights->items[index];
  bool looked_up = st_role_get(bound->role)->kind == ST_KIND_EMBEDDING;
  const char *lacking = NULL;
  if (looked_up && !b->supports(l->m->device, desc, ST_OP_EMBED)) lacking = "whose rows can be looked up";
  if ((!looked_up || index == l->weights->head) && !b->supports(l->m->device, desc, ST_OP_LINEAR)) {
    lacking = "that can be multiplied";
  }
  if (!lacking) return SETUN_OK;
  return st_fail(l->err, SETUN_ERROR_UNSUPPORTED, "%s: expected a format %s on this device (%s), found %s",
                 bound->weight.name, lacking, b->device_isa(l->m->device), desc->format->name);
}

// A matrix, or a piece of one whose bytes begin at `offset` of the tensor.
static setun_status add_item(st_loader *l, size_t index, const st_weight *w, st_memory_item *item) {
  const st_backend *b = l->m->backend;
  st_placing how = st_placing_of(l, &l->weights->items[index]);
  st_matrix_desc desc = st_placing_desc(&how, w, ST_OWNED);
  if (check_supported(l, index, &desc) != SETUN_OK) return SETUN_ERROR_UNSUPPORTED;
  st_matrix_info size = b->matrix_info(l->m->device, &desc);
  bool whole_units = item->bytes[0] == size.codes && w->first_row % size.row_unit == 0;
  bool in_place = item->bytes[0] ? whole_units || item->expert < 0 : !w->first_row;
  item->weight = (uint32_t)index;
  item->tensors[0] = w->data;
  item->tensors[1] = w->block_scales;
  item->tensors[2] = w->block_minimums;
  item->codes = size.codes;
  item->own = size.own;
  item->beside = size.beside;
  item->copying = copying(l, w, how.format);
  item->direct = size.direct && !w->latent && w->row_step == 1 && !w->block_scales && !w->packed.kind && in_place &&
                 (w->data->offset + item->offset[0]) % 64 == 0;
  st_item_span *span = &l->plan->spans[index];
  if (!span->count++) span->first = (uint32_t)l->plan->n_items;
  return st_memory_plan_add(l->plan, item) ? SETUN_OK : st_fail_memory(l->err, "the memory plan");
}

// The bytes of an expert of a stack, from the first to the last of any of its rows.
static void find_part(const st_weight *w, st_memory_item *item) {
  uint64_t first = w->first_row / w->row_step * w->row_step, rows = w->shape.rows * w->row_step;
  uint64_t from = UINT64_MAX, end = 0;
  const st_tensor *tensors[ST_ITEM_TENSORS] = {w->data, w->block_scales, w->block_minimums};
  if (w->row_step > 1 || w->block_scales) { // rows that are put together
    for (int i = 0; i < ST_ITEM_TENSORS && tensors[i]; i++) {
      uint64_t row = tensors[i]->bytes / w->stored.rows;
      item->offset[i] = first * row;
      item->bytes[i] = rows * row;
    }
    return;
  }
  for (uint64_t done = 0; done < rows;) {
    st_strip strip = st_format_locate(w->format, w->stored, w->first_row + done, rows - done);
    if (!strip.count) return; // all of the tensor
    if (strip.offset < from) from = strip.offset;
    if (strip.offset + strip.bytes > end) end = strip.offset + strip.bytes;
    done += strip.count;
  }
  item->offset[0] = from;
  item->bytes[0] = end - from;
}

static uint64_t beside_bytes(const st_bound_list *list, const st_bound *b) {
  const uint32_t beside[] = {b->bias, b->norm};
  uint64_t n = 0;
  for (int i = 0; i < 2; i++) {
    const st_weight *w = beside[i] ? &list->beside[beside[i] - 1] : NULL;
    if (w) n += w->shape.rows * w->shape.columns;
  }
  return n * sizeof(float);
}

static setun_status plan_weight(planner *p, size_t index, st_decode_cost *cost) {
  st_loader *l = p->l;
  const st_bound *b = &l->weights->items[index];
  const st_weight *w = &b->weight;
  if (!st_role_is_matrix(b->role)) {
    uint64_t bytes = w->shape.rows * w->shape.columns * sizeof(float);
    if (st_role_get(b->role)->kind != ST_KIND_TABLE) l->plan->vectors += bytes;
    st_count_decode(l, index, 0, bytes, cost);
    return SETUN_OK;
  }
  st_placing how = st_placing_of(l, b);
  st_matrix_desc desc = st_placing_desc(&how, w, ST_OWNED);
  st_matrix_info size = l->m->backend->matrix_info(l->m->device, &desc);
  uint64_t beside = beside_bytes(l->weights, b);
  l->plan->vectors += size.beside + beside;
  l->plan->all += size.codes;
  l->m->backend->workload_add(l->m->device, &desc, &p->workload);
  if ((b->norm || w->packed.ordered) && w->shape.columns > l->m->max_normed_columns)
    l->m->max_normed_columns = (uint32_t)w->shape.columns;
  if ((b->rotated || w->packed.ordered) && w->shape.columns > l->m->max_rotated_columns) {
    l->m->max_rotated_columns = (uint32_t)w->shape.columns;
  }
  if (index == l->weights->embedding) {
    l->plan->row_area = st_row_copy_bytes(l->m->backend, l->m->device, w, how.format, how.precision);
  }
  st_count_decode(l, index, size.own + size.beside, beside, cost);
  if (index == l->weights->head) return SETUN_OK; // in pieces after the layers, see plan_head
  st_memory_item item = {.layer = b->layer,
                         .expert = b->expert,
                         .attention = st_role_is_first_half(b->role),
                         .rows = index == l->weights->embedding};
  if (b->stacked) find_part(w, &item);
  return add_item(l, index, w, &item);
}

// ---- the head -----------------------------------------------------------------------------------------------------

// Selects rows [row, row + n) of the weight.
static st_weight part_of(const st_weight *w, uint64_t row, uint64_t n) {
  st_weight part = *w;
  part.first_row = w->first_row + row;
  part.shape.rows = n;
  if (w->n_scales > 1) {
    part.first_scale = w->first_scale + row;
    part.n_scales = n;
  }
  return part;
}

st_weight st_head_piece(const st_memory_plan *p, const st_weight *w, uint32_t piece) {
  if (!p->n_pieces) return *w;
  uint64_t row = piece * p->piece_rows, left = w->shape.rows - row;
  return part_of(w, row, left < p->piece_rows ? left : p->piece_rows);
}

// Whether rows are contiguous in the file, so that a piece (whole units of rows) is one range.
static bool is_cuttable(const st_weight *w, uint64_t unit) {
  if (w->packed.kind || w->row_step != 1) return false;
  if (w->block_scales) return true; // each tensor's rows are contiguous
  if (w->n_scales > 1 && w->n_scales != w->shape.rows) return false;
  uint64_t half = w->shape.rows / 2 / unit * unit;
  if (!half) return true;
  st_strip first = st_format_locate(w->format, w->stored, w->first_row, half);
  st_strip second = st_format_locate(w->format, w->stored, w->first_row + half, w->shape.rows - half);
  return first.count == half && second.count == w->shape.rows - half && first.offset + first.bytes <= second.offset;
}

// The number of rows for a piece no larger than a layer's unit, in the file and in the device's order.
static uint64_t rows_of_piece(const st_loader *l, const st_weight *w, const st_placing *how) {
  st_unit_size unit = st_memory_plan_largest(l->plan);
  st_matrix_desc desc = st_placing_desc(how, w, ST_BORROWED);
  st_matrix_info size = l->m->backend->matrix_info(l->m->device, &desc);
  uint64_t codes = size.codes, step = size.row_unit;
  uint64_t most = unit.stored < PIECE_MOST ? unit.stored : PIECE_MOST, bytes = w->data->bytes;
  if (codes > bytes) bytes = codes;
  uint64_t row = bytes / w->stored.rows + 1, rows = most / row / step * step;
  return rows > step ? rows : step;
}

// Splits the head into pieces no larger than a layer's unit, after all layers, or adds it as one item where its rows
// are not contiguous in the file.
static setun_status plan_head(st_loader *l) {
  st_memory_plan *p = l->plan;
  size_t index = l->weights->head;
  const st_weight *w = &l->weights->items[index].weight;
  setun_status s = SETUN_OK;
  p->first_piece = p->n_items;
  st_placing how = st_placing_of(l, &l->weights->items[index]);
  st_matrix_desc desc = st_placing_desc(&how, w, ST_BORROWED);
  uint64_t unit = l->m->backend->matrix_info(l->m->device, &desc).row_unit;
  if (!is_cuttable(w, unit)) return add_item(l, index, w, &(st_memory_item){.layer = -1, .expert = -1});
  p->piece_rows = rows_of_piece(l, w, &how);
  uint64_t n = (w->shape.rows + p->piece_rows - 1) / p->piece_rows;
  if (n > INT32_MAX - p->n_layer) return st_fail(l->err, SETUN_ERROR_LIMIT, "%s: too many rows", w->name);
  p->n_pieces = (uint32_t)n;
  for (uint32_t i = 0; i < p->n_pieces && s == SETUN_OK; i++) {
    st_weight part = st_head_piece(p, w, i);
    st_strip strip = st_format_locate(w->format, w->stored, part.first_row, part.shape.rows);
    st_memory_item item = {.layer = (int32_t)(p->n_layer + i),
                           .expert = -1,
                           .rows = l->m->h.tied,
                           .offset = {strip.offset},
                           .bytes = {strip.bytes}};
    if (w->block_scales) find_part(&part, &item);
    s = add_item(l, index, &part, &item);
  }
  return s;
}

// ---- contexts -----------------------------------------------------------------------------------------------------

// The candidate batches: if none was requested, also smaller ones than the default.
static void list_batches(const planner *q, const st_run_options *run, bool smaller) {
  enum { LEAST_BATCH = 32 };
  st_memory_plan *p = q->l->plan;
  st_run_options o = *run;
  do {
    st_run_size size = q->l->o->context_size(q->l->m, &o, &q->workload);
    p->batches[p->n_batches++] = (st_batch_choice){o.n_batch, size.work, size.cache, size.pages};
    p->states = size.states;
    o.n_batch /= 2;
  } while (smaller && p->n_batches < ST_BATCHES && o.n_batch >= LEAST_BATCH);
}

static setun_status plan_context(const planner *q) {
  st_loader *l = q->l;
  st_memory_plan *p = l->plan;
  st_run_options run;
  setun_context_params context = l->o->context ? *l->o->context : (setun_context_params){.n_seq_max = 1};
  p->n_ctx_most = l->m->h.n_ctx_most;
  if (context.n_ctx > p->n_ctx_most) context.n_ctx = 0; // making such a context reports it
  setun_status s = st_run_options_of(l->m, &context, &run, l->err);
  if (s != SETUN_OK) return s;
  list_batches(q, &run, !context.n_batch && !l->m->h.bidirectional);
  p->n_ctx = run.windows.window ? run.windows.window + run.windows.sinks : run.n_ctx;
  return SETUN_OK;
}

static setun_status read_deltas(st_loader *l) {
  const st_hparams *h = &l->m->h;
  st_expert_deltas *deltas = &l->plan->experts.deltas;
  setun_status s = st_expert_deltas_read(l->d, h->n_layer, h->n_expert, deltas, l->err);
  for (uint32_t i = 0; s == SETUN_OK && deltas->tensors && i < h->n_layer; i++) {
    if (!deltas->tensors[i] || h->sparse[i]) continue;
    s = st_fail(l->err, SETUN_ERROR_FORMAT, "%s: expected a layer with experts, found one without",
                deltas->tensors[i]->name);
  }
  return s;
}

setun_status st_plan_memory(st_loader *l) {
  st_memory_plan *p = l->plan;
  planner q = {.l = l};
  st_decode_cost cost = {.layer = -1};
  setun_status s = SETUN_OK;
  p->n_layer = l->m->h.n_layer;
  p->spans = st_calloc(l->weights->n, sizeof *p->spans);
  if (!p->spans) return st_fail_memory(l->err, "the memory plan");
  const st_rotation *r = l->m->h.rotation;
  for (uint32_t i = 0; r && i < r->n_widths; i++) p->vectors += r->widths[i] * sizeof(float);
  for (size_t i = 0; i < l->weights->n && s == SETUN_OK; i++) s = plan_weight(&q, i, &cost);
  st_count_decode_end(&l->m->h, &cost);
  if (s == SETUN_OK) s = plan_head(l);
  if (s == SETUN_OK && l->adapters) st_adapters_measure(l->adapters, l->m, p, &q.workload);
  if (s == SETUN_OK && l->o->adapter_rank) {
    st_adapters_measure_rank(l->weights, l->o->adapter_rank, l->m, &q.workload);
    p->vectors += l->o->adapter_bytes;
  }
  if (s == SETUN_OK) s = plan_context(&q);
  if (s != SETUN_OK) return s;
  uint64_t available = st_memory_available();
  p->mapped = l->o->mapped;
  const uint64_t resident = st_memory_resident();
  p->process = resident + l->o->expected;
  p->resident_parts = l->o->resident_parts;
  p->experts.used = l->m->h.n_expert_used;
  p->experts.forced = l->o->cached_experts;
  s = read_deltas(l);
  if (s != SETUN_OK) return s;
  p->token_bytes = cost.bytes;
  p->token_macs = cost.macs;
  p->budget = l->o->memory;
  if (!p->budget && available != UINT64_MAX) p->budget = st_default_budget(resident, available);
  const st_backend *b = l->m->backend;
  p->device_owns = b->own_memory(l->m->device, &p->device_budget);
  if (!p->device_owns && l->o->device_memory) {
    return st_fail(l->err, SETUN_ERROR_ARGUMENT,
                   "device_memory: expected a device with memory of its own, found %s, which takes `memory`", b->name);
  }
  if (l->o->device_memory) p->device_budget = l->o->device_memory;
  return st_memory_plan_decide(p, l->d, l->err);
}
