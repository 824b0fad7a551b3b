// The plan as a whole: families, items, formats, the tensors of scales, and where everything will stand.
#include "convert/conversion.h"

#include "convert/gguf_writer.h"

#include "base/memory.h"
#include "model/hparams_read.h"

#include <stdio.h>
#include <string.h>

void st_conversion_free(st_conversion *plan) {
  for (size_t i = 0; i < plan->n_items; i++) st_item_free(&plan->items[i]);
  st_free(plan->items);
  st_bound_list_free(&plan->weights);
  if (plan->has_hparams) st_hparams_free(&plan->h);
  *plan = (st_conversion){0};
}

// ---- families -----------------------------------------------------------------------------------------------------

// What the key says or, without it, the layouts.
static bool tells_int8(const st_directory *d) {
  static const st_format_id layouts[] = {ST_I2_S, ST_I2_S_ARM, ST_I2_S_X4, ST_IQ1_BN, ST_IQ2_BN};
  st_text key = {0};
  st_metadata_text(&d->metadata, "setun.activation", &key, NULL);
  if (key.data) return key.length == 4 && !memcmp(key.data, "int8", 4);
  for (size_t t = 0; t < d->n_tensors; t++) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && d->tensors[t].format; i++) {
      if (d->tensors[t].format->id == layouts[i]) return true;
    }
  }
  return false;
}

static setun_status find_target(st_conversion *p, setun_error *err) {
  p->target_spec = p->from_gguf == p->to_gguf ? p->spec : st_spec_counterpart(p->spec, p->to_gguf, &p->h, err);
  return p->target_spec ? SETUN_OK : SETUN_ERROR_UNSUPPORTED;
}

// Other tensors than the family's keep their names within a container.
static setun_status bind(st_conversion *p, setun_error *err) {
  setun_error why;
  setun_status s = st_bind(p->d, p->spec, &p->h, &p->weights, &why);
  if (s == SETUN_OK) return s;
  if (s == SETUN_ERROR_MEMORY || !p->from_gguf || !p->to_gguf) {
    if (err) *err = why;
    return s;
  }
  st_bound_list_free(&p->weights);
  return SETUN_OK;
}

static setun_status read_family(st_conversion *p, setun_error *err) {
  const st_spec *spec = NULL;
  setun_error why;
  setun_status s = st_hparams_read(p->d, NULL, &spec, &p->h, &why);
  p->has_hparams = s == SETUN_OK;
  if (p->has_hparams) {
    p->spec = spec;
    p->int8 = p->h.int8;
    s = find_target(p, err);
    return s == SETUN_OK ? bind(p, err) : s;
  }
  if (s == SETUN_ERROR_MEMORY || p->from_gguf != p->to_gguf || !p->from_gguf) {
    if (err) *err = why;
    return s;
  }
  // A file of tensors alone, or of a family that is not known: names and keys are kept as they are.
  if (st_gguf_spec(p->d, &spec, NULL) == SETUN_OK) p->spec = p->target_spec = spec;
  p->int8 = tells_int8(p->d);
  return SETUN_OK;
}

// ---- tensors of scales --------------------------------------------------------------------------------------------

// Where scales stand beside the packed bytes.
static bool wants_scales(const st_item *item) {
  if (item->how != ST_HOW_TRITS) return false;
  return item->format->scales == ST_SCALE_OUTER || (item->format->scales == ST_SCALE_TENSOR && item->n_scales > 1);
}

static char *scale_name(const st_conversion *p, const st_item *item) {
  st_buffer name = {0};
  size_t n = strlen(item->name), end = strlen(".weight");
  if (n > end && !strcmp(item->name + n - end, ".weight")) n -= end;
  if (!st_buffer_append(&name, item->name, n) || !st_buffer_text(&name, p->to_gguf ? ".scale" : ".weight_scale")) {
    st_buffer_free(&name);
  }
  return name.data;
}

static setun_status fill_scales(const st_conversion *p, size_t of, const st_item *item, st_item *out,
                                setun_error *err) {
  *out = (st_item){.name = scale_name(p, item),
                   .place = item->place,
                   .how = ST_HOW_SCALES,
                   .format = st_format_get(ST_F32),
                   .n_dims = 1,
                   .dims = {item->n_scales, 1, 1, 1},
                   .shape = {1, item->n_scales},
                   .divides = p->o->divides,
                   .of = of};
  return out->name ? SETUN_OK : st_fail_memory(err, item->name);
}

// Puts each tensor of scales behind its weight.
static setun_status add_scales(st_conversion *p, setun_error *err) {
  size_t n = p->n_items, extra = 0, at = 0;
  for (size_t i = 0; i < n; i++) extra += wants_scales(&p->items[i]);
  st_item *all = st_calloc(n + extra, sizeof *all);
  if (!all) return st_fail_memory(err, "the conversion");
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n; i++) {
    all[at++] = p->items[i];
    if (s != SETUN_OK || !wants_scales(&p->items[i])) continue;
    s = fill_scales(p, at - 1, &p->items[i], &all[at], err);
    at++;
  }
  st_free(p->items);
  p->items = all;
  p->n_items = p->capacity = at;
  return s;
}

// ---- places -------------------------------------------------------------------------------------------------------

static setun_status check_names(const st_conversion *p, setun_error *err) {
  st_map *names = st_map_new(p->n_items);
  setun_status s = names ? SETUN_OK : st_fail_memory(err, "the conversion");
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    int64_t previous;
    const char *name = p->items[i].name;
    if (!st_map_add(names, name, strlen(name), (int64_t)i, &previous)) {
      s = st_fail_memory(err, "the conversion");
    } else if (previous >= 0) {
      s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: two tensors of the source would have this name", name);
    }
  }
  st_map_free(names);
  return s;
}

// Blocks of disks where tensors are read in place: an expert in one read, and t16. GGUF's usual 32 otherwise, since
// other programs copy a key of another alignment without heeding it.
static uint64_t alignment_of(const st_conversion *p) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    bool split = item->place.expert_of && !item->place.stacked;
    if (split || (item->format && item->format->id == ST_T16)) return ST_GGUF_BLOCKS;
  }
  return ST_GGUF_USUAL;
}

static setun_status place_items(st_conversion *p, setun_error *err) {
  uint64_t alignment = p->to_gguf ? alignment_of(p) : 1;
  p->alignment = alignment;
  for (size_t i = 0; i < p->n_items; i++) {
    st_item *item = &p->items[i];
    bool sized = item->how == ST_HOW_COPY || (item->how == ST_HOW_STACK && !item->format);
    setun_status s = sized ? SETUN_OK : st_format_size(item->format, item->shape, &item->bytes, err);
    if (s != SETUN_OK) return st_fail_in(err, s, "%s", item->name);
    uint64_t end;
    item->offset = p->data_bytes;
    if (!st_add_u64(item->offset, item->bytes, &end) || !st_add_u64(end, alignment - 1, &end)) {
      return st_fail(err, SETUN_ERROR_LIMIT, "%s: the tensors' sizes overflow", item->name);
    }
    p->data_bytes = end / alignment * alignment;
  }
  return SETUN_OK;
}

// Something must be there to be laid out anew. With floats as the target it may be the container alone that changes.
static setun_status check_any(const st_conversion *p, setun_error *err) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    if (item->lossy || (item->n_pieces && st_source_is_ternary(&item->pieces[0]))) return SETUN_OK;
  }
  if (!st_format_is_ternary(p->o->to)) {
    st_log_write(p->o->log, SETUN_LOG_WARNING, "%s: none of its %zu tensors is ternary: all keep their formats, not %s",
                 p->d->path, p->d->n_tensors, p->o->to->name);
    return SETUN_OK;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: none of its %zu tensors is ternary, and %s holds nothing else: quantizing is another command's "
                 "work",
                 p->d->path, p->d->n_tensors, p->o->to->name);
}

setun_status st_conversion_make(const st_directory *d, bool to_gguf, const st_convert_options *o, st_conversion *plan,
                                setun_error *err) {
  st_conversion *p = plan;
  *p = (st_conversion){.d = d, .o = o, .from_gguf = d->container == ST_GGUF, .to_gguf = to_gguf};
  setun_status s = read_family(p, err);
  if (s == SETUN_OK) s = st_conversion_collect(p, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    s = st_conversion_decide(p, &p->items[i], err);
    p->work_total += 2 * p->items[i].shape.rows * p->items[i].shape.columns;
  }
  if (s == SETUN_OK) s = check_any(p, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) s = st_conversion_validate(p, &p->items[i], err);
  if (s == SETUN_OK) s = add_scales(p, err);
  if (s == SETUN_OK) s = check_names(p, err);
  return s == SETUN_OK ? place_items(p, err) : s;
}
