// Iteration: over sequences and mappings, and lazily through map, select and the like.
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>

typedef enum {
  I_EMPTY,
  I_LIST,
  I_REVERSED,
  I_STRING,
  I_DICT,
  I_VIEW,
  I_RANGE,
  I_GENERATOR, // map, select, reject, selectattr, rejectattr, items
  I_FILTERED   // a for's test
} iter_kind;

struct st_jiter {
  iter_kind kind;
  st_jval source;
  size_t at; // elements or bytes gone by
  const char *name;
  st_jargs args;
  bool started, ended;
  st_jiter *inner;
  const st_jnode *loop;
  st_jenv *env;
};

bool st_j_can_iterate(st_jval v) {
  switch ((st_jkind)v.kind) {
  case J_UNDEFINED:
  case J_STRING:
  case J_LIST:
  case J_TUPLE:
  case J_DICT:
  case J_RANGE:
  case J_VIEW:
  case J_LOOP:
  case J_ITER: return true;
  default: return false;
  }
}

bool st_j_iterate(st_jrun *run, st_jval v, st_jiter **out) {
  static const uint8_t kinds[] = {[J_UNDEFINED] = I_EMPTY, [J_STRING] = I_STRING, [J_LIST] = I_LIST, [J_TUPLE] = I_LIST,
                                  [J_DICT] = I_DICT,       [J_RANGE] = I_RANGE,   [J_VIEW] = I_VIEW};
  if (v.kind == J_LOOP) return st_j_refuse(run, "iterating over 'loop'");
  if (!st_j_can_iterate(v)) return st_j_wrong(run, "a value of type %s cannot be iterated over", st_j_type(v));
  if (v.kind == J_ITER) {
    *out = v.it;
    return true;
  }
  *out = st_j_alloc(run, 1, sizeof **out);
  if (!*out) return false;
  (*out)->kind = (iter_kind)kinds[v.kind];
  (*out)->source = v;
  return true;
}

static st_jnext next_char(st_jrun *run, st_jiter *it, st_jval *out) {
  st_jstr *s = it->source.s;
  if (it->at >= s->length) return J_END;
  uint32_t code;
  int n = st_utf8_decode(s->data + it->at, s->length - it->at, &code);
  size_t begin = it->at;
  it->at += n > 0 ? (size_t)n : 1;
  if (!st_j_substring(run, s, begin, it->at, out)) return J_FAILED;
  out->s->safe = false; // as Python iterates over Markup
  return J_ITEM;
}

static st_jnext next_view(st_jrun *run, st_jiter *it, st_jval *out) {
  const st_jobject *view = it->source.o;
  if (it->at >= view->self.d->n) return J_END;
  st_jpair pair = view->self.d->pairs[it->at++];
  if (view->id == J_VIEW_ITEMS) return st_j_pair(run, pair.key, pair.value, out) ? J_ITEM : J_FAILED;
  *out = view->id == J_VIEW_KEYS ? pair.key : pair.value;
  return J_ITEM;
}

// ---- generators ----

static const st_jval *keyword(const st_jargs *args, const char *name) {
  for (size_t i = 0; i < args->n_keywords; i++) {
    if (st_j_is(args->keywords[i].name, name)) return &args->keywords[i].value;
  }
  return NULL;
}

static bool to_text(st_jrun *run, st_jval v, const char *what) {
  return v.kind == J_STRING || st_j_wrong(run, "expected the name of a %s, found %s", what, st_j_type(v));
}

// What attribute= says of one item.
bool st_j_attribute_path(st_jrun *run, st_jval item, st_jval path, st_jval *out) {
  *out = item;
  if (path.kind == J_NONE || path.kind == J_MISSING) return true;
  if (path.kind != J_STRING) return st_j_getitem(run, item, path, out);
  size_t begin = 0;
  for (;;) {
    size_t end = begin;
    bool digits = true;
    for (; end < path.s->length && path.s->data[end] != '.'; end++) {
      digits = digits && path.s->data[end] >= '0' && path.s->data[end] <= '9';
    }
    st_jval part;
    int64_t index;
    bool over;
    if (!st_j_substring(run, path.s, begin, end, &part)) return false;
    if (digits && end > begin && st_j_parse_int(part.s, 10, &index, &over) && !over) part = st_j_int(index);
    if (!st_j_getitem(run, *out, part, out)) return false;
    if (end >= path.s->length) return true;
    begin = end + 1;
  }
}

static st_jargs without_first(const st_jargs *args, size_t n) {
  st_jargs rest = *args;
  rest.items += n;
  rest.n -= n;
  return rest;
}

static bool map_item(st_jrun *run, const st_jiter *it, st_jval item, st_jval *out) {
  const st_jval *attribute = keyword(&it->args, "attribute"), *fallback = keyword(&it->args, "default");
  if (it->args.n || !attribute) {
    if (!it->args.n) return st_j_wrong(run, "map needs the name of a filter or an attribute");
    st_jargs rest = without_first(&it->args, 1);
    return to_text(run, it->args.items[0], "filter") && st_j_filter(run, it->args.items[0].s, item, &rest, out);
  }
  if (it->args.n_keywords > (fallback ? 2u : 1u)) return st_j_wrong(run, "map has no such parameter");
  if (!fallback || fallback->kind == J_NONE) return st_j_attribute_path(run, item, *attribute, out);
  // The default takes the place of every undefined step on the way.
  if (attribute->kind != J_STRING) {
    if (!st_j_attribute_path(run, item, *attribute, out)) return false;
    if (out->kind == J_UNDEFINED) *out = *fallback;
    return true;
  }
  st_jval parts, dot;
  *out = item;
  if (!st_j_copy(run, ".", &dot) || !st_j_split(run, attribute->s, dot.s, -1, false, &parts)) return false;
  for (size_t i = 0; i < parts.l->n; i++) {
    if (!st_j_attribute_path(run, *out, parts.l->items[i], out)) return false;
    if (out->kind == J_UNDEFINED) *out = *fallback;
  }
  return true;
}

static bool select_item(st_jrun *run, const st_jiter *it, st_jval item, bool *keep) {
  bool by_attribute = !strcmp(it->name, "selectattr") || !strcmp(it->name, "rejectattr");
  size_t off = by_attribute;
  if (it->args.n < off) return st_j_wrong(run, "%s needs the name of an attribute", it->name);
  if (by_attribute && !st_j_attribute_path(run, item, it->args.items[0], &item)) return false;
  if (it->args.n == off) {
    if (!st_j_truth(run, item, keep)) return false;
  } else {
    st_jargs rest = without_first(&it->args, off + 1);
    if (!to_text(run, it->args.items[off], "test")) return false;
    if (!st_j_test(run, it->args.items[off].s, item, &rest, keep)) return false;
  }
  if (it->name[0] == 'r') *keep = !*keep;
  return true;
}

// unique, batch and slice: their elements are made all at once.
static bool is_listed(const st_jiter *it) {
  return !strcmp(it->name, "unique") || !strcmp(it->name, "batch") || !strcmp(it->name, "slice");
}

static bool start_generator(st_jrun *run, st_jiter *it) {
  it->started = true;
  bool some = true;
  if (!strcmp(it->name, "items")) {
    if (it->source.kind == J_UNDEFINED)
      some = false;
    else if (it->source.kind != J_DICT)
      return st_j_wrong(run, "items expects a mapping, found %s", st_j_type(it->source));
    st_jobject *view = st_j_alloc(run, 1, sizeof *view);
    if (!view) return false;
    *view = (st_jobject){.id = J_VIEW_ITEMS, .self = it->source};
    it->source = (st_jval){.kind = J_VIEW, .o = view};
  } else if (is_listed(it)) {
    st_jval list;
    return st_j_generated_list(run, it->name, it->source, &it->args, &list) && st_j_iterate(run, list, &it->inner);
  } else if (!st_j_truth(run, it->source, &some))
    return false;
  it->ended = !some;
  if (!some) return true;
  // A wrong list of arguments is an error before the first element is looked at.
  if (!strcmp(it->name, "map") && !it->args.n && !keyword(&it->args, "attribute")) {
    return st_j_wrong(run, "map needs the name of a filter or an attribute");
  }
  return st_j_iterate(run, it->source, &it->inner);
}

static st_jnext next_generated(st_jrun *run, st_jiter *it, st_jval *out) {
  if (!it->started && !start_generator(run, it)) return J_FAILED;
  while (!it->ended) {
    st_jval item;
    bool keep;
    st_jnext next = st_j_next(run, it->inner, &item);
    if (next != J_ITEM) {
      it->ended = true;
      return next;
    }
    *out = item;
    if (!strcmp(it->name, "items") || is_listed(it)) return J_ITEM;
    if (!strcmp(it->name, "map")) return map_item(run, it, item, out) ? J_ITEM : J_FAILED;
    if (!select_item(run, it, item, &keep)) return J_FAILED;
    if (keep) return J_ITEM;
  }
  return J_END;
}

bool st_j_generator(st_jrun *run, const char *name, st_jval source, const st_jargs *args, st_jval *out) {
  st_jiter *it = st_j_alloc(run, 1, sizeof *it);
  if (!it) return false;
  *it = (st_jiter){.kind = I_GENERATOR, .source = source, .name = name, .args = *args};
  *out = (st_jval){.kind = J_ITER, .it = it};
  return true;
}

// ---- a for's test ----

// The value of a target after it was assigned: a tuple where it is one.
static bool read_target(st_jrun *run, const st_jenv *env, const st_jnode *target, st_jval *out) {
  if (target->kind == N_NAME) {
    *out = env->slots[target->slot];
    return true;
  }
  if (!st_j_list(run, J_TUPLE, target->list.n, out)) return false;
  for (size_t i = 0; i < target->list.n; i++) {
    st_jval item;
    if (!read_target(run, env, target->list.items[i], &item) || !st_j_append(run, out->l, item)) return false;
  }
  return true;
}

static st_jnext next_filtered(st_jrun *run, st_jiter *it, st_jval *out) {
  const st_jnode *target = it->loop->params.items[0];
  if (!it->started) {
    it->started = true;
    st_jenv *env = st_j_new_env(run, it->env, it->loop->n_test_slots);
    if (!env || !st_j_iterate(run, it->source, &it->inner)) return J_FAILED;
    it->env = env;
    st_j_enter(run, env, it->loop->frame_test);
  }
  for (;;) {
    st_jval item, test;
    bool keep;
    st_jnext next = st_j_next(run, it->inner, &item);
    if (next != J_ITEM) return next;
    if (!st_j_assign(run, it->env, target, item) || !st_j_eval(run, it->env, it->loop->c, &test) ||
        !st_j_truth(run, test, &keep))
      return J_FAILED;
    if (keep) return read_target(run, it->env, target, out) ? J_ITEM : J_FAILED;
  }
}

bool st_j_filtered(st_jrun *run, const st_jnode *loop, st_jenv *env, st_jval source, st_jval *out) {
  st_jiter *it = st_j_alloc(run, 1, sizeof *it);
  if (!it) return false;
  *it = (st_jiter){.kind = I_FILTERED, .source = source, .loop = loop, .env = env};
  *out = (st_jval){.kind = J_ITER, .it = it};
  return true;
}

// ---- all of them ----

st_jnext st_j_next(st_jrun *run, st_jiter *it, st_jval *out) {
  if (!st_j_charge(run, 1)) return J_FAILED;
  size_t at = it->at;
  switch (it->kind) {
  case I_EMPTY: return J_END;
  case I_LIST:
    if (at >= it->source.l->n) return J_END;
    *out = it->source.l->items[it->at++];
    return J_ITEM;
  case I_REVERSED:
    if (at >= it->source.l->n) return J_END;
    *out = it->source.l->items[it->source.l->n - ++it->at];
    return J_ITEM;
  case I_STRING: return next_char(run, it, out);
  case I_DICT:
    if (at >= it->source.d->n) return J_END;
    *out = it->source.d->pairs[it->at++].key;
    return J_ITEM;
  case I_VIEW: return next_view(run, it, out);
  case I_RANGE:
    if ((int64_t)at >= it->source.o->count) return J_END;
    *out = st_j_int(it->source.o->start + (int64_t)it->at++ * it->source.o->step);
    return J_ITEM;
  case I_GENERATOR:
  case I_FILTERED: break;
  }
  st_jnext next = J_FAILED;
  if (st_j_deeper(run)) next = it->kind == I_GENERATOR ? next_generated(run, it, out) : next_filtered(run, it, out);
  run->depth--;
  return next;
}

bool st_j_to_list(st_jrun *run, st_jval v, st_jkind kind, st_jval *out) {
  st_jiter *it;
  st_jval item;
  st_jnext next;
  if (!st_j_iterate(run, v, &it) || !st_j_list(run, kind, 0, out)) return false;
  while ((next = st_j_next(run, it, &item)) == J_ITEM) {
    if (!st_j_append(run, out->l, item)) return false;
  }
  return next == J_END;
}

bool st_j_reversed(st_jrun *run, st_jval v, bool *can, st_jval *out) {
  *can = v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_RANGE || v.kind == J_DICT || v.kind == J_VIEW ||
         v.kind == J_STRING || v.kind == J_UNDEFINED;
  if (!*can) return true;
  st_jiter *it = st_j_alloc(run, 1, sizeof *it);
  if (!it) return false;
  it->kind = I_REVERSED;
  if (!st_j_to_list(run, v, J_LIST, &it->source)) return false;
  *out = (st_jval){.kind = J_ITER, .it = it};
  return true;
}
