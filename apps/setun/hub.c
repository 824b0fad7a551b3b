// The hub's API (https://huggingface.co/docs/hub/api): lists of files, addresses, tokens.
#define _POSIX_C_SOURCE 200809L
#include "hub.h"

#include "base/json.h"
#include "digest.h"
#include "input.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MOST = 1024, PAGE_MOST = 16 << 20, PAGES_MOST = 1000 };
static const double SIZE_LIMIT = 0x1p53; // maximum file size: JSON's numbers are exact up to there

// ---- the token ----

// Printable characters without spaces, as allowed in a header.
static bool is_token(const char *text) {
  for (const char *p = text; *p; p++) {
    if (*p <= ' ' || *p > '~') return false;
  }
  return *text && strlen(text) < TOKEN_MOST;
}

static bool read_token(hub *h) {
  const char *given = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH");
  input_text text = {0};
  if (given && *given) {
    h->token = strdup(given);
  } else if (path && *path) {
    if (read_file(path, 1 << 16, &text)) return false;
    while (text.length && strchr(" \t\r\n", text.data[text.length - 1])) text.length--;
    h->token = strndup(text.length ? text.data : "", text.length);
    free(text.data);
  } else {
    return true;
  }
  if (!h->token) return failure("out of memory for a token") == 0;
  return is_token(h->token) || !failure("%s: expected a token, found %s", given && *given ? "HF_TOKEN" : path,
                                        *h->token ? "something else" : "nothing");
}

bool hub_open(const char *endpoint, int64_t retries, hub *h) {
  const char *configured = getenv("HF_ENDPOINT");
  if (!endpoint) endpoint = configured && *configured ? configured : "https://huggingface.co";
  return read_token(h) && (h->client = client_open(endpoint, h->token, retries));
}

void hub_close(hub *h) {
  client_free(h->client);
  free(h->token);
  *h = (hub){0};
}

// ---- lists of files ----

typedef struct page {
  text_buffer text;
} page;

static bool begin_page(transfer *t, const reply *r) {
  (void)r;
  ((page *)t->user)->text.length = 0;
  return true;
}

static bool write_page(transfer *t, const char *bytes, size_t n) {
  page *p = t->user;
  if (p->text.length + n <= PAGE_MOST) return append_text(&p->text, bytes, n);
  failure("%s: the hub's list is longer than %d bytes", t->name, PAGE_MOST);
  return false;
}

static bool read_size(const st_json *object, uint64_t *size) {
  const st_json *value = st_json_get(object, "size");
  double v = st_json_number(value);
  if (!st_json_is_number(value) || !(v >= 0 && v <= SIZE_LIMIT) || v != floor(v)) return false;
  *size = (uint64_t)v;
  return true;
}

// One file of the hub's list: {"type": "file", "path", "size", "oid": a git blob's SHA-1, "lfs": {"oid": SHA-256,
// "size"}}.
static bool add_entry(const st_json *entry, const char *repository, file_list *files, size_t *left_out) {
  const char *type = NULL, *path = NULL, *checksum = NULL;
  uint64_t size = 0;
  setun_error error;
  const st_json *lfs = st_json_get(entry, "lfs");
  bool fine = st_json_text(entry, "type", &type, &error) == SETUN_OK;
  if (fine && type && strcmp(type, "file")) return true;
  fine = fine && st_json_text(entry, "path", &path, &error) == SETUN_OK &&
         st_json_text(lfs ? lfs : entry, "oid", &checksum, &error) == SETUN_OK;
  if (!fine) return !failure("%s: the hub's list: %s", repository, error.message);
  if (!read_size(lfs ? lfs : entry, &size)) {
    return !failure("%s: the hub's list: size: expected a size for each file, found an entry without a valid one",
                    repository);
  }
  if (!type || !path || !checksum || !is_checksum(checksum) || (lfs && strlen(checksum) != 64)) {
    return !failure(
        "%s: the hub's list: expected a type, a path and a checksum for each file, found an entry that lacks one",
        repository);
  }
  if (is_plain_path(path, 3)) return add_file(files, path, size, 0, checksum);
  ++*left_out;
  return true;
}

static bool read_page(const page *p, const char *repository, file_list *files, size_t *left_out) {
  st_json *root = NULL;
  setun_error error;
  if (st_json_parse_any(p->text.data ? p->text.data : "", p->text.length, "the hub's list", &root, &error) != SETUN_OK)
    return !failure("%s: %s", repository, error.message);
  bool fine = st_json_is_array(root) ||
              !failure("%s: the hub's list: expected an array, found %s", repository, st_json_kind(root));
  for (size_t i = 0; fine && i < st_json_size(root); i++)
    fine = add_entry(st_json_at(root, i), repository, files, left_out);
  st_json_free(root);
  return fine;
}

// "ENDPOINT/first/REPOSITORY/second/REVISION/last".
static char *make_url(const hub *h, const char *first, const char *repository, const char *second, const char *revision,
                      const char *last) {
  char *escaped = escape_path(revision, false), *end = escape_path(last, true), *url = NULL;
  if (escaped && end) {
    const char *endpoint = client_endpoint(h->client);
    size_t size =
        strlen(endpoint) + strlen(first) + strlen(repository) + strlen(second) + strlen(escaped) + strlen(end) + 8;
    if ((url = malloc(size)))
      snprintf(url, size, "%s%s/%s/%s/%s%s%s", endpoint, first, repository, second, escaped, *end ? "/" : "", end);
    else
      failure("out of memory for an address");
  }
  free(escaped);
  free(end);
  return url;
}

bool hub_list(const hub *h, const char *repository, const char *revision, file_list *files, size_t *left_out) {
  char *url = make_url(h, "/api/models", repository, "tree", revision, "");
  size_t size = url ? strlen(url) + sizeof "?recursive=true" : 0;
  char *asked = url ? malloc(size) : NULL;
  page p = {{0}};
  reply r = {0};
  bool fine = asked != NULL;
  if (fine) snprintf(asked, size, "%s?recursive=true", url);
  for (int i = 0; fine && asked; i++) {
    transfer t = {.url = asked, .name = repository, .begin = begin_page, .write = write_page, .user = &p};
    fine = client_get(h->client, &t, &r) && read_page(&p, repository, files, left_out);
    free(asked);
    asked = NULL;
    if (!fine || !*r.next) break;
    if (i == PAGES_MOST || !client_has(h->client, r.next))
      fine = !failure("%s: the hub's list continues at '%s', which is not one of its own pages", repository, r.next);
    else
      fine = (asked = strdup(r.next)) || !failure("out of memory for an address");
  }
  free(asked);
  free(url);
  free(p.text.data);
  return fine;
}

char *hub_url(const hub *h, const char *repository, const char *revision, const char *path) {
  return make_url(h, "", repository, "resolve", revision, path);
}

// ---- names ----

// The part of a word after the hub's address, such as a page's; NULL: not an address of the hub.
static const char *below_hub(const hub *h, const char *word) {
  const char *endpoint = client_endpoint(h->client), *host = strstr(endpoint, "://") + 3;
  const char *const starts[] = {endpoint, host, "hf.co", "https://hf.co"};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    size_t n = strlen(starts[i]);
    if (strncmp(word, starts[i], n) == 0 && word[n] == '/') return word + n + 1;
  }
  return NULL;
}

bool hub_parse(const hub *h, const char *word, char buffer[1024], char repository[256], const char **revision,
               const char **selector) {
  const char *below = below_hub(h, word);
  if (snprintf(buffer, 1024, "%s", below ? below : word) >= 1024) return false;
  buffer[strcspn(buffer, "?#")] = 0;
  char *slash = strchr(buffer, '/');
  if (below && slash && (slash = strchr(slash + 1, '/'))) { // org/name/blob/main/file.gguf
    static const char *const kinds[] = {"blob/", "resolve/", "tree/"};
    *slash++ = 0;
    size_t i = 0, n = sizeof kinds / sizeof *kinds;
    while (i < n && strncmp(slash, kinds[i], strlen(kinds[i]))) i++;
    if (i == n) return !*slash && parse_model_name(buffer, repository, selector);
    *revision = slash + strlen(kinds[i]);
    slash = strchr(*revision, '/');
    if (slash) *slash = 0;
    const char *path = slash && slash[1] ? slash + 1 : NULL;
    bool fine = **revision && parse_model_name(buffer, repository, selector) && !*selector;
    *selector = path;
    return fine && (!path || is_plain_path(path, 3));
  }
  return parse_model_name(buffer, repository, selector);
}
