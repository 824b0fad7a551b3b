// Making a conversion: families, items, their formats, scale tensors; then a target writes it.
#include "convert/conversion.h"

#include "base/memory.h"
#include "format/gguf_writer.h"
#include "model/hparams_read.h"

#include <stdio.h>
#include <string.h>

static void free_conversion(st_conversion *plan) {
  for (size_t i = 0; i < plan->n_items; i++) st_item_free(&plan->items[i]);
  st_free(plan->items);
  st_bound_list_free(&plan->weights);
  if (plan->has_hparams) st_hparams_free(&plan->h);
  st_rotation_free(plan->rotation);
  *plan = (st_conversion){0};
}

// ---- families -----------------------------------------------------------------------------------------------------

// By the key or, without it, by the layouts.
static bool tells_int8(const st_directory *d) {
  st_text key = {0};
  st_metadata_text(&d->metadata, "setun.activation", &key, NULL);
  if (key.data) return key.length == 4 && !memcmp(key.data, "int8", 4);
  return st_directory_has_int8_layouts(d);
}

static setun_status find_target(st_conversion *p, setun_error *err) {
  p->target_spec = p->from_gguf == p->to_gguf ? p->spec : st_spec_counterpart(p->spec, p->to_gguf, &p->h, err);
  return p->target_spec ? SETUN_OK : SETUN_ERROR_UNSUPPORTED;
}

// Tensors that are not the family's keep their names within a container.
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
  // A file with only tensors, or of an unknown family: names and keys are kept.
  if (st_gguf_spec(p->d, &spec, NULL) == SETUN_OK) p->spec = p->target_spec = spec;
  p->int8 = tells_int8(p->d);
  return SETUN_OK;
}

// ---- tensors of scales --------------------------------------------------------------------------------------------

// Where scales are separate from the packed bytes.
static bool wants_scales(const st_item *item) {
  if (item->kind != ST_ITEM_TRITS) return false;
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
                   .kind = ST_ITEM_SCALES,
                   .format = st_format_of_floats(),
                   .n_dims = 1,
                   .dims = {item->n_scales, 1, 1, 1},
                   .shape = {1, item->n_scales},
                   .divides = p->o->divides,
                   .of = of};
  return out->name ? SETUN_OK : st_fail_memory(err, item->name);
}

// Puts each scale tensor after its weight.
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

// ---- names and sizes
// -------------------------------------------------------------------------------------------------------

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

// In the kernels' own order.
static bool is_in_place(const st_format *f) {
  return f && f->ops->codes && f->ops->codes->order == ST_CODES_GROUPS;
}

// Disk blocks where tensors are read in place: experts in one read, and t16. Otherwise GGUF's usual 32, since some
// programs copy a different alignment key but ignore it.
static uint64_t alignment_of(const st_conversion *p) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    bool split = item->place.expert_of && !item->place.stacked;
    if (split || is_in_place(item->format)) return ST_GGUF_BLOCKS;
  }
  return ST_GGUF_USUAL;
}

static setun_status size_items(st_conversion *p, setun_error *err) {
  p->alignment = alignment_of(p);
  for (size_t i = 0; i < p->n_items; i++) {
    st_item *item = &p->items[i];
    bool sized =
        item->kind == ST_ITEM_COPY || item->kind == ST_ITEM_GPTQ || (item->kind == ST_ITEM_STACK && !item->format);
    setun_status s = sized ? SETUN_OK : st_format_size(item->format, item->shape, &item->bytes, err);
    if (s != SETUN_OK) return st_fail_in(err, s, "%s", item->name);
  }
  return SETUN_OK;
}

// ---- formats -------------------------------------------------------------------------------------------------------

// The format that the options name for this tensor, the embedding or the head: a format, or NULL and whether to keep
// its own. A tied head is the embedding; either option applies. NULL and not kept: no option.
static const st_format *named_for(const st_conversion *p, const st_item *item, bool *kept) {
  const st_convert_options *o = p->o;
  bool tied = !p->has_hparams || p->h.tied;
  *kept = false;
  if (item->suffix || !item->place.known) return NULL;
  const st_role_info *role = st_role_get(item->place.role);
  if (role->kind != ST_KIND_EMBEDDING) return NULL;
  bool head = role->part == ST_OF_HEAD || (tied && !o->embedding && !o->keep_embedding);
  *kept = head ? o->keep_head : o->keep_embedding;
  return head ? o->head : o->embedding;
}

// The option that names this tensor's format; NULL: none.
static const st_format *asked_for(const st_conversion *p, const st_item *item) {
  bool kept;
  return named_for(p, item, &kept);
}

static bool is_kept_by_name(const st_conversion *p, const st_item *item) {
  bool kept;
  named_for(p, item, &kept);
  return kept;
}

// A matrix of a layer, the embedding or the head; in files of an unknown family any matrix.
static bool is_matrix(const st_item *item) {
  if (item->suffix || item->shape.rows < 2) return false;
  if (!item->place.known) return item->n_dims > 1;
  return st_role_is_linear(item->place.role) || st_role_get(item->place.role)->kind == ST_KIND_EMBEDDING;
}

// Whether floats of this tensor may be recognized as trits.
static bool may_be_ternary(const st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  if (item->suffix || w->scale || !st_format_is_number(w->format) || w->latent || w->shape.rows < 2) return false;
  if (!item->place.known && item->n_dims < 2) return false;
  return item->place.known ? st_role_is_linear(item->place.role) : true;
}

// Looks for trits times scales in a piece of floats; stops at the first row that does not fit.
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

// Whether a weight is a whole stored tensor with its rows in order.
static bool is_whole(const st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  return item->n_pieces == 1 && !w->block_scales && !w->packed.kind && w->row_step == 1 &&
         w->shape.rows == w->stored.rows && item->permute == ST_PERMUTE_NONE && !item->rows.outer &&
         !item->columns.outer && item->rates == ST_RATES_KEPT && !w->latent && item->add == 0;
}

static void copy_whole(st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  item->kind = ST_ITEM_COPY;
  item->copied = w->data;
  item->bytes = w->data->bytes;
  item->format = w->format;
}

static setun_status decide_ternary(st_conversion *p, st_item *item, setun_error *err) {
  const st_format *to = p->o->to;
  const st_weight *w = &item->pieces[0].weight;
  item->format = to;
  if (!st_format_is_ternary(to)) {
    item->kind = ST_ITEM_VALUES;
  } else if (w->format == to && is_whole(item) && !w->scale && st_format_writable(to, item->shape, NULL) != SETUN_OK) {
    copy_whole(item); // existing i2_s files pack across rows
    return SETUN_OK;
  } else {
    item->kind = ST_ITEM_TRITS;
  }
  setun_status s = st_format_writable(to, item->shape, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", item->name);
}

// A suggestion for a tensor that a directory cannot keep.
static const char *another_format(const st_item *item) {
  bool ends = item->place.known && st_role_get(item->place.role)->kind == ST_KIND_EMBEDDING;
  if (!ends) return "; convert to f32";
  return st_role_get(item->place.role)->part == ST_OF_HEAD ? "; choose another format of the head, such as bf16"
                                                           : "; choose another format of the embedding, such as bf16";
}

// A tensor that keeps its values: in its own format if the target's container has it.
static setun_status decide_kept(const st_conversion *p, st_item *item, setun_error *err) {
  const st_weight *w = &item->pieces[0].weight;
  const st_format *f = w->format, *floats = st_format_of_floats();
  bool f8 = (st_format_is_float(f) && !st_format_is_number(f)) || f->ops->affine_bits; // not written
  item->format = f;
  if (p->from_gguf == p->to_gguf && is_whole(item)) {
    copy_whole(item);
    return SETUN_OK;
  }
  if (!p->to_gguf && !st_format_is_float(f)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: %s cannot be kept in a Hugging Face directory%s, or convert to GGUF", item->name, f->name,
                   another_format(item));
  }
  if (w->packed.ordered) {
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: columns in the order of their groups (act-order) cannot be kept; convert to f32, or quantize it",
        item->name);
  }
  item->kind = ST_ITEM_ROWS;
  bool taps = item->place.known && st_role_get(item->place.role)->kind == ST_KIND_TAPS; // floats, as vectors are
  bool vector = item->shape.rows == 1 || item->n_dims == 1 || item->suffix || taps;
  if ((p->to_gguf && f8) || item->add != 0 || (vector && (item->permute != ST_PERMUTE_NONE || item->rows.outer)) ||
      item->rates != ST_RATES_KEPT || (p->from_gguf != p->to_gguf && p->to_gguf && vector) || w->scale) {
    item->kind = ST_ITEM_VALUES;
    item->format = f8 && !vector ? st_format_get(f->ops->wider) : floats;
  }
  return SETUN_OK;
}

// Whether the tensor becomes plain floats: quantized ones do and, if no tensor is packed, float matrices.
static bool becomes_floats(const st_conversion *p, const st_item *item) {
  const st_weight *w = &item->pieces[0].weight;
  if (!st_format_is_number(p->o->to) || is_kept_by_name(p, item)) return false;
  if (!st_format_is_number(w->format) || w->scale) return true;
  return !p->packed && is_matrix(item);
}

// A matrix of a layer for which the quantizer has a format.
static setun_status decide_quantized(const st_conversion *p, st_item *item, bool *done, setun_error *err) {
  const st_quantizer *q = p->o->quantizer;
  bool matrix = is_matrix(item) && (!item->place.known || st_role_is_linear(item->place.role));
  const st_format *f = matrix ? q->format(q->context, item->name, item->shape) : NULL;
  *done = f != NULL;
  if (!f || f == item->pieces[0].weight.format) return *done ? decide_kept(p, item, err) : SETUN_OK;
  bool exact = st_format_is_ternary(f) && st_source_is_ternary(&item->pieces[0]);
  item->kind = st_format_is_ternary(f) ? ST_ITEM_TRITS : ST_ITEM_VALUES;
  item->format = f;
  item->lossy = item->quantized = !exact;
  if (item->shape.columns % f->block == 0) return SETUN_OK;
  char origin[300];
  setun_status s =
      st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %s takes rows of a multiple of %u weights, these have %llu; %s",
              item->name, f->name, (unsigned)f->block, (unsigned long long)item->shape.columns,
              st_format_is_ternary(f) ? "ternary ones with a scale a row take any"
                                      : "formats with blocks of 32 are q4_0, q4_1, q5_0, q5_1 and q8_0");
  return q->origin(q->context, item->name, origin, sizeof origin) ? st_fail_in(err, s, "%s", origin) : s;
}

static setun_status decide(st_conversion *p, st_item *item, setun_error *err) {
  if (!item->pieces || item->kind == ST_ITEM_STACK) return SETUN_OK; // decided already
  const st_format *asked = asked_for(p, item);
  const st_weight *w = &item->pieces[0].weight;
  if (asked && asked != w->format) {
    item->kind = ST_ITEM_VALUES;
    item->format = asked;
    item->lossy = true;
    item->quantized = p->o->quantizer != NULL;
    if (st_format_writable(asked, item->shape, NULL) == SETUN_OK) return SETUN_OK;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: %s takes rows of a multiple of %u weights, found %llu; f16 and bf16 take any%s", item->name,
                   asked->name, (unsigned)asked->block, (unsigned long long)item->shape.columns,
                   item->shape.columns % 32 ? "" : ", q8_0 takes these");
  }
  if (p->o->quantizer) {
    bool done = false;
    setun_status s = decide_quantized(p, item, &done, err);
    return s != SETUN_OK || done ? s : decide_kept(p, item, err);
  }
  if (st_conversion_is_gptq(p, item)) return st_conversion_decide_gptq(item, err);
  if (item->undone) { // the result differs from the stored values, requested or not
    item->kind = ST_ITEM_VALUES;
    item->format = asked ? asked : p->o->to;
    return SETUN_OK;
  }
  if (st_source_is_ternary(&item->pieces[0])) return decide_ternary(p, item, err);
  if (!asked && becomes_floats(p, item) && w->format != p->o->to) {
    // stacked block experts have no other form there
    if (w->format->ops->hf_blocks && w->block_scales && !p->to_gguf) {
      return st_fail(
          err, SETUN_ERROR_UNSUPPORTED,
          "%s: this family's Hugging Face directories have experts in %s, but %s was requested; convert to GGUF",
          item->name, w->format->name, p->o->to->name);
    }
    item->kind = ST_ITEM_VALUES;
    item->format = p->o->to;
    return SETUN_OK;
  }
  return decide_kept(p, item, err);
}

// ---- whether there is work
// -------------------------------------------------------------------------------------------

// Looks for floats that are trits.
static setun_status find_trits(st_conversion *p, st_item *item, setun_error *err) {
  setun_status s = SETUN_OK;
  if (!item->pieces || item->kind == ST_ITEM_STACK || p->o->quantizer) return s;
  const st_weight *w = &item->pieces[0].weight;
  bool ternary = !st_weight_is_ternary(w) && may_be_ternary(item) && !item->undone;
  for (size_t i = 0; i < item->n_pieces && s == SETUN_OK && ternary; i++) {
    s = recognize(p, item, &item->pieces[i], err);
    ternary = item->pieces[i].grain != ST_GRAIN_NONE;
  }
  for (size_t i = 0; i < item->n_pieces && !ternary; i++) item->pieces[i].grain = ST_GRAIN_NONE;
  p->packed |= st_source_is_ternary(&item->pieces[0]) || !st_format_is_number(w->format);
  return s;
}

// Nothing is quantized.
static setun_status check_ternary(const st_conversion *p, setun_error *err) {
  for (size_t i = 0; i < p->n_items; i++) {
    if (p->items[i].n_pieces && st_source_is_ternary(&p->items[i].pieces[0])) return SETUN_OK;
  }
  if (!st_format_is_ternary(p->o->to)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: none of its %zu tensors is ternary, which %s requires; see setun quantize", p->d->path,
                 p->d->n_tensors, p->o->to->name);
}

static setun_status check_done(const st_conversion *p, setun_error *err) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    if (item->kind == ST_ITEM_GPTQ) return SETUN_OK;
    bool ternary = item->kind == ST_ITEM_TRITS;
    if (p->o->quantizer ? item->quantized || ternary : item->format == p->o->to && item->n_dims > 1) return SETUN_OK;
  }
  if (p->o->quantizer) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: none of its %zu tensors would be quantized", p->d->path,
                   p->d->n_tensors);
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: none of its %zu tensors would become %s", p->d->path,
                 p->d->n_tensors, p->o->to->name);
}

// ---- the conversion
// -----------------------------------------------------------------------------------------------------

// Makes the conversion; freed with free_conversion, also after a failure.
static setun_status make_conversion(const st_directory *d, bool to_gguf, const st_convert_options *o,
                                    st_conversion *plan, setun_error *err) {
  st_conversion *p = plan;
  *p = (st_conversion){.d = d, .o = o, .from_gguf = d->container == ST_GGUF, .to_gguf = to_gguf};
  setun_status s = read_family(p, err);
  if (s == SETUN_OK) s = st_rotation_read(d, &p->rotation, err);
  if (s == SETUN_OK) s = st_conversion_collect(p, err);
  if (s == SETUN_OK) s = st_conversion_rotation(p, err);
  if (s == SETUN_OK) st_conversion_heads(p);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) s = find_trits(p, &p->items[i], err);
  if (s == SETUN_OK) s = check_ternary(p, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    s = decide(p, &p->items[i], err);
    p->work_total += 2 * p->items[i].shape.rows * p->items[i].shape.columns;
  }
  if (s == SETUN_OK && o->quantizer) s = o->quantizer->chosen(o->quantizer->context, err);
  if (s == SETUN_OK) s = check_done(p, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) s = st_conversion_validate(p, &p->items[i], err);
  if (s == SETUN_OK && o->quantizer) s = o->quantizer->judge(o->quantizer->context, err);
  if (s == SETUN_OK) s = add_scales(p, err);
  if (s == SETUN_OK) s = st_conversion_expand_gptq(p, err);
  if (s == SETUN_OK) s = check_names(p, err);
  if (s == SETUN_OK) s = size_items(p, err);
  return s == SETUN_OK ? st_conversion_expert_deltas(p, err) : s;
}

st_output_tensor *st_conversion_tensors(const st_conversion *p) {
  st_output_tensor *tensors = st_calloc(p->n_items, sizeof *tensors);
  for (size_t i = 0; tensors && i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    tensors[i] = (st_output_tensor){
        .name = item->name, .format = item->format, .dtype = item->dtype, .n_dims = item->n_dims, .bytes = item->bytes};
    memcpy(tensors[i].dims, item->dims, sizeof item->dims);
  }
  return tensors;
}

bool st_is_gguf_name(const char *path) {
  size_t n = strlen(path), m = strlen(".gguf");
  return n > m && !strcmp(path + n - m, ".gguf");
}

static setun_status check_target(const st_directory *d, bool to_gguf, const st_convert_options *o, setun_error *err) {
  const char *name = o->divides ? o->to->ops->dividing : o->to->name;
  if (d->container == ST_SAFETENSORS) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected a GGUF file or a model's directory, found only tensors",
                   d->path);
  }
  if (to_gguf && o->to->gguf_type < 0) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s is a layout of Hugging Face directories; for a GGUF file choose t2, i2_s, tq2_0 or another",
                   name);
  }
  if (!to_gguf && !o->to->ops->dtype) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s is a layout of GGUF files, and the target does not end in .gguf; a directory holds hf-u8, "
                   "hf-u8-div, f32, f16 or bf16",
                   name);
  }
  return SETUN_OK;
}

setun_status st_convert(const st_directory *source, const char *target, const st_convert_options *options,
                        setun_error *err) {
  bool to_gguf = st_is_gguf_name(target);
  st_conversion plan = {0};
  setun_status s = check_target(source, to_gguf, options, err);
  if (s == SETUN_OK) s = make_conversion(source, to_gguf, options, &plan, err);
  if (s == SETUN_OK) s = to_gguf ? st_write_gguf(&plan, target, err) : st_write_huggingface(&plan, target, err);
  free_conversion(&plan);
  return s;
}
