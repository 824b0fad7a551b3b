// Type ids that several projects use for different layouts: decides from all of a file's tensors which one it means.
#include "format/typeid.h"

#include "base/memory.h"
#include "quant/gguf_rivals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { READINGS_MOST = 8, RIVALS_MOST = 4 };

// The remaining readings of one type.
typedef struct choice {
  uint32_t type;
  const st_format *readings[READINGS_MOST];
  const st_gguf_rival *rivals[RIVALS_MOST]; // unsupported layouts
  size_t n_readings, n_rivals, n_tensors;
} choice;

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

// Whether all tensors of the type fit this reading, or the rival if `format` is NULL.
static bool fits_all(const choice *c, const st_format *format, const st_gguf_rival *rival,
                     const st_gguf_tensor *tensors, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const st_gguf_tensor *t = &tensors[i];
    uint64_t bytes;
    if (t->type != c->type) continue;
    bool known = format ? st_format_size(format, shape_of(t), &bytes, NULL) == SETUN_OK
                        : st_gguf_rival_size(rival, shape_of(t), &bytes);
    if (!known || !fits(t, bytes)) return false;
  }
  return true;
}

// Keeps the layouts that fit. False, with nothing changed, if none does.
static bool narrow(choice *c, const st_gguf_tensor *tensors, size_t count) {
  choice kept = {.type = c->type, .n_tensors = c->n_tensors};
  for (size_t i = 0; i < c->n_readings; i++) {
    if (fits_all(c, c->readings[i], NULL, tensors, count)) kept.readings[kept.n_readings++] = c->readings[i];
  }
  for (size_t i = 0; i < c->n_rivals; i++) {
    if (fits_all(c, NULL, c->rivals[i], tensors, count)) kept.rivals[kept.n_rivals++] = c->rivals[i];
  }
  if (!kept.n_readings && !kept.n_rivals) return false;
  *c = kept;
  return true;
}

// "q2_0, q2_0-128": the remaining readings.
static const char *names_of(const choice *c, char text[256]) {
  size_t n = 0;
  text[0] = '\0';
  for (size_t i = 0; i < c->n_readings + c->n_rivals && n < 200; i++) {
    const char *name = i < c->n_readings ? c->readings[i]->name : c->rivals[i - c->n_readings]->name;
    n += (size_t)snprintf(text + n, 256 - n, "%s%s", i ? ", " : "", name);
  }
  return text;
}

// The reading with that name; NULL: not one of this type's.
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

// The first name in a comma-separated list that is a reading of this type.
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

// Explicit information: from the caller, or a key that Setun writes.
static const st_format *told(const st_builder *b, const choice *c, const char **by) {
  const char *assume = b->options->assume;
  const st_format *f = assume ? reading_named(c, assume, strlen(assume)) : NULL;
  *by = "as asked for";
  if (f) return f;
  *by = "by the key setun.layout";
  if ((f = reading_listed(c, text_key(b, "setun.layout")))) return f;
  if (!c->readings[0]->ops->digits) return NULL;
  st_text digits = text_key(b, "setun.t5.digits");
  *by = "by the key setun.t5.digits";
  for (size_t i = 1; i < c->n_readings; i++) {
    const char *own = c->readings[i]->ops->digits;
    if (own && digits.length == strlen(own) && !memcmp(digits.data, own, digits.length)) return c->readings[i];
  }
  return c->readings[0];
}

static bool is_rival_architecture(const st_builder *b, const st_gguf_rival *r) {
  const size_t most = sizeof r->architectures / sizeof *r->architectures;
  st_text arch = text_key(b, "general.architecture");
  for (size_t i = 0; i < most && r->architectures[i]; i++) {
    size_t n = strlen(r->architectures[i]);
    if (!strcmp(r->architectures[i], "*")) return true;
    if (arch.data && arch.length >= n && !memcmp(arch.data, r->architectures[i], n)) return true;
  }
  return false;
}

// The sizes may leave several readings, which the architecture then decides.
static void drop_other_architectures(const st_builder *b, choice *c) {
  size_t n = 0;
  for (size_t i = 0; i < c->n_rivals; i++) {
    if (is_rival_architecture(b, c->rivals[i])) c->rivals[n++] = c->rivals[i];
  }
  c->n_rivals = n;
}

// Lists the rivals with advice for each, after `why`.
static setun_status fail_unread(const choice *c, const char *why, setun_error *err) {
  st_buffer text = {0};
  bool fine = true;
  for (size_t i = 0; i < c->n_rivals && fine; i++) {
    fine = st_buffer_format(&text, "%s%s, %s", i ? "; or " : "", c->rivals[i]->name, c->rivals[i]->advice);
  }
  setun_status s = !fine ? st_fail_memory(err, "a message")
                         : st_fail(err, SETUN_ERROR_UNSUPPORTED, "tensor type %" PRIu32 ": %s: its type can mean %s",
                                   c->type, why, text.data ? text.data : "a layout of a fork");
  st_buffer_free(&text);
  return s;
}

// Chooses among the readings that fit the sizes.
static setun_status choose(st_builder *b, choice *c, const st_format **format, setun_error *err) {
  char names[256];
  if (!c->n_readings) return fail_unread(c, "the sizes of its tensors are those of another layout", err);
  drop_other_architectures(b, c);
  const st_format *first = c->readings[0];
  if (c->n_readings == 1 && !c->n_rivals) {
    *format = first;
    return st_notices_add(b->directory->notices, SETUN_LOG_INFO, err,
                          "tensor type %" PRIu32 ": read as %s: the only layout that the distances between the "
                          "offsets of its %zu tensors fit",
                          c->type, first->name, c->n_tensors);
  }
  // The orders of i2_s have the same size and cannot be distinguished; published files have the first.
  if (first->ops->is_usual) {
    *format = first;
    return st_notices_add(b->directory->notices, SETUN_LOG_INFO, err,
                          "tensor type %" PRIu32 ": read as %s, the usual order; files do not distinguish the orders "
                                                 "(%s), so assume another one if the text makes no sense",
                          c->type, first->name, names_of(c, names));
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "tensor type %" PRIu32 ": the sizes of its %zu tensors fit several layouts (%s); say which one to "
                 "assume",
                 c->type, c->n_tensors, names_of(c, names));
}

static void collect(choice *c, const st_gguf_tensor *tensors, size_t count) {
  for (const st_format *f = st_format_by_gguf_type(c->type); f && c->n_readings < READINGS_MOST;
       f = st_format_next_reading(f)) {
    c->readings[c->n_readings++] = f;
  }
  size_t n;
  const st_gguf_rival *rivals = st_gguf_rivals(c->type, &n);
  while (c->n_rivals < n && c->n_rivals < RIVALS_MOST) c->rivals[c->n_rivals] = &rivals[c->n_rivals], c->n_rivals++;
  for (size_t i = 0; i < count; i++) c->n_tensors += tensors[i].type == c->type;
}

// Integers and doubles, known only by their size.
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
  if (!c.n_readings && !(c.n_rivals && narrow(&c, tensors, count))) {
    const char *name = st_gguf_type_name(type);
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "tensor type %" PRIu32 "%s%s%s: %s", type, name ? " (" : "",
                   name ? name : "", name ? ")" : "", st_gguf_type_hint(type));
  }
  if (c.n_readings == 1 && !c.n_rivals) {
    *format = c.readings[0];
    return SETUN_OK;
  }
  const char *by;
  if (c.n_readings && (*format = told(b, &c, &by))) {
    return st_notices_add(b->directory->notices, SETUN_LOG_INFO, err, "tensor type %" PRIu32 ": read as %s, %s", type,
                          (*format)->name, by);
  }
  if (!narrow(&c, tensors, count)) {
    char why[320], names[256];
    choice readings = c;
    readings.n_rivals = 0;
    snprintf(why, sizeof why,
             "the distances between the offsets of its %zu tensors fit no supported layout (%s) unless one is "
             "assumed",
             c.n_tensors, names_of(&readings, names));
    return fail_unread(&c, why, err);
  }
  return choose(b, &c, format, err);
}
