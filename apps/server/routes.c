// The table of endpoints, and finding a path in it.
#include "routes.h"

#include "base/hex.h"

#include <string.h>

const route all_routes[] = {
    {"GET", "/", handle_page, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT, "A page to chat on", NULL},
    {"GET", "/page/", handle_page, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT | ROUTE_PREFIX, "The page's files", NULL},
    {"GET", "/health", handle_health, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT, "Whether the server is ready", NULL},
    {"GET", "/v1/health", handle_health, ROUTE_PUBLIC | ROUTE_EARLY | ROUTE_DIRECT, "The same", NULL},
    {"GET", "/v1/models", handle_models, ROUTE_PUBLIC | ROUTE_DIRECT | ROUTE_COMMON, "The models", NULL},
    {"GET", "/models", handle_models, ROUTE_PUBLIC | ROUTE_DIRECT | ROUTE_COMMON, "The models", NULL},
    {"GET", "/v1/models/", handle_model, ROUTE_PUBLIC | ROUTE_DIRECT | ROUTE_COMMON | ROUTE_PREFIX, "One model", NULL},
    {"POST", "/v1/chat/completions", handle_chat, 0, "Answers a conversation", chat_tables},
    {"POST", "/chat/completions", handle_chat, 0, "Answers a conversation", chat_tables},
    {"POST", "/v1/chat/completions/input_tokens", handle_chat_count, 0, "Counts the tokens of a conversation",
     conversation_tables},
    {"POST", "/chat/completions/input_tokens", handle_chat_count, 0, "Counts the tokens of a conversation",
     conversation_tables},
    {"POST", "/v1/completions", handle_completions, 0, "Continues a text", completion_tables},
    {"POST", "/v1/embeddings", handle_embeddings, 0, "The embeddings of texts", embedding_tables},
    {"POST", "/v1/responses", handle_responses, 0, "Answers a conversation", response_tables},
    {"POST", "/responses", handle_responses, 0, "Answers a conversation", response_tables},
    {"POST", "/v1/messages", handle_messages, 0, "Answers a conversation, as Anthropic's API does", message_tables},
    {"POST", "/v1/messages/count_tokens", handle_messages_count, 0, "Counts the tokens of a conversation",
     message_count_tables},
    {"GET", "/openapi.json", handle_openapi, ROUTE_PUBLIC | ROUTE_DIRECT | ROUTE_COMMON, "This description", NULL},
    {"POST", "/completion", handle_llama, 0, "Continues a text, as llama.cpp does", llama_tables},
    {"POST", "/completions", handle_llama, 0, "Continues a text, as llama.cpp does", llama_tables},
    {"POST", "/embedding", handle_llama_embedding, 0, "The embeddings of texts, in llama.cpp's form",
     llama_embedding_tables},
    {"POST", "/embeddings", handle_llama_embedding, 0, "The embeddings of texts, in llama.cpp's form",
     llama_embedding_tables},
    {"POST", "/infill", handle_infill, 0, "Fills a gap in a text", infill_tables},
    {"POST", "/tokenize", handle_tokenize, 0, "The tokens of a text", tokenize_tables},
    {"POST", "/detokenize", handle_detokenize, 0, "The text of tokens", detokenize_tables},
    {"POST", "/apply-template", handle_template, 0, "The text of a conversation", conversation_tables},
    {"GET", "/tokenizer_info", handle_tokenizer_info, ROUTE_DIRECT, "The tokenizer's special tokens", NULL},
    {"GET", "/props", handle_props, ROUTE_DIRECT, "Defaults and properties", NULL},
    {"GET", "/slots", handle_slots, ROUTE_DIRECT, "The slots of the batch", NULL},
    {"GET", "/metrics", handle_metrics, ROUTE_DIRECT | ROUTE_COMMON, "Counters, for Prometheus", NULL},
    {"GET", "/api/version", handle_ollama_version, ROUTE_DIRECT | ROUTE_COMMON, "The version of Ollama's API", NULL},
    {"GET", "/api/tags", handle_ollama_tags, ROUTE_DIRECT | ROUTE_COMMON, "The models, as Ollama lists them", NULL},
    {"POST", "/api/show", handle_ollama_show, 0, "A model, as Ollama describes it", show_tables},
    {NULL, NULL, NULL, 0, NULL, NULL},
};

bool decode_part(const char *text, char rest[ROUTE_REST], size_t *length) {
  size_t n = 0;
  for (; *text; text++) {
    int c = (unsigned char)*text;
    if (c == '%') {
      int high = st_hex_digit(text[1]), low = high < 0 ? -1 : st_hex_digit(text[2]);
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
  return strncmp(path, r->path, n) == 0 && decode_part(path + n, rest, length);
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
