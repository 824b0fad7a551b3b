// Conversion of weights in a rotated basis: the basis is kept and declared with the target's names, or undone in
// floats.
#include "convert/conversion.h"

#include "base/memory.h"

#include <string.h>

// Tensors that are not weights, or hold scales, have no pieces.
static setun_status mark(const st_conversion *p, st_item *item, setun_error *err) {
  for (size_t i = 0; i < item->n_pieces; i++) {
    bool rotated = st_rotation_has(p->rotation, item->pieces[i].weight.data->name);
    if (!i) item->rotated = rotated && !item->suffix;
    if (rotated == item->rotated || item->suffix) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected all of its parts in the same basis, found only some in a rotated one", item->name);
  }
  return SETUN_OK;
}

// Checks whether the basis can be undone.
static setun_status undo(const st_conversion *p, st_item *item, setun_error *err) {
  if (!item->rotated) return SETUN_OK;
  if (!st_format_is_number(p->o->to)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: in a rotated basis, which can be undone only in floats: expected f32, f16 or bf16, found %s",
                   item->name, p->o->to->name);
  }
  item->undone = p->rotation;
  return SETUN_OK;
}

setun_status st_conversion_rotation(st_conversion *p, setun_error *err) {
  if (!p->rotation) {
    if (!p->o->unrotate) return SETUN_OK;
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected weights in a rotated basis, found none", p->d->path);
  }
  setun_status s = st_rotation_check(p->rotation, p->d, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    s = mark(p, &p->items[i], err);
    if (s == SETUN_OK && p->o->unrotate) s = undo(p, &p->items[i], err);
  }
  return s;
}

// The target's names of rotated tensors, and the embedding's; NULL: none, or out of memory.
static st_text *list_names(const st_conversion *p, size_t *n, const char **embedding) {
  st_text *names = st_malloc(p->n_items, sizeof *names);
  *n = 0;
  *embedding = NULL;
  for (size_t i = 0; names && i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    if (!item->rotated) continue;
    const char *source = item->pieces[0].weight.data->name;
    if (p->rotation->embedding && !strcmp(source, p->rotation->embedding))
      *embedding = item->name;
    else
      names[(*n)++] = (st_text){item->name, strlen(item->name)};
  }
  return names;
}

setun_status st_conversion_rotation_keys(const st_conversion *p, st_keys *keys, setun_error *err) {
  size_t n;
  const char *embedding;
  if (!p->rotation || p->o->unrotate) return SETUN_OK;
  st_text *names = list_names(p, &n, &embedding);
  if (!names) return st_fail_memory(err, "the keys");
  st_rotation_write_gguf(p->rotation, names, n, embedding, keys);
  st_free(names);
  return SETUN_OK;
}

// config.json's model_type gets a prefix, so that other readers refuse the weights.
setun_status st_conversion_rotation_config(const st_conversion *p, st_json *config, setun_error *err) {
  size_t n;
  const char *embedding, *type = st_rotation_plain_type(st_json_string(st_json_get(config, "model_type")));
  if (!p->rotation || !type) return SETUN_OK;
  st_buffer name = {0};
  st_text *names = list_names(p, &n, &embedding);
  bool ok = names && (p->o->unrotate || st_buffer_text(&name, ST_ROTATION_MODEL_TYPE)) && st_buffer_text(&name, type);
  st_json_delete(config, ST_ROTATION_MEMBER);
  if (ok) st_json_set(config, config, "model_type", st_json_make_text(config, name.data));
  if (ok && !p->o->unrotate) st_rotation_write_config(p->rotation, names, n, embedding, config);
  st_buffer_free(&name);
  st_free(names);
  return ok ? SETUN_OK : st_fail_memory(err, "config.json");
}
