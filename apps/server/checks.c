// Checks of headers. Keys are compared in constant time.
#define _POSIX_C_SOURCE 200809L
#include "checks.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HEADERS_MOST = 100 };

static refusal refuse(unsigned status, const char *type, const char *code, const char *format, ...) {
  refusal r = {.status = status, .type = type, .code = code};
  va_list args;
  va_start(args, format);
  vsnprintf(r.why, sizeof r.why, format, args);
  va_end(args);
  return r;
}

static const refusal fine;

// ---- well-formed ----

typedef struct seen {
  unsigned hosts, lengths, codings, origins, headers;
  const char *length, *coding, *encoding;
  bool malformed;
} seen;

static bool is_token(const char *text, size_t n) {
  static const char marks[] = "!#$%&'*+-.^_`|~";
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && (!c || !strchr(marks, c))) return false;
  }
  return n > 0;
}

static bool has_control(const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    if ((c < 32 && c != '\t') || c == 127) return true;
  }
  return false;
}

static enum MHD_Result see(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_length, const char *value,
                           size_t value_length) {
  seen *s = cls;
  (void)kind;
  s->headers++;
  if (!is_token(key, key_length) || (value && has_control(value, value_length))) s->malformed = true;
  if (!strcasecmp(key, "Host")) s->hosts++;
  if (!strcasecmp(key, "Origin")) s->origins++;
  if (!strcasecmp(key, "Content-Length")) s->lengths++, s->length = value;
  if (!strcasecmp(key, "Transfer-Encoding")) s->codings++, s->coding = value;
  if (!strcasecmp(key, "Content-Encoding")) s->encoding = value ? value : "";
  return MHD_YES;
}

// Only digits, at most 18.
static bool read_length(const char *text, uint64_t *length) {
  size_t n = text ? strspn(text, "0123456789") : 0;
  if (!n || text[n] || n > 18) return false;
  *length = 0;
  for (size_t i = 0; i < n; i++) *length = *length * 10 + (uint64_t)(text[i] - '0');
  return true;
}

refusal check_headers(struct MHD_Connection *connection, const char *version, uint64_t most, uint64_t *length) {
  const char *bad = "invalid_request_error";
  seen s = {0};
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, see, &s);
  *length = s.codings ? UINT64_MAX : 0;
  if (s.headers > HEADERS_MOST) return refuse(431, bad, NULL, "more than %d headers", HEADERS_MOST);
  if (s.malformed) return refuse(400, bad, NULL, "a header is malformed");
  if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0")) return refuse(505, bad, NULL, "expected HTTP/1.1");
  if (!s.hosts && !strcmp(version, "HTTP/1.1"))
    return refuse(400, bad, NULL, "Host: expected with HTTP/1.1, found none");
  if (s.hosts > 1 || s.lengths > 1 || s.codings > 1 || s.origins > 1)
    return refuse(400, bad, NULL, "a header is given twice");
  if (s.lengths && s.codings) return refuse(400, bad, NULL, "both Content-Length and Transfer-Encoding are given");
  if (s.codings && strcmp(version, "HTTP/1.1") != 0)
    return refuse(400, bad, NULL, "Transfer-Encoding: expected only with HTTP/1.1");
  if (s.codings && strcasecmp(s.coding ? s.coding : "", "chunked"))
    return refuse(501, bad, NULL, "Transfer-Encoding: expected chunked");
  if (s.encoding && strcasecmp(s.encoding, "identity"))
    return refuse(415, bad, NULL, "Content-Encoding: expected identity: bodies are not decompressed");
  if (s.lengths && !read_length(s.length, length))
    return refuse(400, bad, NULL, "Content-Length: expected a number of bytes");
  if (*length != UINT64_MAX && *length > most) {
    return refuse(413, bad, NULL, "the body has %llu bytes, but at most %llu are accepted", (unsigned long long)*length,
                  (unsigned long long)most);
  }
  return fine;
}

// ---- for whom, from whom ----

// The name in "name:port" or "[address]:port", without brackets; false if neither.
static bool host_name(const char *text, size_t n, char name[256]) {
  size_t length = 0, from = 0;
  if (n && text[0] == '[') {
    const char *end = memchr(text, ']', n);
    if (!end) return false;
    length = (size_t)(end - text) - 1;
    from = 1;
  } else {
    const char *colon = memchr(text, ':', n);
    length = colon ? (size_t)(colon - text) : n;
  }
  size_t after = from ? length + 2 : length;
  if (!length || length >= 256 || (after < n && text[after] != ':')) return false;
  if (after < n && strspn(text + after + 1, "0123456789") < n - after - 1) return false;
  memcpy(name, text + from, length);
  name[length] = 0;
  if (!from && length > 1 && name[length - 1] == '.') name[length - 1] = 0; // localhost. is localhost
  return true;
}

static bool is_address(const char *name) {
  unsigned char address[sizeof(struct in6_addr)];
  return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

refusal check_host(struct MHD_Connection *connection, const server_options *o) {
  const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
  char name[256];
  if (!host) return fine; // HTTP/1.0
  if (!host_name(host, strlen(host), name)) return refuse(400, "invalid_request_error", NULL, "Host: malformed");
  if (is_address(name) || !strcasecmp(name, "localhost") || !strcasecmp(name, o->host)) return fine;
  for (size_t i = 0; i < o->n_hosts; i++) {
    if (!strcasecmp(name, o->hosts[i])) return fine;
  }
  return refuse(403, "permission_error", "host_not_allowed",
                "Host: this server is not known by that name (see --allow-host)");
}

refusal check_origin(struct MHD_Connection *connection, const server_options *o, char origin[256]) {
  const char *from = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
  const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
  origin[0] = 0;
  if (!from) return fine;
  size_t scheme = !strncmp(from, "http://", 7) ? 7 : !strncmp(from, "https://", 8) ? 8 : 0;
  if (scheme && host && !strcasecmp(from + scheme, host)) return fine; // the server's own page
  for (size_t i = 0; i < o->n_origins; i++) {
    bool any = !strcmp(o->origins[i], "*");
    if ((!any && strcasecmp(from, o->origins[i])) || strlen(from) >= 256) continue;
    strcpy(origin, any ? "*" : from);
    return fine;
  }
  return refuse(403, "permission_error", "origin_not_allowed",
                "Origin: pages of this origin may not use the server (see --allow-origin)");
}

// Takes the same time for all texts of one length.
static bool same_key(const char *text, size_t n, const char *key) {
  size_t length = strlen(key);
  unsigned different = (unsigned)(length != n);
  for (size_t i = 0; i < n; i++) different |= (unsigned char)text[i] ^ (unsigned char)key[i % (length ? length : 1)];
  return !different;
}

refusal check_key(struct MHD_Connection *connection, const server_options *o) {
  const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
  const char *other = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-api-key");
  const char *key = header && !strncasecmp(header, "Bearer ", 7) ? header + 7 : other;
  unsigned found = 0;
  if (!o->n_keys) return fine;
  for (size_t i = 0; key && i < o->n_keys; i++) found |= (unsigned)same_key(key, strlen(key), o->keys[i]);
  if (found) return fine;
  return refuse(401, "authentication_error", "invalid_api_key",
                key ? "the API key is wrong" : "an API key is expected: Authorization: Bearer KEY");
}
