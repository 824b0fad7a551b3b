// Transfers by libcurl. Redirects are followed here, so that each address is checked before anything is sent to it.
#define _POSIX_C_SOURCE 200809L
#include "transfer.h"

#include "interrupt.h"
#include "output.h"

#include <curl/curl.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { REDIRECTS_MOST = 8, CONNECT_SECONDS = 30, SILENT_SECONDS = 60, WAIT_MOST = 120 };

// The server of an address, which decides whether a token may be sent there.
typedef struct origin {
  char scheme[16], host[256], port[16];
} origin;

struct client {
  CURL *curl;
  char *endpoint;
  const char *token;
  origin home;
  int64_t retries;
};

// The context of one request's callbacks.
typedef struct request {
  transfer *t;
  reply *r;
  bool begun, refused; // refused by begin or write, after a report
} request;

typedef enum outcome { OUTCOME_WHOLE, OUTCOME_CUT, OUTCOME_STATUS, OUTCOME_OVER } outcome;

// ---- addresses ----

static bool read_part(CURLU *u, CURLUPart part, unsigned flags, char *to, size_t size) {
  char *text = NULL;
  if (curl_url_get(u, part, &text, flags)) return false;
  bool fits = strlen(text) < size;
  if (fits) snprintf(to, size, "%s", text);
  curl_free(text);
  return fits;
}

static bool read_origin(const char *url, origin *o) {
  char *user = NULL;
  CURLU *u = curl_url();
  bool fine = u && !curl_url_set(u, CURLUPART_URL, url, 0) && read_part(u, CURLUPART_SCHEME, 0, o->scheme, 16) &&
              read_part(u, CURLUPART_HOST, 0, o->host, sizeof o->host) &&
              read_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o->port, sizeof o->port) &&
              curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_NO_USER;
  curl_free(user);
  curl_url_cleanup(u);
  return fine && (strcasecmp(o->scheme, "https") == 0 || strcasecmp(o->scheme, "http") == 0);
}

static bool is_secure(const origin *o) {
  return strcasecmp(o->scheme, "https") == 0;
}

// Whether it is this machine.
static bool is_loopback(const origin *o) {
  return strcasecmp(o->host, "localhost") == 0 || strcmp(o->host, "127.0.0.1") == 0 || strcmp(o->host, "[::1]") == 0;
}

static bool same_origin(const origin *a, const origin *b) {
  return !strcasecmp(a->scheme, b->scheme) && !strcasecmp(a->host, b->host) && !strcmp(a->port, b->port);
}

bool client_has(const client *c, const char *url) {
  origin o;
  return read_origin(url, &o) && same_origin(&o, &c->home);
}

char *escape_path(const char *text, bool keep_slashes) {
  char *escaped = malloc(3 * strlen(text) + 1), *to = escaped;
  if (!escaped) {
    failure("out of memory for an address");
    return NULL;
  }
  for (const char *p = text; *p; p++) {
    unsigned char b = (unsigned char)*p;
    bool plain = b < 128 && (isalnum(b) || strchr("-._~", b) || (keep_slashes && b == '/'));
    to += plain ? snprintf(to, 2, "%c", b) : snprintf(to, 4, "%%%02X", b);
  }
  *to = 0;
  return escaped;
}

// ---- the client ----

client *client_open(const char *endpoint, const char *token, int64_t retries) {
  client *c = calloc(1, sizeof *c);
  size_t n = strlen(endpoint);
  while (n && endpoint[n - 1] == '/') n--;
  if (c && !curl_global_init(CURL_GLOBAL_DEFAULT)) c->curl = curl_easy_init();
  if (!c || !c->curl || !(c->endpoint = strndup(endpoint, n))) {
    failure("out of memory for libcurl");
    client_free(c);
    return NULL;
  }
  c->token = token;
  c->retries = retries;
  if (read_origin(c->endpoint, &c->home)) return c;
  failure("the hub: expected an address such as https://huggingface.co, found '%s'", endpoint);
  client_free(c);
  return NULL;
}

void client_free(client *c) {
  if (!c) return;
  if (c->curl) curl_easy_cleanup(c->curl);
  curl_global_cleanup();
  free(c->endpoint);
  free(c);
}

const char *client_endpoint(const client *c) {
  return c->endpoint;
}

// ---- one request ----

// The value of a header line with this name, trimmed.
static bool take_header(const char *line, size_t n, const char *name, char *to, size_t size) {
  size_t m = strlen(name);
  if (n <= m || line[m] != ':' || strncasecmp(line, name, m)) return false;
  for (line += m + 1, n -= m + 1; n && isspace((unsigned char)*line); line++) n--;
  while (n && isspace((unsigned char)line[n - 1])) n--;
  if (n >= size) return false;
  memcpy(to, line, n);
  to[n] = 0;
  return true;
}

// "bytes 5-9/10": whether it states a known range.
static bool read_range(const char *text, uint64_t *from, uint64_t *total) {
  unsigned long long first, last, all;
  int used = 0;
  if (sscanf(text, "bytes %llu-%llu/%llu%n", &first, &last, &all, &used) != 3 || text[used]) return false;
  *from = first;
  *total = all;
  return first <= last && last < all;
}

// `<address>; rel="next"`.
static void read_link(const char *text, char next[2048]) {
  const char *end = text[0] == '<' ? strchr(text, '>') : NULL;
  if (!end || !strstr(end, "rel=\"next\"")) return;
  snprintf(next, 2048, "%.*s", (int)(end - text - 1), text + 1);
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
  reply *r = ((request *)user)->r;
  char value[2048];
  size_t length = size * n;
  if (length > 5 && strncmp(line, "HTTP/", 5) == 0) { // of a reply that follows another one, such as 100
    char checksum[sizeof r->checksum];
    memcpy(checksum, r->checksum, sizeof checksum);
    const char *space = memchr(line, ' ', length);
    *r = (reply){.total = UINT64_MAX, .status = space ? strtol(space, NULL, 10) : 0};
    memcpy(r->checksum, checksum, sizeof checksum); // from the hub, before its redirect
  }
  if (take_header(line, length, "Content-Range", value, sizeof value)) {
    if (!read_range(value, &r->from, &r->total)) r->from = UINT64_MAX;
  } else if (take_header(line, length, "Content-Length", value, sizeof value) && r->total == UINT64_MAX) {
    r->total = strtoull(value, NULL, 10);
  } else if (take_header(line, length, "Retry-After", value, sizeof value)) {
    r->retry_after = strtol(value, NULL, 10);
  } else if (take_header(line, length, "Link", value, sizeof value)) {
    read_link(value, r->next);
  } else if (take_header(line, length, "X-Linked-ETag", value, sizeof value)) {
    snprintf(r->checksum, sizeof r->checksum, "%.*s", (int)strcspn(value + (*value == '"'), "\""),
             value + (*value == '"'));
  } else {
    take_header(line, length, "ETag", r->etag, sizeof r->etag);
    take_header(line, length, "X-Error-Message", r->message, sizeof r->message);
  }
  return length;
}

static bool is_fine(long status) {
  return status == 200 || status == 206;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
  request *q = user;
  if (!is_fine(q->r->status)) return size * n; // error pages are not shown
  if (!q->begun) q->refused = !q->t->begin(q->t, q->r);
  q->begun = true;
  if (!q->refused) q->refused = !q->t->write(q->t, bytes, size * n);
  return q->refused ? 0 : size * n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
  request *q = user;
  (void)a, (void)b, (void)c, (void)d;
  if (q->begun && q->t->show) q->t->show(q->t);
  return interrupt_status() != 0;
}

static bool add_line(struct curl_slist **lines, const char *name, const char *value) {
  size_t size = strlen(name) + strlen(value) + 3;
  char *line = malloc(size);
  struct curl_slist *grown = NULL;
  if (line) {
    snprintf(line, size, "%s: %s", name, value);
    grown = curl_slist_append(*lines, line);
  }
  free(line);
  if (grown) *lines = grown;
  return grown != NULL;
}

// The headers of a request to an address: the token is sent only to the hub, and not where others could read it.
static bool add_lines(const client *c, const transfer *t, const origin *o, struct curl_slist **lines) {
  char text[sizeof "Bearer " + 1024];
  bool fine = add_line(lines, "Accept-Encoding", "identity");
  if (c->token && same_origin(o, &c->home) && (is_secure(o) || is_loopback(o))) {
    snprintf(text, sizeof text, "Bearer %s", c->token);
    fine = fine && add_line(lines, "Authorization", text);
  }
  if (t->at) {
    snprintf(text, sizeof text, "bytes=%llu-", (unsigned long long)t->at);
    fine = fine && add_line(lines, "Range", text);
    if (t->etag[0] == '"') fine = fine && add_line(lines, "If-Range", t->etag);
  }
  return fine;
}

static void set_options(const client *c, const char *url, struct curl_slist *lines, request *q) {
  CURL *h = c->curl;
  curl_easy_reset(h);
  curl_easy_setopt(h, CURLOPT_URL, url);
  curl_easy_setopt(h, CURLOPT_HTTPHEADER, lines);
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(h, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_USERAGENT, "setun");
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)SILENT_SECONDS);
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, q);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, q);
  curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(h, CURLOPT_XFERINFODATA, q);
}

// One request to one address. *why: the reason if it failed.
static outcome perform(const client *c, const char *url, request *q, const char **why) {
  struct curl_slist *lines = NULL;
  origin o;
  outcome result = OUTCOME_OVER;
  CURLcode code = CURLE_OUT_OF_MEMORY;
  *why = NULL;
  if (!read_origin(url, &o)) {
    failure("%s: the hub redirects to an address that is not HTTP: '%s'", q->t->name, url);
  } else if (!is_secure(&o) && is_secure(&c->home)) {
    failure("%s: the hub, which uses https, redirects to %s, which does not", q->t->name, url);
  } else if (!add_lines(c, q->t, &o, &lines)) {
    failure("out of memory for a request");
  } else {
    set_options(c, url, lines, q);
    code = curl_easy_perform(c->curl);
    bool over = q->refused || interrupt_status();
    result = over ? OUTCOME_OVER : code ? OUTCOME_CUT : is_fine(q->r->status) ? OUTCOME_WHOLE : OUTCOME_STATUS;
    *why = curl_easy_strerror(code);
  }
  curl_slist_free_all(lines);
  if (result == OUTCOME_WHOLE && !q->begun && !q->t->begin(q->t, q->r)) result = OUTCOME_OVER; // an empty body
  bool certain = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_UNSUPPORTED_PROTOCOL ||
                 code == CURLE_SSL_CACERT_BADFILE || code == CURLE_OUT_OF_MEMORY;
  if (result == OUTCOME_CUT && certain) {
    failure("%s: %s", url, *why);
    result = OUTCOME_OVER;
  }
  return result;
}

// One attempt, following redirects from the hub.
static outcome attempt(client *c, transfer *t, reply *r, const char **why) {
  char *url = strdup(t->url);
  outcome result = OUTCOME_OVER;
  *r = (reply){.total = UINT64_MAX};
  for (int hop = 0; url; hop++) {
    request q = {t, r, false, false};
    result = perform(c, url, &q, why);
    char *next = NULL;
    if (result == OUTCOME_STATUS && r->status / 100 == 3) curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &next);
    char *copy = next ? strdup(next) : NULL;
    free(url);
    url = copy;
    if (!next) return result;
    if (hop == REDIRECTS_MOST) {
      failure("%s: the hub redirects more than %d times", t->name, REDIRECTS_MOST);
      free(url);
      return OUTCOME_OVER;
    }
  }
  failure("out of memory for an address");
  return OUTCOME_OVER;
}

// ---- attempts ----

static void wait_seconds(double seconds) {
  double end = seconds_now() + seconds;
  struct timespec t = {0, 50000000};
  while (seconds_now() < end && !interrupt_status()) nanosleep(&t, NULL);
}

// Whether another attempt may succeed.
static bool is_passing(long status) {
  return status == 408 || status == 429 || status >= 500;
}

static void report_status(const client *c, const transfer *t, const reply *r) {
  const char *said = *r->message ? r->message : "no reason is given";
  if (r->status == 401 && !c->token)
    failure("%s: the hub requires authentication (status 401: %s): there is no public model with this name; HF_TOKEN "
            "may hold a token with access to it",
            t->name, said);
  else if (r->status == 401)
    failure("%s: the hub does not accept the token in HF_TOKEN (status 401: %s)", t->name, said);
  else if (r->status == 403)
    failure("%s: the hub refuses (status 403: %s); where the model's page has conditions, accept them there, and set "
            "HF_TOKEN",
            t->name, said);
  else if (r->status == 404)
    failure("%s: not found on the hub (status 404: %s)", t->name, said);
  else if (r->status == 429 && r->retry_after)
    failure("%s: the hub asks to retry in %ld seconds (status 429)", t->name, r->retry_after);
  else
    failure("%s: the hub answers with status %ld: %s", t->name, r->status, said);
}

bool client_get(client *c, transfer *t, reply *r) {
  const char *why = NULL;
  int64_t barren = 0; // consecutive attempts without progress
  for (;;) {
    uint64_t before = t->at;
    outcome result = attempt(c, t, r, &why);
    if (result == OUTCOME_WHOLE && t->whole && !t->whole(t)) result = OUTCOME_CUT, why = "it ended too early";
    if (result == OUTCOME_WHOLE) return true;
    if (result == OUTCOME_OVER) return false;
    barren = t->at > before ? 0 : barren + 1;
    double wait = barren ? 0.25 * (double)(1 << (barren < 7 ? barren : 7)) : 0.1;
    if (result == OUTCOME_STATUS && r->retry_after > wait) wait = (double)r->retry_after;
    bool last = barren > c->retries || wait > WAIT_MOST;
    if (result == OUTCOME_STATUS && (last || !is_passing(r->status))) {
      report_status(c, t, r);
      return false;
    }
    if (last) {
      failure("%s: %lld attempt%s without progress from %s: %s", t->name, (long long)barren, plural((uint64_t)barren),
              c->endpoint, why);
      return false;
    }
    if (barren) note("%s: %s: %s; trying again", t->name, c->endpoint, result == OUTCOME_CUT ? why : "it is busy");
    wait_seconds(wait);
    if (interrupt_status()) return false;
  }
}
