// Which format each output tensor gets, and whether its container and its shape allow it.
#include "convert/check.h"
#include "convert/conversion.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

// The option that names this tensor's format: NULL keeps it. A tied head is the embedding, which either option names.
static const st_format *asked_for(const st_conversion *p, const st_item *item) {
  const st_convert_options *o = p->o;
  bool tied = !p->has_hparams || p->h.tied;
  if (item->suffix) return NULL;
  if (item->place.role == ST_OUTPUT) return o->head;
  if (item->place.role != ST_TOKEN_EMBD) return NULL;
  return o->embedding || !tied ? o->embedding : o->head;
}

static bool is_plain_float(const st_format *f) {
  return f && (f->id == ST_F32 || f->id == ST_F16 || f->id == ST_BF16);
}

// May floats of this tensor be looked at for trits?
static bool may_be_ternary(const st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  if (item->suffix || w->scale || !is_plain_float(w->format) || w->latent || w->shape.rows < 2) return false;
  if (!item->place.known && item->n_dims < 2) return false;
  return item->place.known ? st_role_is_linear(item->place.role) : true;
}

// Looks for trits times scales in a piece of floats; stops at the first row that has none.
static setun_status recognize(st_conversion *p, const st_item *item, st_item_source *piece, setun_error *err) {
  const st_weight *w = &piece->weight;
  uint64_t k = w->shape.columns, chunk = st_item_chunk(item);
  st_ternary_scan scan;
  st_row_reader r;
  setun_status s = st_row_reader_open(p->d, w, &r, err);
  if (s != SETUN_OK) return s;
  float *x = st_malloc((size_t)(chunk * k), sizeof *x);
  if (!x) s = st_fail_memory(err, w->name);
  st_ternary_scan_begin(&scan, k);
  bool ternary = true;
  for (uint64_t row = 0; row < w->shape.rows && s == SETUN_OK && ternary; row += chunk) {
    uint64_t n = w->shape.rows - row < chunk ? w->shape.rows - row : chunk;
    s = st_read_floats(&r, row, n, x, err);
    if (s == SETUN_OK) ternary = st_ternary_scan_rows(&scan, x, n);
  }
  st_free(x);
  st_row_reader_close(&r);
  piece->grain = ternary ? st_ternary_scan_result(&scan) : ST_GRAIN_NONE;
  piece->grain_scale = scan.scale;
  return s;
}

// A weight that is a whole stored tensor, in its rows' order.
static bool is_whole(const st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  return item->n_pieces == 1 && !w->block_scales && w->row_step == 1 && w->shape.rows == w->stored.rows &&
         item->permute == ST_PERMUTE_NONE && !w->latent && item->add == 0;
}

static void copy_whole(st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  item->how = ST_HOW_COPY;
  item->copied = w->data;
  item->bytes = w->data->bytes;
  item->format = w->format;
}

static setun_status decide_ternary(st_conversion *p, st_item *item, setun_error *err) {
  const st_format *to = p->o->to;
  const st_weight *w = &item->pieces[0].weight;
  item->format = to;
  if (!st_format_is_ternary(to)) {
    item->how = ST_HOW_VALUES;
  } else if (w->format == to && is_whole(item) && !w->scale && st_format_writable(to, item->shape, NULL) != SETUN_OK) {
    copy_whole(item); // existing i2_s files run on across rows
    return SETUN_OK;
  } else {
    item->how = ST_HOW_TRITS;
  }
  setun_status s = st_format_writable(to, item->shape, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", item->name);
}

// A tensor that keeps its values: in its own format where the target's container has that.
static setun_status decide_kept(st_conversion *p, st_item *item, setun_error *err) {
  const st_weight *w = &item->pieces[0].weight;
  const st_format *f = w->format, *f32 = st_format_get(ST_F32);
  bool f8 = f->id == ST_F8_E4M3 || f->id == ST_F8_E5M2;
  item->format = f;
  if (p->from_gguf == p->to_gguf && is_whole(item)) {
    copy_whole(item);
    return SETUN_OK;
  }
  if (!p->to_gguf && !is_plain_float(f) && !f8) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: %s cannot stand in a Hugging Face directory; choose another format of the embedding or the "
                   "head where that is meant, such as bf16, or convert to GGUF",
                   item->name, f->name);
  }
  item->how = ST_HOW_ROWS;
  bool vector = item->shape.rows == 1 || item->n_dims == 1 || item->suffix;
  if ((p->to_gguf && f8) || item->add != 0 || (vector && item->permute != ST_PERMUTE_NONE) ||
      (p->from_gguf != p->to_gguf && p->to_gguf && vector) || w->scale) {
    item->how = ST_HOW_VALUES;
    item->format = f8 && !vector ? st_format_get(ST_F16) : f32;
  }
  return SETUN_OK;
}

setun_status st_conversion_decide(st_conversion *p, st_item *item, setun_error *err) {
  if (!item->pieces || item->how == ST_HOW_STACK) return SETUN_OK; // decided already
  const st_format *asked = asked_for(p, item);
  const st_weight *w = &item->pieces[0].weight;
  bool ternary = st_weight_is_ternary(w);
  setun_status s = SETUN_OK;
  if (asked && asked != w->format) {
    item->how = ST_HOW_VALUES;
    item->format = asked;
    item->lossy = true;
    if (st_format_writable(asked, item->shape, NULL) == SETUN_OK) return SETUN_OK;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: %s takes rows of a multiple of %u weights, these have %llu; f16 and bf16 take any%s",
                   item->name, asked->name, (unsigned)asked->block, (unsigned long long)item->shape.columns,
                   item->shape.columns % 32 ? "" : ", q8_0 these");
  }
  if (!ternary && may_be_ternary(item)) {
    ternary = true;
    for (size_t i = 0; i < item->n_pieces && s == SETUN_OK && ternary; i++) {
      s = recognize(p, item, &item->pieces[i], err);
      ternary = item->pieces[i].grain != ST_GRAIN_NONE;
    }
    for (size_t i = 0; i < item->n_pieces && !ternary; i++) item->pieces[i].grain = ST_GRAIN_NONE;
  }
  if (s != SETUN_OK) return s;
  return ternary ? decide_ternary(p, item, err) : decide_kept(p, item, err);
}
