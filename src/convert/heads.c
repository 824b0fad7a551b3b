// Recurrent layers: in Hugging Face directories value heads are grouped by key head; in GGUF files of some families the
// first value heads of all key heads come first, then the second ones (st_delta_params.tiled). The decay's rate is
// stored as its logarithm in directories, negated in GGUF.
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
