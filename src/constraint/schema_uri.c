// References to absolute URIs: RFC 3986, section 5.2.
#include "constraint/schema_context.h"

#include "base/hex.h"

#include <string.h>

// The parts of a URI reference; `data` NULL: absent.
typedef struct {
  st_text scheme, authority, path, query;
  const char *fragment;
} uri_parts;

static bool is_scheme(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char c = p[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && (i == 0 || !strchr("0123456789+-.", c))) return false;
  }
  return n > 0;
}

static uri_parts split(const char *text) {
  uri_parts u = {0};
  size_t n = strcspn(text, "#");
  if (text[n]) u.fragment = text + n + 1;
  const char *p = text, *end = text + n;
  size_t colon = strcspn(text, ":/?#");
  if (text[colon] == ':' && is_scheme(text, colon)) {
    u.scheme = (st_text){text, colon};
    p = text + colon + 1;
  }
  if (end - p >= 2 && p[0] == '/' && p[1] == '/') {
    size_t m = strcspn(p + 2, "/?#");
    u.authority = (st_text){p + 2, m};
    p += 2 + m;
  }
  size_t m = strcspn(p, "?#");
  u.path = (st_text){p, m};
  if (p[m] == '?') u.query = (st_text){p + m + 1, (size_t)(end - p) - m - 1};
  return u;
}

// Removes "." and ".." segments in place (section 5.2.4); returns the length.
static size_t remove_dots(char *path, size_t n) {
  size_t out = 0;
  for (size_t i = 0; i < n;) {
    size_t begin = i + (path[i] == '/'), end = begin;
    while (end < n && path[end] != '/') end++;
    bool last = end == n;
    if (end - begin == 1 && path[begin] == '.') {
      if (last && path[i] == '/') path[out++] = '/';
    } else if (end - begin == 2 && path[begin] == '.' && path[begin + 1] == '.') {
      while (out > 0 && path[out - 1] != '/') out--;
      if (out > 0 && !last) out--;
    } else {
      memmove(path + out, path + i, end - i);
      out += end - i;
    }
    i = end;
  }
  return out;
}

// The path of a relative reference, merged with its base's (section 5.2.3).
static st_text merge(st_schema *s, const uri_parts *base, st_text path) {
  size_t keep = 0;
  for (size_t i = 0; i < base->path.length; i++) keep = base->path.data[i] == '/' ? i + 1 : keep;
  bool root = base->authority.data && !base->path.length;
  char *merged = st_schema_alloc(s, keep + root + path.length + 1, 1);
  if (!merged) return (st_text){"", 0};
  if (root) merged[0] = '/';
  memcpy(merged + root, base->path.data, keep);
  memcpy(merged + root + keep, path.data, path.length);
  return (st_text){merged, keep + root + path.length};
}

static st_text without_dots(st_schema *s, st_text path) {
  char *copy = st_schema_alloc(s, path.length + 1, 1);
  if (!copy) return (st_text){"", 0};
  if (path.length) memcpy(copy, path.data, path.length);
  return (st_text){copy, remove_dots(copy, path.length)};
}

static const char *decode_percent(st_schema *s, const char *text) {
  char *out = st_schema_alloc(s, strlen(text) + 1, 1), *to = out;
  if (!out) return "";
  for (const char *p = text; *p; p++) {
    int high = *p == '%' ? st_hex_digit(p[1]) : -1, low = high >= 0 ? st_hex_digit(p[2]) : -1;
    *to++ = low >= 0 ? (char)(high * 16 + low) : *p;
    if (low >= 0) p += 2;
  }
  return out;
}

bool st_schema_uri(st_schema *s, const char *base, const char *reference, const char **uri, const char **fragment) {
  uri_parts b = split(base), r = split(reference);
  *fragment = r.fragment ? decode_percent(s, r.fragment) : "";
  if (r.scheme.data) {
    if (r.authority.data || (r.path.length && r.path.data[0] == '/')) r.path = without_dots(s, r.path);
  } else {
    if (!r.authority.data) {
      if (!r.path.length) {
        r.path = b.path;
        if (!r.query.data) r.query = b.query;
      } else {
        r.path = without_dots(s, r.path.data[0] == '/' ? r.path : merge(s, &b, r.path));
      }
      r.authority = b.authority;
    }
    r.scheme = b.scheme;
  }
  *uri = st_schema_text(s, "%.*s%s%s%.*s%.*s%s%.*s", (int)r.scheme.length, r.scheme.data ? r.scheme.data : "",
                        r.scheme.data ? ":" : "", r.authority.data ? "//" : "", (int)r.authority.length,
                        r.authority.data ? r.authority.data : "", (int)r.path.length, r.path.data ? r.path.data : "",
                        r.query.data ? "?" : "", (int)r.query.length, r.query.data ? r.query.data : "");
  return *uri && !s->status;
}
