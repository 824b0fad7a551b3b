// Experts in Hugging Face directories with one tensor for all experts of a layer: gate and up in alternating rows where
// the family has one matrix for both, blocks (MXFP4) as separate tensors of codes and scales.
#include "convert/conversion.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { BIAS = 2 };

// The target's table row for an expert's role in a tensor with all experts; NULL: none, or there are also rows for
// single experts.
static const st_binding *stack_of(const st_conversion *p, st_role role) {
  for (const st_binding *b = p->target_spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *name = st_binding_pattern(b, false);
    if (b->role == role && name && strstr(name, "%e")) return NULL;
  }
  for (const st_binding *b = p->target_spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *name = st_binding_pattern(b, false);
    if (st_role_place_in(b->role, role) >= 0 && name && !strstr(name, "%e")) return b;
  }
  return NULL;
}

bool st_conversion_stacks(const st_conversion *p, const st_tensor_use *place) {
  return p->from_gguf && !p->to_gguf && place->expert_of && stack_of(p, place->role);
}

static setun_status name_stack(const st_conversion *p, st_item *item, const char *end, setun_error *err) {
  char module[ST_USE_NAME], name[ST_USE_NAME + 8];
  st_fill_name(st_binding_pattern(stack_of(p, item->place.role), false), item->place.layer, 0, module, sizeof module);
  snprintf(name, sizeof name, "%s_%s", module, end);
  st_free(item->name);
  item->name = st_strdup(name);
  return item->name ? SETUN_OK : st_fail_memory(err, name);
}

// The pieces become one item or, for a matrix, the first of two.
static setun_status begin_stack(const st_conversion *p, st_item *item, setun_error *err) {
  item->n_alternating = st_role_matrices(stack_of(p, item->place.role)->role);
  item->kind = ST_ITEM_STACK;
  item->place.stacked = true;
  item->format = item->suffix == BIAS ? st_format_of_floats() : NULL;
  item->dtype = "U8";
  if (item->suffix == BIAS) return name_stack(p, item, "bias", err);
  const st_weight *w = &item->pieces[0].weight;
  if (w->format->ops->hf_blocks && !w->scale) return name_stack(p, item, "blocks", err);
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: expected experts in %s, as this family's directories have them, found %s", item->name,
                 st_format_by_hf_method(NULL)->name, w->format->name);
}

static void finish_stack(st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  uint64_t rows = w->shape.rows * item->n_alternating, experts = item->n_pieces / item->n_alternating,
           blocks = w->shape.columns / w->format->block;
  if (item->suffix == BIAS) {
    uint64_t n = w->shape.rows * w->shape.columns * item->n_alternating;
    item->n_dims = 2;
    memcpy(item->dims, (uint64_t[4]){n, experts, 1, 1}, sizeof item->dims);
    item->shape = (st_shape){experts, n};
    return;
  }
  uint64_t codes = w->format->block_bytes - 1;
  item->n_dims = 4;
  memcpy(item->dims, (uint64_t[4]){codes, blocks, rows, experts}, sizeof item->dims);
  item->bytes = codes * blocks * rows * experts;
  item->shape = (st_shape){rows * experts, w->shape.columns};
}

// The scales of a stack of blocks.
static setun_status add_scales(st_conversion *p, size_t of, setun_error *err) {
  st_item *item = st_conversion_add(p);
  if (!item) return st_fail_memory(err, "the conversion");
  const st_item *blocks = &p->items[of];
  *item = *blocks;
  item->name = NULL;
  item->pieces = st_calloc(blocks->n_pieces, sizeof *item->pieces);
  if (!item->pieces) return st_fail_memory(err, blocks->name);
  memcpy(item->pieces, blocks->pieces, blocks->n_pieces * sizeof *item->pieces);
  item->scales_alone = true;
  item->n_dims = 3;
  memcpy(item->dims, (uint64_t[4]){blocks->dims[1], blocks->dims[2], blocks->dims[3], 1}, sizeof item->dims);
  item->bytes = blocks->bytes / blocks->dims[0];
  return name_stack(p, item, "scales", err);
}

static setun_status push(st_item *stack, const st_item *item, setun_error *err) {
  const st_weight *a = &stack->pieces[0].weight, *b = &item->pieces[0].weight;
  size_t n = stack->n_pieces;
  bool right = item->place.expert == n / stack->n_alternating && a->shape.rows == b->shape.rows &&
               a->shape.columns == b->shape.columns && a->format == b->format;
  if (!right) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected expert %zu with the shape and format of the others, so that they can be stacked",
                   item->name, n / stack->n_alternating);
  }
  st_item_source *pieces = st_realloc(stack->pieces, n + 1, sizeof *pieces);
  if (!pieces) return st_fail_memory(err, item->name);
  stack->pieces = pieces;
  pieces[stack->n_pieces++] = item->pieces[0];
  return SETUN_OK;
}

// The stack among those kept so far that the item belongs to.
static st_item *find(st_conversion *p, size_t kept, const st_item *item) {
  while (kept-- > 0 && p->items[kept].place.layer == item->place.layer) {
    st_item *s = &p->items[kept];
    bool same = s->kind == ST_ITEM_STACK && s->suffix == item->suffix;
    if (same && stack_of(p, s->place.role) == stack_of(p, item->place.role)) return s;
  }
  return NULL;
}

// Items are sorted: an expert's gate, up and down are neighbours.
setun_status st_conversion_stack_experts(st_conversion *p, setun_error *err) {
  size_t kept = 0, n = p->n_items;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n; i++) {
    st_item item = p->items[i];
    p->items[i] = (st_item){0};
    bool stacks = s == SETUN_OK && st_conversion_stacks(p, &item.place);
    st_item *stack = stacks ? find(p, kept, &item) : NULL;
    if (stack) {
      s = push(stack, &item, err);
      st_item_free(&item);
      continue;
    }
    if (stacks) s = begin_stack(p, &item, err);
    p->items[kept++] = item;
  }
  p->n_items = kept;
  for (size_t i = 0; i < kept && s == SETUN_OK; i++) {
    if (p->items[i].kind != ST_ITEM_STACK) continue;
    finish_stack(&p->items[i]);
    if (p->items[i].suffix != BIAS) s = add_scales(p, i, err);
  }
  return s;
}

// ---- writing ------------------------------------------------------------------------------------------------------

// Some rows of each matrix whose rows alternate.
typedef struct {
  uint8_t *rows[2]; // blocks, or floats
  uint8_t *out;
} alternating_rows;

static setun_status read_rows(const st_conversion *p, const st_item_source *piece, bool bias, uint64_t row, uint64_t n,
                              void *to, setun_error *err) {
  st_row_reader r;
  setun_status s = st_row_reader_open(p->d, &piece->weight, &r, err);
  if (s != SETUN_OK) return s;
  s = bias ? st_read_floats(&r, row, n, to, err) : st_read_bytes(&r, row, n, to, err);
  st_row_reader_close(&r);
  return s;
}

// Copies the part of one row that the item holds; returns the number of bytes.
static size_t put_row(const st_item *item, const uint8_t *row, uint64_t blocks, uint8_t *to) {
  const st_format *f = item->pieces[0].weight.format;
  size_t codes = f->block_bytes - 1;
  for (uint64_t b = 0; b < blocks; b++) {
    const uint8_t *block = row + b * f->block_bytes;
    if (item->scales_alone)
      to[b] = block[0];
    else
      f->ops->hf_blocks->split(block, to + codes * b);
  }
  return (size_t)(blocks * (item->scales_alone ? 1 : codes));
}

static setun_status write_alternating(st_conversion *p, const st_item *item, size_t expert, uint64_t row, uint64_t n,
                                      alternating_rows *t, st_output *out, setun_error *err) {
  const st_weight *w = &item->pieces[0].weight;
  bool bias = item->suffix == BIAS;
  uint64_t blocks = w->shape.columns / w->format->block, elements = w->shape.columns * n;
  size_t at = 0;
  for (uint32_t i = 0; i < item->n_alternating; i++) {
    setun_status s = read_rows(p, &item->pieces[expert * item->n_alternating + i], bias, row, n, t->rows[i], err);
    if (s != SETUN_OK) return s;
  }
  for (uint64_t k = 0; k < (bias ? elements : n); k++) {
    for (uint32_t i = 0; i < item->n_alternating; i++) {
      if (bias) {
        memcpy(t->out + at, t->rows[i] + k * sizeof(float), sizeof(float));
        at += sizeof(float);
      } else {
        at += put_row(item, t->rows[i] + k * blocks * w->format->block_bytes, blocks, t->out + at);
      }
    }
  }
  return st_output_write(out, t->out, at, err);
}

setun_status st_item_write_stack(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  const st_weight *w = &item->pieces[0].weight;
  bool bias = item->suffix == BIAS;
  uint64_t row_bytes = bias ? w->shape.columns * sizeof(float) : st_format_row_bytes(w->format, w->shape.columns);
  uint64_t run = (1 << 20) / (row_bytes + 1) + 1;
  alternating_rows t = {.out = st_malloc((size_t)(run * row_bytes), item->n_alternating)};
  setun_status s = t.out ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint32_t i = 0; i < item->n_alternating && s == SETUN_OK; i++) {
    if (!(t.rows[i] = st_malloc((size_t)run, (size_t)row_bytes))) s = st_fail_memory(err, item->name);
  }
  for (size_t e = 0; e < item->n_pieces / item->n_alternating; e++) {
    for (uint64_t row = 0; row < w->shape.rows && s == SETUN_OK; row += run) {
      uint64_t n = w->shape.rows - row < run ? w->shape.rows - row : run;
      s = write_alternating(p, item, e, row, n, &t, out, err);
      if (s == SETUN_OK) s = st_conversion_progress(p, n * w->shape.columns * item->n_alternating, err);
    }
  }
  st_free(t.rows[0]);
  st_free(t.rows[1]);
  st_free(t.out);
  return s;
}
