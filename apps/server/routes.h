// The server's endpoints, one row each.
#ifndef SETUN_SERVER_ROUTES_H
#define SETUN_SERVER_ROUTES_H

#include "state.h"

enum {
  ROUTE_PUBLIC = 1, // needs no key
  ROUTE_EARLY = 2,  // also answered while the model loads
  ROUTE_DIRECT = 4, // answered by the HTTP thread: has no body and never waits
  ROUTE_PREFIX = 8, // the path continues; the exchange has the rest in `rest`
  ROUTE_COMMON = 16 // not about a single model; true for early ones too
};

struct field; // of params.h; each endpoint's tables are in its own file
extern const struct field *const embedding_tables[], *const llama_embedding_tables[];
extern const struct field *const chat_tables[],
    *const completion_tables[], *const llama_tables[], *const infill_tables[],
                                                           *const tokenize_tables[],
                                                               *const detokenize_tables[],
                                                                   *const show_tables[],
                                                                       *const response_tables[],
                                                                           *const message_tables[],
                                                                               *const message_count_tables[],
                                                                                   *const conversation_tables[];

typedef struct route {
  const char *method, *path;
  void (*handle)(server *s, exchange *x); // replies, or passes the exchange on
  int flags;
  const char *summary;               // for the OpenAPI description
  const struct field *const *fields; // tables of the body's fields, NULL-terminated; NULL: none
} route;

extern const route all_routes[]; // the last row has no path

// The row for a method and a raw path; HEAD finds GET's. NULL: none; *allowed then has the path's methods, "" if the
// path is unknown. The rest after the path of a ROUTE_PREFIX goes to `rest`, percent-decoded.
const route *find_route(const char *method, const char *path, char rest[ROUTE_REST], size_t *rest_length,
                        char allowed[64]);

// A percent-decoded text. False if it is empty or too long, has a 0 byte, or an incomplete %.
bool decode_part(const char *text, char rest[ROUTE_REST], size_t *length);

// ---- handlers, each in the named file ----

// page.c
void handle_page(server *s, exchange *x);
// info.c
void handle_health(server *s, exchange *x);
void handle_models(server *s, exchange *x);
void handle_model(server *s, exchange *x);
// chat.c
void handle_chat(server *s, exchange *x);
void handle_chat_count(server *s, exchange *x);
// completions.c
void handle_completions(server *s, exchange *x);
// embeddings.c
void handle_embeddings(server *s, exchange *x);
void handle_llama_embedding(server *s, exchange *x);
// responses.c
void handle_responses(server *s, exchange *x);
// anthropic.c
void handle_messages(server *s, exchange *x);
void handle_messages_count(server *s, exchange *x);
// openapi.c
void handle_openapi(server *s, exchange *x);
// llama.c
void handle_llama(server *s, exchange *x);
void handle_infill(server *s, exchange *x);
// tokens.c
void handle_tokenize(server *s, exchange *x);
void handle_detokenize(server *s, exchange *x);
void handle_template(server *s, exchange *x);
void handle_tokenizer_info(server *s, exchange *x);
// state.c
void handle_props(server *s, exchange *x);
void handle_slots(server *s, exchange *x);
void handle_metrics(server *s, exchange *x);
// ollama.c
void handle_ollama_version(server *s, exchange *x);
void handle_ollama_tags(server *s, exchange *x);
void handle_ollama_show(server *s, exchange *x);

#endif
