// Type ids that several projects gave to different layouts: which one a file means, decided from all of its tensors.
#include "format/typeid.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Layouts that share a type with one that is read and are not read themselves, where their sizes can be computed: rows
// of `head` bytes and `block_bytes` for each `block` weights. `architectures` are those that such files were made for:
// only there does the layout count when the sizes leave it open.
typedef struct rival {
  uint32_t type;
  const char *name;
  uint32_t head, block, block_bytes;
  const char *architectures[3];
} rival;

static const rival rivals[] = {
    {36, "IQ4_NL_4_4", 0, 32, 18, {NULL}},
    {142, "IQ2_TN", 4, 256, 64, {"bitnet", "llama", NULL}},
    {143, "IQ1_TN", 2, 256, 52, {"bitnet", "llama", NULL}},
};

enum { READINGS_MOST = 8 };

// What one type may mean, narrowed down.
typedef struct choice {
  uint32_t type;
  const st_format *readings[READINGS_MOST];
  size_t n_readings;
  const rival *rival; // NULL: none whose size is known
  size_t n_tensors;
} choice;

static bool rival_bytes(const rival *r, st_shape shape, uint64_t *bytes) {
  if (shape.columns % r->block) return false;
  uint64_t row = shape.columns / r->block;
  return st_mul_u64(row, r->block_bytes, &row) && st_add_u64(row, r->head, &row) && st_mul_u64(row, shape.rows, bytes);
}

static st_shape shape_of(const st_gguf_tensor *t) {
  return (st_shape){.rows = t->dims[1] * t->dims[2] * t->dims[3], .columns = t->dims[0]};
}

// The next tensor begins where this one ends, padded; the file may end a little earlier or later.
static bool fits(const st_gguf_tensor *t, uint64_t bytes) {
  uint64_t padded;
  if (!st_add_u64(bytes, t->alignment - 1, &padded)) return false;
  padded &= ~(t->alignment - 1);
  return bytes <= t->room && (padded >= t->room || t->room - padded < t->alignment);
}

// Do all tensors of the type fit this reading, or the rival when `format` is NULL?
static bool fits_all(const choice *c, const st_format *format, const st_gguf_tensor *tensors, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const st_gguf_tensor *t = &tensors[i];
    uint64_t bytes;
    if (t->type != c->type) continue;
    bool known = format ? st_format_size(format, shape_of(t), &bytes, NULL) == SETUN_OK
                        : rival_bytes(c->rival, shape_of(t), &bytes);
    if (!known || !fits(t, bytes)) return false;
  }
  return true;
}

// Keeps the readings that fit. False, and nothing changed, when none does.
static bool narrow(choice *c, const st_gguf_tensor *tensors, size_t count) {
  size_t n = 0;
  const st_format *kept[READINGS_MOST];
  for (size_t i = 0; i < c->n_readings; i++) {
    if (fits_all(c, c->readings[i], tensors, count)) kept[n++] = c->readings[i];
  }
  bool rival_fits = c->rival && fits_all(c, NULL, tensors, count);
  if (!n && !rival_fits) return false;
  memcpy(c->readings, kept, n * sizeof *kept);
  c->n_readings = n;
  if (!rival_fits) c->rival = NULL;
  return true;
}

// "q2_0, q2_0-128": the readings that are left.
static const char *names_of(const choice *c, char text[160]) {
  size_t n = 0;
  text[0] = '\0';
  for (size_t i = 0; i < c->n_readings && n < 120; i++) {
    n += (size_t)snprintf(text + n, 160 - n, "%s%s", i ? ", " : "", c->readings[i]->name);
  }
  if (c->rival && n < 120) snprintf(text + n, 160 - n, "%s%s", n ? ", " : "", c->rival->name);
  return text;
}

// The reading of that name; NULL: it is none of this type's.
static const st_format *reading_named(const choice *c, const char *name, size_t length) {
  for (size_t i = 0; i < c->n_readings; i++) {
    const char *own = c->readings[i]->name;
    if (strlen(own) == length && !memcmp(own, name, length)) return c->readings[i];
  }
  return NULL;
}

static st_text text_key(const st_builder *b, const char *key) {
  st_text text = {0};
  st_metadata_text(&b->directory->metadata, key, &text, NULL); // of another type: no evidence
  return text;
}

// The first of the names in a list with commas that is a reading of this type.
static const st_format *reading_listed(const choice *c, st_text names) {
  const st_format *f = NULL;
  if (!names.data) return NULL;
  for (const char *p = names.data, *end = p + names.length; p < end && !f;) {
    const char *comma = memchr(p, ',', (size_t)(end - p));
    size_t length = (size_t)((comma ? comma : end) - p);
    f = reading_named(c, p, length);
    p = comma ? comma + 1 : end;
  }
  return f;
}

// What someone or something says outright: the caller, or a key that Setun writes.
static const st_format *told(const st_builder *b, const choice *c, const char **by) {
  const char *assume = b->options->assume;
  const st_format *f = assume ? reading_named(c, assume, strlen(assume)) : NULL;
  *by = "as asked for";
  if (f) return f;
  *by = "by the key setun.layout";
  if ((f = reading_listed(c, text_key(b, "setun.layout")))) return f;
  if (c->readings[0]->id != ST_T5) return NULL;
  st_text digits = text_key(b, "setun.t5.digits");
  static const char other[] = "zero-plus-minus";
  *by = "by the key setun.t5.digits";
  bool is_other = digits.data && digits.length == sizeof other - 1 && !memcmp(digits.data, other, digits.length);
  return is_other ? c->readings[1] : c->readings[0];
}

static bool is_rival_architecture(const st_builder *b, const rival *r) {
  st_text arch = text_key(b, "general.architecture");
  for (size_t i = 0; arch.data && r->architectures[i]; i++) {
    size_t n = strlen(r->architectures[i]);
    if (arch.length >= n && !memcmp(arch.data, r->architectures[i], n)) return true;
  }
  return false;
}

static setun_status fail_unread(const choice *c, const char *why, setun_error *err) {
  const char *others = st_gguf_type_rivals(c->type);
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "tensor type %" PRIu32 ": %s: it may be %s", c->type, why,
                 others ? others : "a layout of a fork");
}

// Chooses among what the sizes left.
static setun_status choose(st_builder *b, choice *c, const st_format **format, setun_error *err) {
  char names[160];
  if (c->rival && c->n_readings && !is_rival_architecture(b, c->rival)) c->rival = NULL;
  if (c->rival && !c->n_readings) return fail_unread(c, "the sizes of its tensors are those of another layout", err);
  const st_format *first = c->readings[0];
  if (c->n_readings == 1 && !c->rival) {
    *format = first;
    return st_builder_notice(b, err,
                             "tensor type %" PRIu32 ": read as %s: the only layout that the distances between the "
                             "offsets of its %zu tensors fit",
                             c->type, first->name, c->n_tensors);
  }
  // The orders of i2_s have one size: nothing tells them apart, and published files have the first.
  if (first->id == ST_I2_S || first->id == ST_I2_S_ARM) {
    *format = first;
    return st_builder_notice(b, err,
                             "tensor type %" PRIu32 ": read as %s, the usual order; nothing in a file tells the orders "
                             "apart (%s), so assume another one if the text makes no sense",
                             c->type, first->name, names_of(c, names));
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "tensor type %" PRIu32
                 ": the sizes of its %zu tensors fit several layouts alike (%s); say which one to "
                 "assume",
                 c->type, c->n_tensors, names_of(c, names));
}

static void collect(choice *c, const st_gguf_tensor *tensors, size_t count) {
  for (const st_format *f = st_format_by_gguf_type(c->type); f && c->n_readings < READINGS_MOST;
       f = st_format_next_reading(f)) {
    c->readings[c->n_readings++] = f;
  }
  for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
    if (rivals[i].type == c->type) c->rival = &rivals[i];
  }
  for (size_t i = 0; i < count; i++) c->n_tensors += tensors[i].type == c->type;
}

// Integers, and doubles: known by their size.
static bool is_sized_only(uint32_t type) {
  const char *name = st_gguf_type_name(type);
  return name && st_dtype_bytes(name) && !st_format_by_gguf_type(type);
}

setun_status st_typeid_resolve(st_builder *b, const st_gguf_tensor *tensors, size_t count, uint32_t type,
                               const st_format **format, setun_error *err) {
  *format = NULL;
  if (is_sized_only(type)) return SETUN_OK;
  choice c = {.type = type};
  collect(&c, tensors, count);
  if (!c.n_readings) {
    const char *name = st_gguf_type_name(type);
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "tensor type %" PRIu32 "%s%s%s: %s", type, name ? " (" : "",
                   name ? name : "", name ? ")" : "", st_gguf_type_hint(type));
  }
  if (c.n_readings == 1 && !c.rival && !st_gguf_type_rivals(type)) {
    *format = c.readings[0];
    return SETUN_OK;
  }
  const char *by;
  if ((*format = told(b, &c, &by))) {
    return st_builder_notice(b, err, "tensor type %" PRIu32 ": read as %s, %s", type, (*format)->name, by);
  }
  if (!narrow(&c, tensors, count)) {
    char why[256], names[160];
    c.rival = NULL;
    snprintf(why, sizeof why,
             "the distances between the offsets of its %zu tensors fit no layout that is read (%s) unless one is "
             "assumed",
             c.n_tensors, names_of(&c, names));
    return fail_unread(&c, why, err);
  }
  return choose(b, &c, format, err);
}
