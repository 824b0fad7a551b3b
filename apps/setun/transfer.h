// Transfers over HTTP by libcurl, from one server (the hub) and from where it sends its clients: redirects, ranges,
// further attempts. Whoever wants a token gets it from that one server only.
#ifndef SETUN_APP_TRANSFER_H
#define SETUN_APP_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What is said beside a reply's body.
typedef struct reply {
  long status;
  uint64_t from, total; // of a range (status 206), or 0 and the body's length; total UINT64_MAX: not said
  char etag[256];       // as it came, with its quotes
  char checksum[80];    // of a large file that the hub keeps elsewhere (X-Linked-ETag); "": not said
  char next[2048];      // the address of the next page of a list
  char message[256];    // why the hub refuses
  long retry_after;     // seconds; 0: not said
} reply;

typedef struct transfer {
  const char *url, *name; // `name` is what messages call it
  uint64_t at;            // bytes that are there already: only those behind them are asked for
  char etag[256];         // of what they are a part of, where that is known
  // Called before a body's first byte, once each attempt; false ends the transfer, after a report.
  bool (*begin)(struct transfer *t, const reply *r);
  bool (*write)(struct transfer *t, const char *bytes, size_t n); // likewise; moves `at`
  bool (*whole)(const struct transfer *t);                        // whether nothing is missing; NULL: never
  void (*show)(struct transfer *t);                               // progress, several times a second; NULL: none
  void *user;
} transfer;

typedef struct client client;

// `endpoint` is an address such as "https://huggingface.co"; what `token` points to must outlive the client (NULL: no
// token). After `retries` attempts that brought nothing a transfer fails. NULL after a report.
client *client_open(const char *endpoint, const char *token, int64_t retries);
void client_free(client *c);
// Without a slash at its end.
const char *client_endpoint(const client *c);
// Whether an address is on the client's server.
bool client_has(const client *c, const char *url);

// Transfers a body of status 200 or 206 whole; *r is of the last reply. False after a report, or after a signal.
bool client_get(client *c, transfer *t, reply *r);

// Text for a part of an address: all but letters, digits and -._~ as %XX, slashes only where they are not `kept`.
// Freed with free. NULL after a report: out of memory.
char *escape_path(const char *text, bool keep_slashes);

#endif
