// Matching tensor names against the binding tables.
#include "convert/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const st_spec *const specs[] = {
#define ARCH(spec) &spec,
#include "model/arch/archs.def"
#undef ARCH
};
enum { N_SPECS = sizeof specs / sizeof *specs };

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A number without leading zeros, below 2^20.
static bool take_number(const char **text, uint32_t *out) {
  const char *p = *text;
  uint32_t n = 0;
  if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return false;
  for (; is_digit(*p); p++) {
    n = n * 10 + (uint32_t)(*p - '0');
    if (n >= 1u << 20) return false;
  }
  *text = p;
  *out = n;
  return true;
}

// Whether the whole text matches the pattern, where %u is a layer and %e an expert.
static bool matches(const char *pattern, const char *text, uint32_t *layer, uint32_t *expert) {
  while (*pattern) {
    if (pattern[0] == '%' && (pattern[1] == 'u' || pattern[1] == 'e')) {
      if (!take_number(&text, pattern[1] == 'u' ? layer : expert)) return false;
      pattern += 2;
    } else if (*pattern++ != *text++) {
      return false;
    }
  }
  return !*text;
}

static bool is_expert_role(st_role role) {
  return st_role_get(role)->part == ST_OF_EXPERT;
}

static bool find_in(const st_spec *spec, bool gguf, const char *module, st_tensor_use *place) {
  for (const st_binding *b = spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *pattern = st_binding_pattern(b, gguf);
    uint32_t layer = 0, expert = 0;
    if (!pattern || !matches(pattern, module, &layer, &expert)) continue;
    *place = (st_tensor_use){.known = true,
                             .role = b->role,
                             .in_layer = st_role_in_layer(b->role),
                             .layer = layer,
                             .expert_of = is_expert_role(b->role),
                             .stacked = is_expert_role(b->role) && !strstr(pattern, "%e"),
                             .expert = expert};
    return true;
  }
  return false;
}

// Removes a multimodal checkpoint's prefix, at the beginning or after "model.".
static const char *without_prefix(const st_spec *spec, const char *module, char out[ST_USE_NAME]) {
  static const char root[] = "model.";
  size_t n = strlen(spec->hf_prefix), r = sizeof root - 1;
  if (!strncmp(module, spec->hf_prefix, n)) return module + n;
  if (strncmp(module, root, r) || strncmp(module + r, spec->hf_prefix, n)) return module;
  snprintf(out, ST_USE_NAME, "%s%s", root, module + r + n);
  return out;
}

st_tensor_use st_use_of(const st_spec *spec, bool gguf, const char *module) {
  st_tensor_use place = {.role = ST_ROLE_COUNT};
  char text[ST_USE_NAME];
  const char *name = spec && !gguf && spec->hf_prefix ? without_prefix(spec, module, text) : module;
  if (spec ? find_in(spec, gguf, name, &place) : false) return place;
  if (spec && !gguf && name == module) { // checkpoints without a head may omit "model."
    snprintf(text, sizeof text, "model.%s", module);
    if (find_in(spec, gguf, text, &place)) return place;
  }
  for (int i = 0; !spec && i < N_SPECS; i++) {
    if (find_in(specs[i], gguf, name, &place)) return place;
  }
  static const char block[] = "blk.";
  const char *rest = name + sizeof block - 1;
  if (gguf && !strncmp(name, block, sizeof block - 1) && take_number(&rest, &place.layer))
    place.in_layer = *rest == '.';
  return place;
}

static bool name_in(const st_spec *spec, bool gguf, const st_tensor_use *place, char name[ST_USE_NAME]) {
  for (const st_binding *b = spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *pattern = st_binding_pattern(b, gguf);
    if (!pattern || b->role != place->role || (place->expert_of && place->stacked != !strstr(pattern, "%e"))) continue;
    st_fill_name(pattern, place->layer, place->expert, name, ST_USE_NAME);
    return true;
  }
  return false;
}

bool st_use_name(const st_spec *spec, bool gguf, const st_tensor_use *place, char name[ST_USE_NAME]) {
  if (spec) return name_in(spec, gguf, place, name);
  for (int i = 0; i < N_SPECS; i++) {
    if (name_in(specs[i], gguf, place, name)) return true;
  }
  return false;
}

// Before the layers, in them, after them.
static int section(const st_tensor_use *p) {
  if (p->in_layer) return 1;
  return p->role != ST_ROLE_COUNT && st_role_get(p->role)->part == ST_OF_HEAD ? 2 : 0;
}

static int order(uint64_t a, uint64_t b) {
  return a < b ? -1 : a > b;
}

// The experts of a layer come where the first of their roles comes, one after the other.
static st_role rank(const st_tensor_use *p) {
  int role = 0;
  while (p->expert_of && !is_expert_role((st_role)role)) role++;
  return p->expert_of ? (st_role)role : p->role;
}

int st_use_compare(const st_tensor_use *a, const st_tensor_use *b) {
  int c = order((uint64_t)section(a), (uint64_t)section(b));
  if (!c) c = order(a->layer, b->layer);
  if (!c) c = order(rank(a), rank(b));
  if (!c && a->expert_of && b->expert_of) {
    c = order(a->expert, b->expert);
    if (!c) c = order(a->role, b->role);
  }
  return c;
}

bool st_role_is_linear(st_role role) {
  return role != ST_ROLE_COUNT && st_role_get(role)->kind == ST_KIND_LINEAR;
}
