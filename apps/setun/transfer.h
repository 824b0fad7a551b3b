// Transfers over HTTP by libcurl, from one server (the hub) and where it redirects to: redirects, ranges, retries. The
// token is sent only to that one server.
#ifndef SETUN_APP_TRANSFER_H
#define SETUN_APP_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A reply, except its body.
typedef struct reply {
  long status;
  uint64_t from, total; // of a range (status 206), or 0 and the body's length; total UINT64_MAX: unknown
  char etag[256];       // unchanged, with its quotes
  char checksum[80];    // of a large file that the hub stores elsewhere (X-Linked-ETag); "": absent
  char next[2048];      // the address of the next page of a list
  char message[256];    // the hub's reason for a refusal
  long retry_after;     // seconds; 0: absent
} reply;

typedef struct transfer {
  const char *url, *name; // `name`: its name in messages
  uint64_t at;            // bytes present already: only those after them are requested
  char etag[256];         // ETag of the file they are part of, if known
  // Called before a body's first byte, once per attempt; false ends the transfer, after a report.
  bool (*begin)(struct transfer *t, const reply *r);
  bool (*write)(struct transfer *t, const char *bytes, size_t n); // the same; advances `at`
  bool (*whole)(const struct transfer *t);                        // whether it is complete; NULL: never
  void (*show)(struct transfer *t);                               // progress, several times a second; NULL: none
  void *user;
} transfer;

typedef struct client client;

// `endpoint` is an address such as "https://huggingface.co"; what `token` points to must outlive the client (NULL: no
// token). A transfer fails after `retries` attempts without progress. NULL after a report.
client *client_open(const char *endpoint, const char *token, int64_t retries);
void client_free(client *c);
// Without a trailing slash.
const char *client_endpoint(const client *c);
// Whether an address is on the client's server.
bool client_has(const client *c, const char *url);

// Transfers a complete body of status 200 or 206; *r is the last reply. False after a report or a signal.
bool client_get(client *c, transfer *t, reply *r);

// Text for a part of an address: everything except letters, digits and -._~ as %XX, slashes unless `kept`. Freed with
// free. NULL after a report: out of memory.
char *escape_path(const char *text, bool keep_slashes);

#endif
