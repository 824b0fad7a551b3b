// Iteration: over sequences and mappings, and lazily through map, select and the like.
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>

typedef enum {
  ITERATE_EMPTY,
  ITERATE_LIST,
  ITERATE_STRING,
  ITERATE_DICT,
  ITERATE_VIEW,
  ITERATE_RANGE,
  ITERATE_GENERATOR, // map, select, reject, selectattr, rejectattr, unique, items
  ITERATE_FILTERED   // a for's test
} iter_kind;

struct st_jinja_iterator {
  iter_kind kind;
  st_jinja_value source;
  size_t at; // elements or bytes so far
  const char *name;
  st_jinja_arguments args;
  bool started, ended;
  st_jinja_iterator *inner;
  const st_jinja_node *loop;
  st_jinja_variables *env;
};

bool st_jinja_is_iterable(st_jinja_value v) {
  switch ((st_jinja_kind)v.kind) {
  case JINJA_UNDEFINED:
  case JINJA_STRING:
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_DICT:
  case JINJA_RANGE:
  case JINJA_VIEW:
  case JINJA_LOOP:
  case JINJA_ITERATOR: return true;
  default: return false;
  }
}

bool st_jinja_iterate(st_jinja_run *run, st_jinja_value v, st_jinja_iterator **out) {
  static const uint8_t kinds[] = {
      [JINJA_UNDEFINED] = ITERATE_EMPTY, [JINJA_STRING] = ITERATE_STRING, [JINJA_LIST] = ITERATE_LIST,
      [JINJA_TUPLE] = ITERATE_LIST,      [JINJA_DICT] = ITERATE_DICT,     [JINJA_RANGE] = ITERATE_RANGE,
      [JINJA_VIEW] = ITERATE_VIEW};
  if (v.kind == JINJA_LOOP) return st_jinja_fail_unsupported(run, "iterating over 'loop' is not supported");
  if (!st_jinja_is_iterable(v))
    return st_jinja_fail_format(run, "a value of type %s cannot be iterated over", st_jinja_type_name(v));
  if (v.kind == JINJA_ITERATOR) {
    *out = v.it;
    return true;
  }
  *out = st_jinja_allocate(run, 1, sizeof **out);
  if (!*out) return false;
  (*out)->kind = (iter_kind)kinds[v.kind];
  (*out)->source = v;
  return true;
}

static st_jinja_step next_char(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out) {
  st_jinja_string *s = it->source.s;
  if (it->at >= s->length) return JINJA_END;
  uint32_t code;
  int n = st_utf8_decode(s->data + it->at, s->length - it->at, &code);
  size_t begin = it->at;
  it->at += n > 0 ? (size_t)n : 1;
  if (!st_jinja_substring(run, s, begin, it->at, out)) return JINJA_FAILED;
  out->s->safe = false; // as Python iterates over Markup
  return JINJA_ITEM;
}

static st_jinja_step next_view(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out) {
  const st_jinja_object *view = it->source.o;
  if (it->at >= view->self.d->n) return JINJA_END;
  st_jinja_pair pair = view->self.d->pairs[it->at++];
  if (view->id == JINJA_VIEW_ITEMS)
    return st_jinja_new_pair(run, pair.key, pair.value, out) ? JINJA_ITEM : JINJA_FAILED;
  *out = view->id == JINJA_VIEW_KEYS ? pair.key : pair.value;
  return JINJA_ITEM;
}

// ---- generators ----

static const st_jinja_value *keyword(const st_jinja_arguments *args, const char *name) {
  for (size_t i = 0; i < args->n_keywords; i++) {
    if (st_jinja_string_is(args->keywords[i].name, name)) return &args->keywords[i].value;
  }
  return NULL;
}

static bool to_text(st_jinja_run *run, st_jinja_value v, const char *what) {
  return v.kind == JINJA_STRING ||
         st_jinja_fail_format(run, "expected the name of a %s, found %s", what, st_jinja_type_name(v));
}

// Applies attribute= to one item.
bool st_jinja_attribute_path(st_jinja_run *run, st_jinja_value item, st_jinja_value path, st_jinja_value *out) {
  *out = item;
  if (path.kind == JINJA_NONE || path.kind == JINJA_MISSING) return true;
  if (path.kind != JINJA_STRING) return st_jinja_get_item(run, item, path, out);
  size_t begin = 0;
  for (;;) {
    size_t end = begin;
    bool digits = true;
    for (; end < path.s->length && path.s->data[end] != '.'; end++) {
      digits = digits && path.s->data[end] >= '0' && path.s->data[end] <= '9';
    }
    st_jinja_value part;
    int64_t index;
    bool over;
    if (!st_jinja_substring(run, path.s, begin, end, &part)) return false;
    if (digits && end > begin && st_jinja_parse_int(part.s, &index, &over) && !over) part = st_jinja_from_int(index);
    if (!st_jinja_get_item(run, *out, part, out)) return false;
    if (end >= path.s->length) return true;
    begin = end + 1;
  }
}

static st_jinja_arguments without_first(const st_jinja_arguments *args, size_t n) {
  st_jinja_arguments rest = *args;
  rest.items += n;
  rest.n -= n;
  return rest;
}

static bool map_item(st_jinja_run *run, const st_jinja_iterator *it, st_jinja_value item, st_jinja_value *out) {
  const st_jinja_value *attribute = keyword(&it->args, "attribute"), *fallback = keyword(&it->args, "default");
  if (it->args.n || !attribute) {
    if (!it->args.n) return st_jinja_fail_format(run, "map needs the name of a filter or an attribute");
    st_jinja_arguments rest = without_first(&it->args, 1);
    return to_text(run, it->args.items[0], "filter") &&
           st_jinja_apply_filter(run, it->args.items[0].s, item, &rest, out);
  }
  if (it->args.n_keywords > (fallback ? 2u : 1u)) return st_jinja_fail_format(run, "map does not take this parameter");
  if (!fallback || fallback->kind == JINJA_NONE) return st_jinja_attribute_path(run, item, *attribute, out);
  // The default replaces every undefined step of the path.
  if (attribute->kind != JINJA_STRING) {
    if (!st_jinja_attribute_path(run, item, *attribute, out)) return false;
    if (out->kind == JINJA_UNDEFINED) *out = *fallback;
    return true;
  }
  st_jinja_value parts, dot;
  *out = item;
  if (!st_jinja_copy_text(run, ".", &dot) || !st_jinja_split_text(run, attribute->s, dot.s, -1, &parts)) return false;
  for (size_t i = 0; i < parts.l->n; i++) {
    if (!st_jinja_attribute_path(run, *out, parts.l->items[i], out)) return false;
    if (out->kind == JINJA_UNDEFINED) *out = *fallback;
  }
  return true;
}

static bool select_item(st_jinja_run *run, const st_jinja_iterator *it, st_jinja_value item, bool *keep) {
  bool by_attribute = !strcmp(it->name, "selectattr") || !strcmp(it->name, "rejectattr");
  size_t off = by_attribute;
  if (it->args.n < off) return st_jinja_fail_format(run, "%s needs the name of an attribute", it->name);
  if (by_attribute && !st_jinja_attribute_path(run, item, it->args.items[0], &item)) return false;
  if (it->args.n == off) {
    if (!st_jinja_to_boolean(run, item, keep)) return false;
  } else {
    st_jinja_arguments rest = without_first(&it->args, off + 1);
    if (!to_text(run, it->args.items[off], "test")) return false;
    if (!st_jinja_apply_test(run, it->args.items[off].s, item, &rest, keep)) return false;
  }
  if (it->name[0] == 'r') *keep = !*keep;
  return true;
}

static bool start_generator(st_jinja_run *run, st_jinja_iterator *it) {
  it->started = true;
  bool some = true;
  if (!strcmp(it->name, "items")) {
    if (it->source.kind == JINJA_UNDEFINED)
      some = false;
    else if (it->source.kind != JINJA_DICT)
      return st_jinja_fail_format(run, "items expects a mapping, found %s", st_jinja_type_name(it->source));
    st_jinja_object *view = st_jinja_allocate(run, 1, sizeof *view);
    if (!view) return false;
    *view = (st_jinja_object){.id = JINJA_VIEW_ITEMS, .self = it->source};
    it->source = (st_jinja_value){.kind = JINJA_VIEW, .o = view};
  } else if (!strcmp(it->name, "unique")) { // its elements are computed all at once
    st_jinja_value list;
    return st_jinja_unique_list(run, it->source, &it->args, &list) && st_jinja_iterate(run, list, &it->inner);
  } else if (!st_jinja_to_boolean(run, it->source, &some))
    return false;
  it->ended = !some;
  if (!some) return true;
  // Wrong arguments are an error before the first element is evaluated.
  if (!strcmp(it->name, "map") && !it->args.n && !keyword(&it->args, "attribute")) {
    return st_jinja_fail_format(run, "map needs the name of a filter or an attribute");
  }
  return st_jinja_iterate(run, it->source, &it->inner);
}

static st_jinja_step next_generated(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out) {
  if (!it->started && !start_generator(run, it)) return JINJA_FAILED;
  while (!it->ended) {
    st_jinja_value item;
    bool keep;
    st_jinja_step next = st_jinja_next(run, it->inner, &item);
    if (next != JINJA_ITEM) {
      it->ended = true;
      return next;
    }
    *out = item;
    if (!strcmp(it->name, "items") || !strcmp(it->name, "unique")) return JINJA_ITEM;
    if (!strcmp(it->name, "map")) return map_item(run, it, item, out) ? JINJA_ITEM : JINJA_FAILED;
    if (!select_item(run, it, item, &keep)) return JINJA_FAILED;
    if (keep) return JINJA_ITEM;
  }
  return JINJA_END;
}

bool st_jinja_generator(st_jinja_run *run, const char *name, st_jinja_value source, const st_jinja_arguments *args,
                        st_jinja_value *out) {
  st_jinja_iterator *it = st_jinja_allocate(run, 1, sizeof *it);
  if (!it) return false;
  *it = (st_jinja_iterator){.kind = ITERATE_GENERATOR, .source = source, .name = name, .args = *args};
  *out = (st_jinja_value){.kind = JINJA_ITERATOR, .it = it};
  return true;
}

// ---- a for's test ----

// The value of a target after it was assigned: a tuple where it is one.
static bool read_target(st_jinja_run *run, const st_jinja_variables *env, const st_jinja_node *target,
                        st_jinja_value *out) {
  if (target->kind == NODE_NAME) {
    *out = env->slots[target->slot];
    return true;
  }
  if (!st_jinja_new_list(run, JINJA_TUPLE, target->list.n, out)) return false;
  for (size_t i = 0; i < target->list.n; i++) {
    st_jinja_value item;
    if (!read_target(run, env, target->list.items[i], &item) || !st_jinja_list_append(run, out->l, item)) return false;
  }
  return true;
}

static st_jinja_step next_filtered(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out) {
  const st_jinja_node *target = it->loop->params.items[0];
  if (!it->started) {
    it->started = true;
    st_jinja_variables *env = st_jinja_new_variables(run, it->env, it->loop->n_test_slots);
    if (!env || !st_jinja_iterate(run, it->source, &it->inner)) return JINJA_FAILED;
    it->env = env;
    st_jinja_enter_scope(run, env, it->loop->scope_test);
  }
  for (;;) {
    st_jinja_value item, test;
    bool keep;
    st_jinja_step next = st_jinja_next(run, it->inner, &item);
    if (next != JINJA_ITEM) return next;
    if (!st_jinja_assign(run, it->env, target, item) || !st_jinja_evaluate(run, it->env, it->loop->c, &test) ||
        !st_jinja_to_boolean(run, test, &keep))
      return JINJA_FAILED;
    if (keep) return read_target(run, it->env, target, out) ? JINJA_ITEM : JINJA_FAILED;
  }
}

bool st_jinja_filtered(st_jinja_run *run, const st_jinja_node *loop, st_jinja_variables *env, st_jinja_value source,
                       st_jinja_value *out) {
  st_jinja_iterator *it = st_jinja_allocate(run, 1, sizeof *it);
  if (!it) return false;
  *it = (st_jinja_iterator){.kind = ITERATE_FILTERED, .source = source, .loop = loop, .env = env};
  *out = (st_jinja_value){.kind = JINJA_ITERATOR, .it = it};
  return true;
}

// ---- all of them ----

st_jinja_step st_jinja_next(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out) {
  if (!st_jinja_charge(run, 1)) return JINJA_FAILED;
  size_t at = it->at;
  switch (it->kind) {
  case ITERATE_EMPTY: return JINJA_END;
  case ITERATE_LIST:
    if (at >= it->source.l->n) return JINJA_END;
    *out = it->source.l->items[it->at++];
    return JINJA_ITEM;
  case ITERATE_STRING: return next_char(run, it, out);
  case ITERATE_DICT:
    if (at >= it->source.d->n) return JINJA_END;
    *out = it->source.d->pairs[it->at++].key;
    return JINJA_ITEM;
  case ITERATE_VIEW: return next_view(run, it, out);
  case ITERATE_RANGE:
    if ((int64_t)at >= it->source.o->count) return JINJA_END;
    *out = st_jinja_from_int(it->source.o->start + (int64_t)it->at++ * it->source.o->step);
    return JINJA_ITEM;
  case ITERATE_GENERATOR:
  case ITERATE_FILTERED: break;
  }
  if (!st_jinja_nest(run)) return JINJA_FAILED;
  st_jinja_step next = it->kind == ITERATE_GENERATOR ? next_generated(run, it, out) : next_filtered(run, it, out);
  run->depth--;
  return next;
}

bool st_jinja_to_list(st_jinja_run *run, st_jinja_value v, st_jinja_kind kind, st_jinja_value *out) {
  st_jinja_iterator *it;
  st_jinja_value item;
  st_jinja_step next;
  if (!st_jinja_iterate(run, v, &it) || !st_jinja_new_list(run, kind, 0, out)) return false;
  while ((next = st_jinja_next(run, it, &item)) == JINJA_ITEM) {
    if (!st_jinja_list_append(run, out->l, item)) return false;
  }
  return next == JINJA_END;
}
