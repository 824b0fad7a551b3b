// Which values of a schema's document are subschemas, what their base URIs are, and where references lead.
#include "constraint/schema_context.h"

#include "base/memory.h"

#include <string.h>

// ---- the keywords that hold subschemas ----

// HOLDS_DEFINITIONS: a map that only references read, so its type is checked here.
typedef enum { HOLDS_ONE, HOLDS_LIST, HOLDS_ONE_OR_LIST, HOLDS_MAP, HOLDS_DEFINITIONS } holding;

static const struct {
  const char *keyword;
  holding holds;
} HOLDERS[] = {
    {"additionalItems", HOLDS_ONE},
    {"additionalProperties", HOLDS_ONE},
    {"allOf", HOLDS_LIST},
    {"anyOf", HOLDS_LIST},
    {"contains", HOLDS_ONE},
    {"contentSchema", HOLDS_ONE},
    {"definitions", HOLDS_DEFINITIONS},
    {"dependencies", HOLDS_MAP},
    {"dependentSchemas", HOLDS_MAP},
    {"else", HOLDS_ONE},
    {"if", HOLDS_ONE},
    {"items", HOLDS_ONE_OR_LIST},
    {"not", HOLDS_ONE},
    {"oneOf", HOLDS_LIST},
    {"patternProperties", HOLDS_MAP},
    {"prefixItems", HOLDS_LIST},
    {"properties", HOLDS_MAP},
    {"propertyNames", HOLDS_ONE},
    {"then", HOLDS_ONE},
    {"unevaluatedItems", HOLDS_ONE},
    {"unevaluatedProperties", HOLDS_ONE},
    {"$defs", HOLDS_DEFINITIONS},
};

// ---- drafts ----

static const struct {
  const char *uri; // without "http://" or "https://", fragment and trailing '#'
  st_schema_draft draft;
} DRAFTS[] = {
    {"json-schema.org/draft-04/schema", ST_DRAFT_4},         {"json-schema.org/draft-06/schema", ST_DRAFT_6},
    {"json-schema.org/draft-07/schema", ST_DRAFT_7},         {"json-schema.org/draft/2019-09/schema", ST_DRAFT_2019},
    {"json-schema.org/draft/2020-12/schema", ST_DRAFT_2020}, {"json-schema.org/schema", ST_DRAFT_2020},
};

// The text of a keyword that names or identifies; NULL where there is none, a failure where it is another value.
static const char *identifier(st_schema *s, uint32_t node, const char *name) {
  const st_json *v = st_json_find(s->nodes[node].json, name);
  if (v && !st_json_string(v)) st_schema_fail(s, SETUN_ERROR_FORMAT, node, name, "expected a string");
  return st_json_string(v);
}

// The draft that "$schema" names; a failure when it is unknown.
static uint8_t draft_of(st_schema *s, uint32_t node, uint8_t inherited) {
  const char *text = identifier(s, node, "$schema");
  if (!text) return inherited;
  const char *p = strstr(text, "://");
  p = p ? p + 3 : text;
  size_t n = strcspn(p, "#");
  for (size_t i = 0; i < sizeof DRAFTS / sizeof *DRAFTS; i++) {
    if (n == strlen(DRAFTS[i].uri) && !memcmp(p, DRAFTS[i].uri, n)) return (uint8_t)DRAFTS[i].draft;
  }
  st_schema_fail(s, SETUN_ERROR_UNSUPPORTED, node, "$schema",
                 "expected a draft of JSON Schema from 4 to 2020-12, found \"%.200s\"", text);
  return inherited;
}

// ---- nodes ----

uint32_t st_schema_node_at(const st_schema *s, const st_json *value) {
  int64_t found = st_map_get(s->node_of, (const char *)&value, sizeof value);
  return found < 0 ? UINT32_MAX : (uint32_t)found;
}

static uint32_t add_node(st_schema *s, const st_json *json, const char *path, uint32_t resource, uint8_t draft) {
  if (s->n_nodes >= ST_SCHEMA_NODES_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, 0, NULL, "more than %d subschemas", ST_SCHEMA_NODES_MOST);
    return UINT32_MAX;
  }
  const st_json **key = st_schema_alloc(s, 1, sizeof json);
  if (!key || !path) return UINT32_MAX;
  *key = json;
  uint32_t node = (uint32_t)s->n_nodes;
  if (!st_reserve(&s->nodes, &s->nodes_capacity, s->n_nodes + 1, sizeof *s->nodes) ||
      !st_map_add(s->node_of, (const char *)key, sizeof json, node, NULL)) {
    st_schema_fail_memory(s);
    return UINT32_MAX;
  }
  s->nodes[s->n_nodes++] = (st_schema_node){json, path, resource, draft};
  return node;
}

static void add_place(st_schema *s, st_map *map, const char *uri, const char *anchor, uint32_t node) {
  const char *key = anchor ? st_schema_text(s, "%s#%s", uri, anchor) : uri;
  int64_t previous = -1;
  if (!key) return;
  if (!st_map_add(map, key, strlen(key), node, &previous)) st_schema_fail_memory(s);
  if (previous < 0 || s->nodes[previous].json == s->nodes[node].json) return;
  if (!st_map_add(s->repeated, key, strlen(key), node, NULL)) st_schema_fail_memory(s);
}

static uint32_t add_resource(st_schema *s, const char *uri, uint32_t node) {
  if (!st_reserve(&s->resources, &s->resources_capacity, s->n_resources + 1, sizeof *s->resources)) {
    st_schema_fail_memory(s);
    return 0;
  }
  s->resources[s->n_resources] = (st_schema_resource){.uri = uri, .node = node};
  add_place(s, s->places, uri, NULL, node);
  return (uint32_t)s->n_resources++;
}

// Records the identifiers of a subschema: $id (id in draft 4), $anchor, $dynamicAnchor.
static void identify(st_schema *s, uint32_t node) {
  const st_json *json = s->nodes[node].json;
  uint8_t draft = s->nodes[node].draft;
  bool ignored = draft <= ST_DRAFT_7 && st_json_find(json, "$ref"); // siblings of $ref are ignored in these drafts
  const char *id = ignored ? NULL : identifier(s, node, draft == ST_DRAFT_4 ? "id" : "$id");
  const char *uri, *fragment, *base = s->resources[s->nodes[node].resource].uri;
  if (id && id[0] == '#') {
    if (draft <= ST_DRAFT_7) add_place(s, s->places, base, id + 1, node);
  } else if (id && st_schema_uri(s, base, id, &uri, &fragment)) {
    if (node == 0) {
      s->resources[0].uri = uri;
      add_place(s, s->places, uri, NULL, node);
    } else {
      uint32_t resource = add_resource(s, uri, node);
      s->nodes[node].resource = resource;
    }
    if (*fragment && draft <= ST_DRAFT_7) add_place(s, s->places, uri, fragment, node);
  }
  st_schema_resource *r = &s->resources[s->nodes[node].resource];
  if (draft < ST_DRAFT_2019) return;
  const char *anchor = identifier(s, node, "$anchor"), *dynamic = identifier(s, node, "$dynamicAnchor");
  if (anchor) add_place(s, s->places, r->uri, anchor, node);
  if (dynamic) {
    r->dynamic = s->has_dynamics = true;
    add_place(s, s->places, r->uri, dynamic, node);
    add_place(s, s->dynamics, r->uri, dynamic, node);
  }
}

// ---- the walk ----

// A JSON pointer's token for a key.
static const char *extend(st_schema *s, const char *path, const char *key) {
  size_t n = strlen(path), extra = 2;
  for (const char *p = key; *p; p++) extra += 1 + (*p == '~' || *p == '/');
  char *out = st_schema_alloc(s, n + extra, 1), *to = out;
  if (!out) return NULL;
  memcpy(to, path, n);
  to += n;
  *to++ = '/';
  for (const char *p = key; *p; p++) {
    if (*p == '~' || *p == '/') {
      *to++ = '~';
      *to++ = *p == '~' ? '0' : '1';
    } else {
      *to++ = *p;
    }
  }
  return out;
}

static void walk(st_schema *s, const st_json *json, const char *path, uint32_t parent, uint32_t depth);

static void walk_list(st_schema *s, const st_json *list, const char *path, uint32_t parent, uint32_t depth) {
  for (size_t i = 0; i < st_json_size(list) && !s->status; i++) {
    walk(s, st_json_at(list, i), st_schema_text(s, "%s/%zu", path, i), parent, depth);
  }
}

static void walk_keyword(st_schema *s, const st_json_member *m, holding holds, uint32_t node, uint32_t depth) {
  const char *path = extend(s, s->nodes[node].path, m->key);
  if (!path) return;
  bool list = st_json_is_array(&m->value);
  if (holds == HOLDS_ONE || (holds == HOLDS_ONE_OR_LIST && !list)) {
    walk(s, &m->value, path, node, depth);
  } else if (holds != HOLDS_MAP && holds != HOLDS_DEFINITIONS) {
    walk_list(s, &m->value, path, node, depth);
  } else {
    if (holds == HOLDS_DEFINITIONS && !st_json_is_object(&m->value))
      st_schema_fail(s, SETUN_ERROR_FORMAT, node, m->key, "expected an object, found %s", st_json_kind(&m->value));
    for (size_t i = 0; i < st_json_members(&m->value) && !s->status; i++) {
      const st_json_member *one = st_json_member_at(&m->value, i);
      walk(s, &one->value, extend(s, path, one->key), node, depth);
    }
  }
}

// Adds the subschema at a value, and those below it; a value that is not a subschema is skipped, and its use fails.
static void walk(st_schema *s, const st_json *json, const char *path, uint32_t parent, uint32_t depth) {
  if (!st_json_is_object(json) && !st_json_is_bool(json)) return;
  if (depth > ST_SCHEMA_DEPTH_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, parent, NULL, "subschemas nest more than %d deep", ST_SCHEMA_DEPTH_MOST);
    return;
  }
  bool root = parent == UINT32_MAX;
  uint8_t inherited = root ? ST_DRAFT_2020 : s->nodes[parent].draft;
  uint32_t node = add_node(s, json, path, root ? 0 : s->nodes[parent].resource, inherited);
  if (node == UINT32_MAX) return;
  s->nodes[node].draft = draft_of(s, node, inherited);
  identify(s, node);
  for (size_t i = 0; i < st_json_members(json) && !s->status; i++) {
    const st_json_member *m = st_json_member_at(json, i);
    s->has_unevaluated |= !strncmp(m->key, "unevaluated", 11);
    for (size_t k = 0; k < sizeof HOLDERS / sizeof *HOLDERS; k++) {
      if (!strcmp(m->key, HOLDERS[k].keyword)) walk_keyword(s, m, HOLDERS[k].holds, node, depth + 1);
    }
  }
}

void st_schema_index(st_schema *s) {
  s->node_of = st_map_new(64);
  s->places = st_map_new(16);
  s->repeated = st_map_new(4);
  s->dynamics = st_map_new(4);
  if (!s->node_of || !s->places || !s->repeated || !s->dynamics) {
    st_schema_fail_memory(s);
    return;
  }
  if (!st_json_is_object(s->root) && !st_json_is_bool(s->root)) {
    st_schema_fail(s, SETUN_ERROR_FORMAT, 0, NULL, "expected an object or a boolean, found %s", st_json_kind(s->root));
    return;
  }
  add_resource(s, "", 0);
  if (!s->status) walk(s, s->root, "", UINT32_MAX, 0);
}

// ---- references ----

// The child that a JSON pointer's token [p, p + n) names; NULL: not found.
static const st_json *step(st_schema *s, const st_json *value, const char *p, size_t n) {
  char *key = st_schema_alloc(s, n + 1, 1);
  size_t m = 0, index = 0;
  if (!key) return NULL;
  for (size_t i = 0; i < n; i++) {
    bool escape = p[i] == '~';
    if (escape && (i + 1 == n || (p[i + 1] != '0' && p[i + 1] != '1'))) return NULL;
    key[m++] = escape ? (p[++i] == '0' ? '~' : '/') : p[i];
  }
  if (!st_json_is_array(value)) return st_json_find_n(value, key, m);
  if (m > 1 && key[0] == '0') return NULL; // RFC 6901: no leading zeros
  for (size_t i = 0; i < m; i++) {
    if (key[i] < '0' || key[i] > '9' || index > UINT32_MAX) return NULL;
    index = index * 10 + (size_t)(key[i] - '0');
  }
  return m ? st_json_at(value, index) : NULL;
}

// The subschema that a pointer leads to from the root of a resource.
static uint32_t follow(st_schema *s, uint32_t root, const char *pointer) {
  const st_json *at = s->nodes[root].json;
  uint32_t within = root;
  for (const char *p = pointer; *p == '/';) {
    size_t n = strcspn(++p, "/");
    at = step(s, at, p, n);
    if (!at) return UINT32_MAX;
    uint32_t known = st_schema_node_at(s, at);
    if (known != UINT32_MAX) within = known;
    p += n;
  }
  uint32_t known = st_schema_node_at(s, at);
  if (known != UINT32_MAX || (!st_json_is_object(at) && !st_json_is_bool(at))) return known;
  // A value that no keyword identifies as a schema, such as "#/components/schemas/x".
  size_t first = s->n_nodes;
  walk(s, at, st_schema_text(s, "%s%s", s->nodes[root].path, pointer), within, 0);
  return s->n_nodes > first ? (uint32_t)first : UINT32_MAX;
}

bool st_schema_resolve(st_schema *s, uint32_t from, const char *keyword, const char *reference, uint32_t *node) {
  const char *uri, *fragment;
  if (!st_schema_uri(s, s->resources[s->nodes[from].resource].uri, reference, &uri, &fragment)) return false;
  const st_schema_resource *own = &s->resources[s->nodes[from].resource];
  bool within = !strcmp(uri, own->uri);
  int64_t root = within ? (int64_t)own->node : st_map_get(s->places, uri, strlen(uri)), found = root;
  bool repeated = !within && st_map_get(s->repeated, uri, strlen(uri)) >= 0;
  if (root >= 0 && *fragment == '/') {
    found = follow(s, (uint32_t)root, fragment);
    if (found == UINT32_MAX) found = -1;
  } else if (*fragment) {
    const char *key = st_schema_text(s, "%s#%s", uri, fragment);
    found = key ? st_map_get(s->places, key, strlen(key)) : -1;
    repeated |= key && st_map_get(s->repeated, key, strlen(key)) >= 0;
  }
  if (repeated) {
    st_schema_fail(s, SETUN_ERROR_FORMAT, from, keyword, "\"%.200s\" identifies several subschemas", reference);
    return false;
  }
  if (found < 0 || s->status) {
    st_schema_fail(s, root < 0 ? SETUN_ERROR_UNSUPPORTED : SETUN_ERROR_FORMAT, from, keyword, "\"%.200s\" is not %s",
                   reference, root < 0 ? "within this schema, and others are not fetched" : "a subschema of it");
    return false;
  }
  *node = (uint32_t)found;
  return true;
}

// ---- dynamic scopes: the resources that were entered, outermost first ----

uint32_t st_schema_enter(st_schema *s, uint32_t scope, uint32_t node) {
  uint32_t resource = s->nodes[node].resource;
  if (!s->has_dynamics || !s->resources[resource].dynamic) return scope;
  for (uint32_t at = scope; at; at = s->scopes[at - 1].outer) {
    if (s->scopes[at - 1].resource == resource) return scope; // only the outermost counts
  }
  for (size_t i = 0; i < s->n_scopes; i++) {
    if (s->scopes[i].outer == scope && s->scopes[i].resource == resource) return (uint32_t)i + 1;
  }
  if (!st_reserve(&s->scopes, &s->scopes_capacity, s->n_scopes + 1, sizeof *s->scopes)) {
    st_schema_fail_memory(s);
    return scope;
  }
  s->scopes[s->n_scopes++] = (st_schema_scope){scope, resource};
  return (uint32_t)s->n_scopes;
}

uint32_t st_schema_resolve_dynamic(st_schema *s, uint32_t scope, const char *reference, uint32_t node) {
  const char *anchor = strchr(reference, '#');
  if (!anchor || anchor[1] == '/' || !anchor[1]) return node;
  for (int64_t outermost = -1;;) { // is the target itself a dynamic anchor?
    const char *key = st_schema_text(s, "%s%s", s->resources[s->nodes[node].resource].uri, anchor);
    if (!key || st_map_get(s->dynamics, key, strlen(key)) < 0) return node;
    for (uint32_t at = scope; at; at = s->scopes[at - 1].outer) {
      key = st_schema_text(s, "%s%s", s->resources[s->scopes[at - 1].resource].uri, anchor);
      int64_t found = key ? st_map_get(s->dynamics, key, strlen(key)) : -1;
      if (found >= 0) outermost = found; // the last found is the outermost
    }
    return outermost < 0 ? node : (uint32_t)outermost;
  }
}
