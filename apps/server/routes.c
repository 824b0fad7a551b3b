// The table of endpoints, and finding a path in it.
#include "routes.h"

#include <string.h>

const route all_routes[] = {
    {"GET", "/health", handle_health, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT, "Whether the server can answer", NULL},
    {"GET", "/v1/health", handle_health, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT, "The same", NULL},
    {"GET", "/v1/models", handle_models, ROUTE_PUBLIC | ROUTE_DIRECT, "The models", NULL},
    {"GET", "/models", handle_models, ROUTE_PUBLIC | ROUTE_DIRECT, "The models", NULL},
    {"GET", "/v1/models/", handle_model, ROUTE_PUBLIC | ROUTE_DIRECT | ROUTE_PREFIX, "One model", NULL},
    {NULL, NULL, NULL, 0, NULL, NULL},
};

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// False where it is too long, has a 0 byte, or a % that nothing follows.
static bool decode(const char *text, char rest[ROUTE_REST], size_t *length) {
  size_t n = 0;
  for (; *text; text++) {
    int c = (unsigned char)*text;
    if (c == '%') {
      int high = hex(text[1]), low = high < 0 ? -1 : hex(text[2]);
      if (low < 0) return false;
      c = high * 16 + low;
      text += 2;
    }
    if (!c || n + 1 >= ROUTE_REST) return false;
    rest[n++] = (char)c;
  }
  rest[n] = 0;
  *length = n;
  return n > 0;
}

static bool matches(const route *r, const char *path, char rest[ROUTE_REST], size_t *length) {
  size_t n = strlen(r->path);
  if (!(r->flags & ROUTE_PREFIX)) return strcmp(path, r->path) == 0;
  return strncmp(path, r->path, n) == 0 && decode(path + n, rest, length);
}

static void allow(char allowed[64], const char *method) {
  size_t used = strlen(allowed), n = strlen(method);
  if (strstr(allowed, method) || used + n + 8 >= 64) return;
  if (used) strcat(allowed, ", ");
  strcat(allowed, method);
  if (!strcmp(method, "GET")) strcat(allowed, ", HEAD");
}

const route *find_route(const char *method, const char *path, char rest[ROUTE_REST], size_t *rest_length,
                        char allowed[64]) {
  const char *wanted = strcmp(method, "HEAD") ? method : "GET";
  allowed[0] = rest[0] = 0;
  *rest_length = 0;
  for (const route *r = all_routes; r->path; r++) {
    if (!matches(r, path, rest, rest_length)) continue;
    if (!strcmp(r->method, wanted)) return r;
    allow(allowed, r->method);
  }
  if (allowed[0]) allow(allowed, "OPTIONS");
  return NULL;
}
