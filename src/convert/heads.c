// Recurrent layers: in Hugging Face directories value heads are grouped by key head; in GGUF files of some families the
// first value heads of all key heads come first, then the second ones (st_delta_params.tiled). The decay's rate is
// stored as its logarithm in directories, negated in GGUF. Directories of some families have q, k, v and z in one
// matrix.
#include "convert/conversion.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

uint64_t st_heads_source(const st_heads *h, uint64_t at) {
  if (!h->outer || at < h->first) return at;
  uint64_t head = (at - h->first) / h->size, in = (at - h->first) % h->size;
  return h->first + (head % h->inner * h->outer + head / h->inner) * h->size + in;
}

setun_status st_item_order_columns(st_item_reader *r, uint64_t rows, uint64_t units, size_t unit, void *x,
                                   setun_error *err) {
  const st_heads *h = &r->item->columns;
  uint64_t each = h->size * units / r->item->shape.columns; // units of a head
  size_t row = (size_t)units * unit;
  if (!h->outer || units == 1) return SETUN_OK;
  if (!each || each * h->outer * h->inner != units) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected whole blocks in each of its %llu columns of a head, whose order changes; convert to "
                   "floats",
                   r->item->name, (unsigned long long)h->size);
  }
  if (!st_reserve(&r->ordered, &r->ordered_capacity, row, 1)) return st_fail_memory(err, r->item->name);
  for (uint64_t i = 0; i < rows; i++) {
    char *to = (char *)x + i * row;
    memcpy(r->ordered, to, row);
    for (uint64_t k = 0; k < h->outer * h->inner; k++) {
      uint64_t from = (k % h->inner * h->outer + k / h->inner) * each;
      memcpy(to + k * each * unit, (const char *)r->ordered + from * unit, (size_t)each * unit);
    }
  }
  return SETUN_OK;
}

// ---- rates --------------------------------------------------------------------------------------------------------

static float rate_of(float logarithm) {
  return (float)-exp((double)logarithm);
}

// The logarithm of this rate, or the nearest one: for some float32 numbers none is exact.
static float logarithm_of(float rate, bool *exact) {
  float nearest = (float)log(-(double)rate), at = nearest;
  for (int i = 0; i < 4; i++) at = nextafterf(at, -INFINITY);
  for (int i = 0; i < 9; i++, at = nextafterf(at, INFINITY)) {
    *exact = rate_of(at) == rate;
    if (*exact) return at;
  }
  return nearest;
}

setun_status st_item_convert_rates(const st_item_reader *r, uint64_t n, float *x, setun_error *err) {
  bool exact = true;
  for (uint64_t i = 0; i < n && r->item->rates != ST_RATES_KEPT; i++) {
    float rate = x[i];
    x[i] = r->item->rates == ST_RATES_TO_GGUF ? rate_of(rate) : logarithm_of(rate, &exact);
    if (isfinite(x[i]) && (exact || r->round)) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: no float32 number has the decay %.9g as %s, which the target stores%s", r->item->name,
                   (double)rate, exact ? "its logarithm" : "its exponential", exact ? "" : " (or round the scales)");
  }
  return SETUN_OK;
}

// ---- which items --------------------------------------------------------------------------------------------------

// Whether the item's columns, those of a recurrent layer's output matrix, are tiled in the container: not in a rotated
// basis that declares otherwise, which cannot be changed.
static bool is_tiled(const st_conversion *p, bool gguf, const st_role_heads *heads, bool rotated) {
  const st_spec *spec = gguf == p->from_gguf ? p->spec : p->target_spec;
  if (!gguf || !spec->gguf_tiled) return false;
  return !(heads->columns && rotated && p->rotation->gdn_v_grouped);
}

// From the source's order to the target's.
static void set_heads(const st_conversion *p, bool to_tiled, uint64_t first, uint64_t size, st_heads *h) {
  const st_delta_params *d = &p->h.delta;
  uint64_t each = d->n_value_heads / d->n_key_heads;
  if (each == 1) return;
  *h = (st_heads){.first = first, .size = size};
  h->outer = to_tiled ? each : d->n_key_heads;
  h->inner = to_tiled ? d->n_key_heads : each;
}

static void mark(const st_conversion *p, st_item *item) {
  st_role role = item->place.role;
  if (p->from_gguf != p->to_gguf && st_role_get(role)->kind == ST_KIND_RATE) {
    item->rates = p->to_gguf ? ST_RATES_TO_GGUF : ST_RATES_FROM_GGUF;
  }
  st_role_heads heads = st_role_value_heads(&p->h, role);
  bool from = is_tiled(p, p->from_gguf, &heads, item->rotated),
       to = is_tiled(p, p->to_gguf, &heads, item->rotated && !item->undone);
  if (from == to || !heads.size) return;
  set_heads(p, to, heads.first, heads.size, heads.columns ? &item->columns : &item->rows);
}

void st_conversion_heads(st_conversion *p) {
  for (size_t i = 0; i < p->n_items && p->has_hparams && p->h.delta.n_taps; i++) {
    if (p->items[i].place.known && p->items[i].pieces) mark(p, &p->items[i]);
  }
}

// ---- q, k, v and z as one matrix ----------------------------------------------------------------------------------

st_role st_conversion_joined_role(const st_conversion *p, st_role role) {
  char name[ST_USE_NAME];
  if (st_role_joined(role) == role || p->from_gguf == p->to_gguf) return role;
  st_tensor_use alone = {.known = true, .role = role, .in_layer = true}, both = alone;
  both.role = st_role_joined(role);
  bool joined =
      !st_use_name(p->target_spec, p->to_gguf, &alone, name) && st_use_name(p->target_spec, p->to_gguf, &both, name);
  return joined ? both.role : role;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Appends rows [from, from + n) of a weight, `unit` rows a piece.
static void add_pieces(st_item *item, const st_item_source *source, uint64_t from, uint64_t n, uint64_t unit) {
  for (uint64_t row = from; row < from + n; row += unit) {
    st_item_source piece = *source;
    st_weight *w = &piece.weight;
    w->first_row += row * w->row_step;
    if (w->n_scales == w->shape.rows) w->first_scale += row, w->n_scales = unit;
    w->shape.rows = unit;
    item->pieces[item->n_pieces++] = piece;
  }
}

// Makes q, k and v, then z, one item, key head by key head: pieces of as many rows as divide the parts of all heads.
static setun_status join(const st_conversion *p, st_item *item, const st_item *z, setun_error *err) {
  const st_delta_params *d = &p->h.delta;
  uint64_t keys = d->key_dim, values = d->n_value_heads / d->n_key_heads * (uint64_t)d->value_dim,
           all = d->n_key_heads * keys, unit = common_divisor(keys, values);
  const st_item_source qkv = item->pieces[0], gate = z->pieces[0];
  if (qkv.weight.format != gate.weight.format || qkv.weight.stored.columns != gate.weight.stored.columns) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected the format of %s, with which it becomes one matrix, %s, found %s", gate.weight.name,
                   qkv.weight.name, qkv.weight.format->name, gate.weight.format->name);
  }
  st_item_source *pieces = st_calloc((size_t)(d->n_key_heads * (2 * (keys + values) / unit)), sizeof *pieces);
  if (!pieces) return st_fail_memory(err, item->name);
  st_free(item->pieces);
  item->pieces = pieces;
  item->n_pieces = 0;
  for (uint64_t head = 0; head < d->n_key_heads; head++) {
    add_pieces(item, &qkv, head * keys, keys, unit);
    add_pieces(item, &qkv, all + head * keys, keys, unit);
    add_pieces(item, &qkv, 2 * all + head * values, values, unit);
    add_pieces(item, &gate, head * values, values, unit);
  }
  item->shape.rows += z->shape.rows;
  item->dims[1] = item->shape.rows;
  return SETUN_OK;
}

static bool is_part(const st_item *item) {
  return item->place.known && item->pieces && !item->suffix && st_role_joins(item->place.role);
}

// Items are sorted, so that both are neighbours; q, k and v have more rows than z.
setun_status st_conversion_join_mixed(st_conversion *p, setun_error *err) {
  size_t kept = 0, n = p->n_items;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n; i++) {
    st_item item = p->items[i];
    p->items[i] = (st_item){0};
    st_item *before = kept ? &p->items[kept - 1] : NULL;
    if (s == SETUN_OK && before && is_part(before) && is_part(&item) && before->place.layer == item.place.layer) {
      if (before->shape.rows < item.shape.rows) {
        st_item other = *before;
        *before = item;
        item = other;
      }
      s = join(p, before, &item, err);
      st_item_free(&item);
      continue;
    }
    p->items[kept++] = item;
  }
  p->n_items = kept;
  return s;
}
