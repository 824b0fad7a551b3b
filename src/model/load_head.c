// The head as a list of pieces: where it does not fit into memory it streams piece by piece after the last layer.
#include "model/load.h"

#include "base/memory.h"
#include "model/streamer.h"

enum { GROUP = 16, PIECE_MOST = 8 << 20 };

// Rows [row, row + n) of the weight.
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

static uint64_t count_of(const st_weight *w, uint64_t piece_rows, uint64_t piece) {
  uint64_t left = w->shape.rows - piece * piece_rows;
  return left < piece_rows ? left : piece_rows;
}

// Whether rows stand together in the file, so that a piece is one range of it.
static bool is_cuttable(const st_weight *w) {
  if (w->block_scales || w->row_step != 1 || (w->n_scales > 1 && w->n_scales != w->shape.rows)) return false;
  uint64_t half = w->shape.rows / 2 / GROUP * GROUP;
  if (!half) return true;
  st_strip first = st_format_locate(w->format, w->stored, w->first_row, half);
  st_strip second = st_format_locate(w->format, w->stored, w->first_row + half, w->shape.rows - half);
  return first.count == half && second.count == w->shape.rows - half && first.offset + first.bytes <= second.offset;
}

// As many rows as make a piece no larger than a layer's unit, in the file and in the device's order.
static uint64_t rows_of_piece(const st_loader *l, const st_weight *w, uint64_t codes) {
  st_unit_size unit = st_memory_plan_largest(l->plan);
  uint64_t most = unit.stored < PIECE_MOST ? unit.stored : PIECE_MOST, bytes = w->data->bytes;
  if (codes > bytes) bytes = codes;
  uint64_t row = bytes / w->stored.rows + 1, rows = most / row / GROUP * GROUP;
  return rows > GROUP ? rows : GROUP;
}

static setun_status add_item(st_loader *l, const st_weight *w, st_plan_item *item) {
  const st_backend *b = l->m->backend;
  st_matrix_size size = b->matrix_size(l->m->device, l->head_format, w->shape, l->head_precision);
  uint64_t at = w->data->offset + item->offset;
  item->tensors[0] = w->data;
  item->tensors[1] = w->block_scales;
  item->codes = size.codes;
  item->own = size.own;
  item->beside = size.beside;
  item->copying = st_copying(l, w, l->head_format);
  item->direct = b->matrix_direct(l->m->device, l->head_format) && !w->latent && w->row_step == 1 && !w->block_scales &&
                 at % 64 == 0;
  return st_memory_plan_add(l->plan, item) ? SETUN_OK : st_fail_memory(l->err, "the plan");
}

setun_status st_plan_head(st_loader *l) {
  st_memory_plan *p = l->plan;
  const st_weight *w = &l->head;
  setun_status s = SETUN_OK;
  if (!w->data) return SETUN_OK;
  p->first_piece = p->n_items;
  if (!is_cuttable(w)) return add_item(l, w, &(st_plan_item){.layer = -1});
  const st_backend *b = l->m->backend;
  st_matrix_size whole = b->matrix_size(l->m->device, l->head_format, w->shape, l->head_precision);
  p->piece_rows = rows_of_piece(l, w, whole.codes);
  uint64_t n = (w->shape.rows + p->piece_rows - 1) / p->piece_rows;
  if (n > INT32_MAX - p->n_layer) return st_fail(l->err, SETUN_ERROR_LIMIT, "%s: too many rows", w->name);
  p->n_pieces = (uint32_t)n;
  for (uint32_t i = 0; i < p->n_pieces && s == SETUN_OK; i++) {
    st_weight part = part_of(w, i * p->piece_rows, count_of(w, p->piece_rows, i));
    st_strip strip = st_format_locate(w->format, w->stored, part.first_row, part.shape.rows);
    s = add_item(
        l, &part,
        &(st_plan_item){
            .layer = (int32_t)(p->n_layer + i), .rows = l->m->h.tied, .offset = strip.offset, .bytes = strip.bytes});
  }
  return s;
}

setun_status st_place_head(st_loader *l, const st_weight *w, const st_placing *how) {
  st_model *m = l->m;
  const st_memory_plan *p = l->plan;
  setun_status s = SETUN_OK;
  m->head = st_calloc(p->n_pieces, sizeof *m->head);
  if (!m->head) return st_fail_memory(l->err, w->name);
  for (; m->n_head < p->n_pieces && s == SETUN_OK; m->n_head++) {
    uint32_t i = m->n_head;
    st_linear *piece = &m->head[i];
    st_weight part = part_of(w, i * p->piece_rows, count_of(w, p->piece_rows, i));
    piece->first_row = (uint32_t)(i * p->piece_rows);
    piece->columns = (uint32_t)w->shape.columns;
    s = m->backend->matrix_new_lent(m->device, how->format, part.shape, how->precision, &piece->matrix, l->err);
    if (s != SETUN_OK) return st_fail_in(l->err, "%s", w->name), s;
    s = st_streamer_add(m->streamer, &p->items[p->first_piece + i], &part, how->format, piece->matrix, l->err);
  }
  return s;
}

void st_finish_head(st_model *m) {
  for (uint32_t i = 0; i < m->n_head; i++) {
    m->head[i].bias = m->output.bias;
    m->head[i].norm = m->output.norm;
  }
  if (!m->n_head) return;
  st_linear *last = &m->head[m->n_head - 1]; // whose product is there when all rows of the output are
  last->lora_a = m->output.lora_a;
  last->lora_b = m->output.lora_b;
  last->rank = m->output.rank;
  last->rows = m->output.rows;
}
