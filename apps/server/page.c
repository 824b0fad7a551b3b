// The chat page and its files, built into the program.
#include "embedded.h"

#include "json_out.h"
#include "routes.h"

#include <string.h>

// Only the page's own files are loaded or requested, nothing inline runs, no text becomes HTML, no page may frame it.
static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                             "require-trusted-types-for 'script'; trusted-types 'none'";

static const struct {
  const char *ending, *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

static const char *type_of(const char *name) {
  const char *ending = strrchr(name, '.');
  for (size_t i = 0; ending && i < sizeof types / sizeof *types; i++) {
    if (!strcmp(types[i].ending, ending)) return types[i].type;
  }
  return "application/octet-stream";
}

// Whether the client has this version: If-None-Match is "*" or a list of tags, which a proxy may have made weak.
static bool is_known(exchange *x, const char *tag) {
  const char *known = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "If-None-Match");
  return known && (strstr(known, tag) || !strcmp(known, "*"));
}

static void send_file(exchange *x, const embedded_file *f) {
  st_buffer body = {0};
  problem p = {0};
  bool known = is_known(x, f->tag);
  if (!known && !st_buffer_append(&body, (const char *)f->bytes, f->n)) {
    fail_memory(&p);
    reply_problem(x, &p);
    return;
  }
  exchange_header(x, "Content-Security-Policy", policy);
  exchange_header(x, "Referrer-Policy", "no-referrer");
  exchange_header(x, "ETag", f->tag);
  x->revalidate = true;
  exchange_reply(x, known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, known ? NULL : type_of(f->name), &body);
}

void handle_page(server *s, exchange *x) {
  const char *name = x->rest_length ? x->rest : "index.html";
  problem p = {0};
  (void)s;
  for (const embedded_file *f = page_files; f->name; f++) {
    if (!strcmp(f->name, name)) {
      send_file(x, f);
      return;
    }
  }
  fail(&p, MHD_HTTP_NOT_FOUND, "not_found_error", NULL, "not found");
  reply_problem(x, &p);
}
