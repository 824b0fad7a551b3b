// The scope of each variable. Jinja compiles a template to Python functions and decides at compile time, scope by
// scope, which variable a name means; what a template sees before its first `set`, inside loops and in macros follows
// from that. This repeats its rules: a scope's names are collected in order, a name that is read first comes from the
// outer scopes or the context, and one that is set first in a scope starts as a copy of the outer one.
#include "jinja/run.h"

#include <string.h>

// A function of the template: the whole, a macro, a for's test, ... Its variables are distinguished by name and by the
// depth of their scope (like Jinja's Python variables l_1_name).
typedef struct function {
  struct function *parent;
  struct {
    const st_jinja_string *name;
    int level;
  } * variables;
  size_t n, capacity;
} function;

typedef struct {
  const st_jinja_string *name;
  function *owner;
  uint32_t slot;
} reference;

typedef struct symbols {
  struct symbols *parent;
  int level;
  function *owner;
  reference *refs;
  size_t n_refs, refs_capacity;
  st_jinja_scope loads;
  const st_jinja_string **stores;
  size_t n_stores, stores_capacity;
} symbols;

typedef struct {
  st_jinja_compiler *c;
} resolver;

static bool grow(resolver *r, void *items, size_t n, size_t *capacity, size_t size) {
  if (n < *capacity) return true;
  size_t wanted = *capacity ? *capacity * 2 : 8;
  void *old, *grown = st_jinja_compile_allocate(r->c, wanted, size);
  if (!grown) return false;
  memcpy(&old, items, sizeof old);
  if (n) memcpy(grown, old, n * size);
  memcpy(items, &grown, sizeof grown);
  *capacity = wanted;
  return true;
}

// Compiling is bounded too: these tables are searched linearly.
static bool charge(resolver *r, size_t n) {
  if (r->c->steps_left > n) {
    r->c->steps_left -= n;
    return true;
  }
  return st_jinja_unsupported_syntax(r->c, (st_jinja_place){1, 1},
                                     "a template with so many variables and scopes is not supported");
}

static bool variable(resolver *r, symbols *sym, const st_jinja_string *name, uint32_t *slot) {
  function *f = sym->owner;
  if (!charge(r, f->n / 4 + 1)) return false;
  for (size_t i = 0; i < f->n; i++) {
    *slot = (uint32_t)i;
    if (f->variables[i].level == sym->level && st_jinja_same_text(f->variables[i].name, name)) return true;
  }
  if (!grow(r, &f->variables, f->n, &f->capacity, sizeof *f->variables)) return false;
  f->variables[f->n].name = name;
  f->variables[f->n].level = sym->level;
  *slot = (uint32_t)f->n++;
  return true;
}

static reference *own_ref(symbols *sym, const st_jinja_string *name) {
  for (size_t i = 0; i < sym->n_refs; i++) {
    if (st_jinja_same_text(sym->refs[i].name, name)) return &sym->refs[i];
  }
  return NULL;
}

static reference *find_ref(symbols *sym, const st_jinja_string *name) {
  for (; sym; sym = sym->parent) {
    reference *ref = own_ref(sym, name);
    if (ref) return ref;
  }
  return NULL;
}

static uint32_t functions_out(const symbols *sym, const function *owner) {
  uint32_t n = 0;
  for (const function *f = sym->owner; f != owner; f = f->parent) n++;
  return n;
}

static bool set_load(resolver *r, symbols *sym, st_jinja_load load) {
  for (size_t i = 0; i < sym->loads.n; i++) {
    if (sym->loads.loads[i].slot != load.slot) continue;
    sym->loads.loads[i] = load;
    return true;
  }
  if (!grow(r, &sym->loads.loads, sym->loads.n, &sym->loads.capacity, sizeof load)) return false;
  sym->loads.loads[sym->loads.n++] = load;
  return true;
}

static bool define(resolver *r, symbols *sym, const st_jinja_string *name, st_jinja_load_action action,
                   const reference *outer) {
  uint32_t slot;
  if (!charge(r, sym->n_refs / 4 + 1) || !variable(r, sym, name, &slot)) return false;
  reference *ref = own_ref(sym, name);
  if (!ref) {
    if (!grow(r, &sym->refs, sym->n_refs, &sym->refs_capacity, sizeof *sym->refs)) return false;
    ref = &sym->refs[sym->n_refs++];
  }
  st_jinja_load load = {.action = action, .slot = slot, .name = name};
  if (outer) load.from = outer->slot, load.up = functions_out(sym, outer->owner);
  *ref = (reference){name, sym->owner, slot};
  return set_load(r, sym, load);
}

static bool stores(const symbols *sym, const st_jinja_string *name) {
  for (size_t i = 0; i < sym->n_stores; i++) {
    if (st_jinja_same_text(sym->stores[i], name)) return true;
  }
  return false;
}

static bool add_store(resolver *r, symbols *sym, const st_jinja_string *name) {
  if (stores(sym, name)) return true;
  if (!charge(r, sym->n_stores / 4 + 1)) return false;
  if (!grow(r, &sym->stores, sym->n_stores, &sym->stores_capacity, sizeof *sym->stores)) return false;
  sym->stores[sym->n_stores++] = name;
  return true;
}

static bool on_store(resolver *r, symbols *sym, const st_jinja_string *name) {
  if (!add_store(r, sym, name)) return false;
  if (own_ref(sym, name)) return true;
  const reference *outer = sym->parent ? find_ref(sym->parent, name) : NULL;
  return define(r, sym, name, outer ? JINJA_LOAD_ALIAS : JINJA_LOAD_UNDEFINED, outer);
}

static bool on_parameter(resolver *r, symbols *sym, const st_jinja_string *name) {
  return add_store(r, sym, name) && define(r, sym, name, JINJA_LOAD_PARAMETER, NULL);
}

static bool on_load(resolver *r, symbols *sym, const st_jinja_string *name, st_jinja_place place) {
  static const char *const special[] = {"caller", "kwargs", "varargs"}; // a macro that reads them is called differently
  if (!charge(r, sym->n_refs / 4 + 1)) return false;
  if (find_ref(sym, name)) return true;
  for (size_t i = 0; sym->owner->parent && i < sizeof special / sizeof *special; i++) {
    if (!st_jinja_string_is(name, special[i])) continue;
    return st_jinja_unsupported_syntax(r->c, place, "'%s' in a macro is not supported", special[i]);
  }
  return define(r, sym, name, JINJA_LOAD_RESOLVE, NULL);
}

// ---- collecting the names of a scope ----

static bool collect(resolver *r, symbols *sym, const st_jinja_node *node);

static bool collect_all(resolver *r, symbols *sym, const st_jinja_nodes *list) {
  for (size_t i = 0; i < list->n; i++) {
    if (!collect(r, sym, list->items[i])) return false;
  }
  return true;
}

static bool collect_target(resolver *r, symbols *sym, const st_jinja_node *target, bool parameter) {
  if (target->kind == NODE_NAME) {
    return parameter ? on_parameter(r, sym, target->value.s) : on_store(r, sym, target->value.s);
  }
  if (target->kind == NODE_ATTRIBUTE_TARGET) return on_load(r, sym, target->value.s, target->place);
  for (size_t i = 0; i < target->list.n; i++) {
    if (!collect_target(r, sym, target->list.items[i], parameter)) return false;
  }
  return true;
}

static bool copy_symbols(resolver *r, const symbols *from, symbols *to) {
  *to = *from;
  size_t n = from->n_refs + from->loads.n + from->n_stores;
  if (!charge(r, n + 1)) return false;
  to->refs = st_jinja_compile_allocate(r->c, from->n_refs + 1, sizeof *to->refs);
  to->loads.loads = st_jinja_compile_allocate(r->c, from->loads.n + 1, sizeof *to->loads.loads);
  to->stores = st_jinja_compile_allocate(r->c, from->n_stores + 1, sizeof *to->stores);
  if (!to->refs || !to->loads.loads || !to->stores) return false;
  if (from->n_refs) memcpy(to->refs, from->refs, from->n_refs * sizeof *to->refs);
  if (from->loads.n) memcpy(to->loads.loads, from->loads.loads, from->loads.n * sizeof *to->loads.loads);
  if (from->n_stores) memcpy(to->stores, from->stores, from->n_stores * sizeof *to->stores);
  to->refs_capacity = from->n_refs + 1;
  to->loads.capacity = from->loads.n + 1;
  to->stores_capacity = from->n_stores + 1;
  return true;
}

// Variables set in the branches of an if may or may not be set after it, so they start as the outer variable or from
// the context.
static bool merge_branches(resolver *r, symbols *sym, symbols *branches, size_t n) {
  symbols before = *sym;
  for (size_t i = 0; i < n; i++) {
    if (!charge(r, branches[i].n_refs + branches[i].loads.n)) return false;
    for (size_t j = 0; j < branches[i].n_refs; j++) {
      if (own_ref(sym, branches[i].refs[j].name)) continue;
      if (!grow(r, &sym->refs, sym->n_refs, &sym->refs_capacity, sizeof *sym->refs)) return false;
      sym->refs[sym->n_refs++] = branches[i].refs[j];
    }
    for (size_t j = 0; j < branches[i].loads.n; j++) {
      if (!set_load(r, sym, branches[i].loads.loads[j])) return false;
    }
  }
  for (size_t i = 0; i < n; i++) {
    for (size_t j = 0; j < branches[i].n_stores; j++) {
      const st_jinja_string *name = branches[i].stores[j];
      if (stores(&before, name)) continue;
      if (!add_store(r, sym, name)) return false;
      const reference *target = find_ref(sym, name);
      const reference *outer = sym->parent ? find_ref(sym->parent, name) : NULL;
      st_jinja_load load = {
          .action = outer ? JINJA_LOAD_ALIAS : JINJA_LOAD_RESOLVE, .slot = target->slot, .name = name};
      if (outer) load.from = outer->slot, load.up = functions_out(sym, outer->owner);
      if (!set_load(r, sym, load)) return false;
    }
  }
  return true;
}

static bool collect_if(resolver *r, symbols *sym, const st_jinja_node *node) {
  symbols *branches = st_jinja_compile_allocate(r->c, 3, sizeof *branches);
  if (!branches || !collect(r, sym, node->a)) return false;
  const st_jinja_nodes *bodies[3] = {&node->list, &node->more, &node->other};
  for (int i = 0; i < 3; i++) {
    if (!copy_symbols(r, sym, &branches[i]) || !collect_all(r, &branches[i], bodies[i])) return false;
  }
  return merge_branches(r, sym, branches, 3);
}

// An expression's names, or what a statement means to the scope around it; bodies with a scope of their own are not
// entered.
static bool collect(resolver *r, symbols *sym, const st_jinja_node *node) {
  if (!node) return true;
  if (!charge(r, 1)) return false;
  switch ((st_jinja_node_kind)node->kind) {
  case NODE_NAME: return on_load(r, sym, node->value.s, node->place);
  case NODE_IF: return collect_if(r, sym, node);
  case NODE_FOR: return collect(r, sym, node->b);
  case NODE_SET: return collect(r, sym, node->b) && collect_target(r, sym, node->a, false);
  case NODE_SET_BLOCK: return collect_target(r, sym, node->a, false);
  case NODE_MACRO: return on_store(r, sym, node->value.s);
  case NODE_FILTER_BLOCK: return collect(r, sym, node->a);
  case NODE_GENERATION: return true;
  default:
    return collect(r, sym, node->a) && collect(r, sym, node->b) && collect(r, sym, node->c) &&
           collect_all(r, sym, &node->list) && collect_all(r, sym, &node->args) && collect_all(r, sym, &node->keywords);
  }
}

// ---- giving names their places ----

static bool place(resolver *r, symbols *sym, st_jinja_node *node, bool soft);

static bool place_all(resolver *r, symbols *sym, const st_jinja_nodes *list, bool soft) {
  for (size_t i = 0; i < list->n; i++) {
    if (!place(r, sym, list->items[i], soft)) return false;
  }
  return true;
}

static bool place_name(resolver *r, symbols *sym, st_jinja_node *node) {
  const reference *ref = find_ref(sym, node->value.s);
  if (!charge(r, sym->n_refs / 4 + 1)) return false;
  if (!ref)
    return st_jinja_syntax_error(r->c, node->place, "a variable in a set block's filter that its body does not use");
  node->slot = ref->slot;
  node->up = functions_out(sym, ref->owner);
  return true;
}

static bool place_target(resolver *r, symbols *sym, st_jinja_node *target) {
  if (target->kind != NODE_TUPLE) return place_name(r, sym, target);
  for (size_t i = 0; i < target->list.n; i++) {
    if (!place_target(r, sym, target->list.items[i])) return false;
  }
  return true;
}

// A scope within `sym`; `f` (may be NULL) gets the function of its own that it is then. They are kept with the template
// and not on the stack, where nested scopes would take too much.
static symbols *inner(resolver *r, symbols *sym, function **f) {
  symbols *scope = st_jinja_compile_allocate(r->c, 1, sizeof *scope);
  function *own = f && scope ? st_jinja_compile_allocate(r->c, 1, sizeof *own) : NULL;
  if (!scope || (f && !own)) return NULL;
  if (own) own->parent = sym->owner;
  if (f) *f = own;
  *scope = (symbols){.parent = sym, .level = sym->level + 1, .owner = own ? own : sym->owner};
  return scope;
}

static st_jinja_scope *keep_scope(resolver *r, const symbols *sym) {
  st_jinja_scope *scope = st_jinja_compile_allocate(r->c, 1, sizeof *scope);
  if (scope) *scope = sym->loads;
  return scope;
}

static bool place_macro(resolver *r, symbols *outer, st_jinja_node *node) {
  function *f;
  symbols *sym = inner(r, outer, &f);
  if (!sym) return false;
  for (size_t i = 0; i < node->params.n; i++) {
    if (!on_parameter(r, sym, node->params.items[i]->value.s)) return false;
  }
  if (!collect_all(r, sym, &node->defaults) || !collect_all(r, sym, &node->list)) return false;
  for (size_t i = 0; i < node->params.n; i++) {
    if (!place_name(r, sym, node->params.items[i])) return false;
  }
  if (!place_all(r, sym, &node->defaults, false) || !place_all(r, sym, &node->list, false)) return false;
  node->scope = keep_scope(r, sym);
  node->n_slots = f->n;
  return node->scope != NULL;
}

// A for's target for its test, whose function has variables of its own.
static st_jinja_node *clone_target(resolver *r, const st_jinja_node *target) {
  st_jinja_node *copy = st_jinja_compile_allocate(r->c, 1, sizeof *copy);
  if (!copy) return NULL;
  *copy = *target;
  copy->list = (st_jinja_nodes){0};
  for (size_t i = 0; i < target->list.n; i++) {
    st_jinja_node *item = clone_target(r, target->list.items[i]);
    if (!item || !st_jinja_add_node(r->c, &copy->list, item)) return NULL;
  }
  return copy;
}

static bool place_test(resolver *r, symbols *outer, st_jinja_node *node) {
  function *f;
  symbols *test = inner(r, outer, &f);
  if (!test || !collect_target(r, test, node->a, true) || !collect(r, test, node->c)) return false;
  st_jinja_node *target = clone_target(r, node->a);
  if (!target || !place_target(r, test, target) || !st_jinja_add_node(r->c, &node->params, target)) return false;
  if (!place(r, test, node->c, false) || !(node->scope_test = keep_scope(r, test))) return false;
  node->n_test_slots = f->n;
  return true;
}

static bool place_for(resolver *r, symbols *outer, st_jinja_node *node) {
  st_jinja_string *loop;
  symbols *body = inner(r, outer, NULL), *other = inner(r, outer, NULL);
  if (!body || !other) return false;
  if (!place(r, outer, node->b, false) || !st_jinja_new_literal(r->c, "loop", 4, &loop)) return false;
  if (!on_parameter(r, body, loop)) return false;
  node->loop_slot = find_ref(body, loop)->slot;
  if (!collect_target(r, body, node->a, true) || !collect_all(r, body, &node->list)) return false;
  if (!collect_all(r, other, &node->other)) return false;
  if (node->c && !place_test(r, outer, node)) return false;
  if (!place_target(r, body, node->a) || !place_all(r, body, &node->list, false) ||
      !place_all(r, other, &node->other, false))
    return false;
  node->scope = keep_scope(r, body);
  node->scope_else = keep_scope(r, other);
  return node->scope && node->scope_else;
}

// A scope within the same function: filter and set blocks.
static bool place_scope(resolver *r, symbols *outer, st_jinja_node *node) {
  symbols *sym = inner(r, outer, NULL);
  bool is_set = node->kind == NODE_SET_BLOCK;
  if (!sym || (!is_set && !collect(r, sym, node->a)) || !collect_all(r, sym, &node->list)) return false;
  st_jinja_node *filter = is_set ? node->b : node->a;
  // A set block's filter belongs to the inner scope too, but its names are not collected: Jinja refuses new ones.
  if (is_set && !place_target(r, outer, node->a)) return false;
  if ((filter && !place(r, sym, filter, false)) || !place_all(r, sym, &node->list, false)) return false;
  node->scope = keep_scope(r, sym);
  return node->scope != NULL;
}

// Filters and tests must be ones of Jinja, except inside an if, where Jinja looks only when it gets there. Whether they
// are supported is checked when they are reached.
static bool check_name(resolver *r, const st_jinja_node *node, bool soft) {
  bool known = node->kind == NODE_FILTER ? st_jinja_find_filter(node->text) != JINJA_UNKNOWN
                                         : st_jinja_find_test(node->text) != JINJA_UNKNOWN;
  char shown[64];
  const char *what = node->kind == NODE_FILTER ? "filter" : "test";
  return known || soft ||
         st_jinja_syntax_error(r->c, node->place, "expected the name of a %s of Jinja, found '%s'", what,
                               st_jinja_shorten(node->text, shown));
}

static bool place_expression(resolver *r, symbols *sym, st_jinja_node *node, bool soft) {
  if ((node->kind == NODE_FILTER || node->kind == NODE_TEST) && !check_name(r, node, soft)) return false;
  if (node->kind == NODE_NAME) return place_name(r, sym, node);
  if (node->kind == NODE_CONDITION) soft = true;
  return place(r, sym, node->a, soft) && place(r, sym, node->b, soft) && place(r, sym, node->c, soft) &&
         place_all(r, sym, &node->list, soft) && place_all(r, sym, &node->args, soft) &&
         place_all(r, sym, &node->keywords, soft);
}

static bool place(resolver *r, symbols *sym, st_jinja_node *node, bool soft) {
  if (!node) return true;
  switch ((st_jinja_node_kind)node->kind) {
  case NODE_IF:
    return place(r, sym, node->a, true) && place_all(r, sym, &node->list, true) &&
           place_all(r, sym, &node->more, true) && place_all(r, sym, &node->other, true);
  case NODE_FOR: return place_for(r, sym, node);
  case NODE_SET: return place(r, sym, node->b, soft) && place_target(r, sym, node->a);
  case NODE_MACRO:
    if (!place_macro(r, sym, node)) return false;
    return place_name(r, sym, node);
  case NODE_GENERATION: return place_macro(r, sym, node);
  case NODE_SET_BLOCK:
  case NODE_FILTER_BLOCK: return place_scope(r, sym, node);
  default: return place_expression(r, sym, node, soft);
  }
}

bool st_jinja_resolve(st_jinja_compiler *c, struct st_template *t) {
  resolver r = {c};
  function f = {0};
  symbols root = {.owner = &f};
  if (!collect_all(&r, &root, &t->body) || !place_all(&r, &root, &t->body, false)) return false;
  t->scope = keep_scope(&r, &root);
  t->n_slots = f.n;
  return t->scope && c->status == SETUN_OK;
}
