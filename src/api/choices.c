// setun.h: the choices by name. The lists follow from the library's tables, so that a new row is a new choice.
#include "api/api.h"

#include "backend/backend.h"
#include "quant/quant.h"
#include "quantize/quantize.h"
#include "synthetic/presets.h"

#include <string.h>

// The formats that pass a test, in the order of their table, each followed by its name with dividing scales.
static const char *format_name(size_t index, bool (*is_choice)(const st_format *f)) {
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!is_choice(f)) continue;
    if (index-- == 0) return f->name;
    if (f->ops->dividing && index-- == 0) return f->ops->dividing;
  }
  return NULL;
}

static bool is_layout(const st_format *f) {
  return st_format_is_layout(f);
}
static bool is_fine(const st_format *f) {
  return st_format_is_fine(f);
}
static bool is_written(const st_format *f) {
  return st_format_is_written(f);
}

const char *setun_choice_name(setun_choice choice, size_t index) {
  switch (choice) {
  case SETUN_CHOICE_ISA: return st_backend_find(NULL)->isa_name(index);
  case SETUN_CHOICE_ASSUME: return format_name(index, st_format_is_ambiguous);
  case SETUN_CHOICE_LAYOUT: return format_name(index, is_layout);
  case SETUN_CHOICE_EMBEDDING: return index ? format_name(index - 1, is_fine) : "keep";
  case SETUN_CHOICE_SYNTHETIC: return format_name(index, is_written);
  case SETUN_CHOICE_SCHEME: return st_scheme_name(index);
  case SETUN_CHOICE_SHAPE: return st_preset_name(index);
  case SETUN_CHOICE_KV: return st_backend_find(NULL)->cache_format_name((setun_kv_type)index);
  }
  return NULL;
}
