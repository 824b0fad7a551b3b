// Conversations as JSON.
#define _POSIX_C_SOURCE 200809L
#include "conversation.h"

#include "input.h"
#include "output.h"

#include <jansson.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct conversation {
  json_t *messages, *variables;
};

conversation *conversation_new(void) {
  conversation *c = calloc(1, sizeof *c);
  if (c) c->messages = json_array();
  if (c) c->variables = json_object();
  if (c && c->messages && c->variables) return c;
  conversation_free(c);
  failure("no memory for a conversation");
  return NULL;
}

void conversation_free(conversation *c) {
  if (!c) return;
  json_decref(c->messages);
  json_decref(c->variables);
  free(c);
}

int conversation_set_variable(conversation *c, const command *self, const char *assignment) {
  const char *equals = strchr(assignment, '=');
  json_error_t where;
  if (!equals || equals == assignment) {
    return usage_error(self, "--template-arg expects KEY=JSON, such as enable_thinking=false, not '%s'", assignment);
  }
  char *key = strndup(assignment, (size_t)(equals - assignment));
  json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, &where);
  int status = 0;
  if (!value) {
    status = usage_error(self, "--template-arg %s: expected JSON (text stands in quotation marks), found '%s': %s",
                         key ? key : "", equals + 1, where.text);
  } else if (!key || json_object_set(c->variables, key, value)) {
    status = failure("no memory for a variable, or its name is not UTF-8");
  }
  json_decref(value);
  free(key);
  return status;
}

// ---- messages ----

static const char *role_of(const conversation *c, size_t i) {
  const char *role = json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
  return role ? role : "";
}

static bool is_role(const conversation *c, size_t i, const char *role) {
  return i < json_array_size(c->messages) && strcmp(role_of(c, i), role) == 0;
}

// Some models call the system prompt the developer's.
static size_t first_turn(const conversation *c) {
  return is_role(c, 0, "system") || is_role(c, 0, "developer") ? 1 : 0;
}

// The user's last message; the count of messages where there is none.
static size_t last_user(const conversation *c) {
  size_t n = json_array_size(c->messages);
  for (size_t i = n; i-- > 0;) {
    if (is_role(c, i, "user")) return i;
  }
  return n;
}

static json_t *make_message(const char *role, const char *text, size_t length) {
  json_t *content = json_stringn(text, length);
  if (!content) failure("the %s's message is not UTF-8", role);
  json_t *message = content ? json_object() : NULL;
  if (message && !json_object_set_new(message, "role", json_string(role)) &&
      !json_object_set_new(message, "content", json_incref(content))) {
    json_decref(content);
    return message;
  }
  if (content) failure("no memory for a message");
  json_decref(content);
  json_decref(message);
  return NULL;
}

static bool append(conversation *c, json_t *message) {
  if (!message) return false;
  if (!json_array_append_new(c->messages, message)) return true;
  failure("no memory for a message");
  return false;
}

bool conversation_set_system(conversation *c, const char *text, size_t length) {
  json_t *message = make_message("system", text, length);
  if (!message) return false;
  bool ok =
      first_turn(c) ? !json_array_set_new(c->messages, 0, message) : !json_array_insert_new(c->messages, 0, message);
  if (!ok) failure("no memory for a message");
  return ok;
}

const char *conversation_system(const conversation *c) {
  return first_turn(c) ? json_string_value(json_object_get(json_array_get(c->messages, 0), "content")) : NULL;
}

bool conversation_add_user(conversation *c, const char *text, size_t length) {
  return append(c, make_message("user", text, length));
}

bool conversation_add_answer(conversation *c, const char *text, size_t length, const char *reasoning,
                             size_t reasoning_length) {
  // Two names are in use; templates that know neither are not bothered by them.
  static const char *const names[] = {"reasoning_content", "thinking"};
  json_t *message = make_message("assistant", text, length);
  for (size_t i = 0; message && reasoning_length && i < 2; i++) {
    if (json_object_set_new(message, names[i], json_stringn(reasoning, reasoning_length))) {
      json_decref(message);
      message = NULL;
      failure("no memory for a message");
    }
  }
  return append(c, message);
}

size_t conversation_count(const conversation *c) {
  return json_array_size(c->messages);
}

bool conversation_wants_answer(const conversation *c) {
  size_t n = json_array_size(c->messages);
  return n && is_role(c, n - 1, "user");
}

static void remove_from(conversation *c, size_t first) {
  while (json_array_size(c->messages) > first) json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

bool conversation_drop_answer(conversation *c) {
  size_t user = last_user(c);
  if (user == json_array_size(c->messages)) return false;
  remove_from(c, user + 1);
  return true;
}

bool conversation_undo(conversation *c) {
  size_t user = last_user(c);
  if (user == json_array_size(c->messages)) return false;
  remove_from(c, user);
  return true;
}

bool conversation_drop_oldest(conversation *c) {
  size_t first = first_turn(c), last = last_user(c), next = first + 1;
  while (next < json_array_size(c->messages) && !is_role(c, next, "user")) next++;
  if (last == json_array_size(c->messages) || next > last) return false;
  for (size_t i = first; i < next; i++) json_array_remove(c->messages, first);
  return true;
}

void conversation_clear(conversation *c) {
  remove_from(c, first_turn(c));
}

char *conversation_context(const conversation *c, bool generate) {
  // Published templates are made for transformers, which always gives them these, as null where there are none.
  json_t *context = json_pack("{s:O, s:n, s:n, s:b}", "messages", c->messages, "tools", "documents",
                              "add_generation_prompt", (int)generate);
  char *text = NULL;
  if (context && !json_object_update(context, c->variables)) text = json_dumps(context, JSON_COMPACT);
  if (!text) failure("no memory for the conversation's text");
  json_decref(context);
  return text;
}

// ---- files ----

// A part of a content that is a list: text, or what a model of text alone cannot see.
static bool check_part(const json_t *part, const char *path, size_t i) {
  const char *type = json_string_value(json_object_get(part, "type"));
  if (type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text"))) return true;
  const char *kinds[] = {"image", "audio", "video"};
  for (size_t k = 0; type && k < 3; k++) {
    if (!strstr(type, kinds[k])) continue;
    failure("%s: message %zu: expected text, found %s %s: pictures, sound and film are not supported", path, i + 1,
            k == 2 ? "a" : "an", kinds[k]);
    return false;
  }
  failure("%s: message %zu: content: expected a part {\"type\": \"text\", \"text\": ...}, found another", path, i + 1);
  return false;
}

static bool check_messages(const json_t *messages, const char *path) {
  if (!json_is_array(messages)) {
    failure("%s: expected an array of messages, or an object with \"messages\", found neither", path);
    return false;
  }
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
    if (!json_is_string(json_object_get(message, "role"))) {
      failure("%s: message %zu: expected an object with \"role\", found none", path, i + 1);
      return false;
    }
    if (content && !json_is_string(content) && !json_is_null(content) && !json_is_array(content)) {
      failure("%s: message %zu: content: expected text or a list of parts, found something else", path, i + 1);
      return false;
    }
    for (size_t k = 0; k < json_array_size(content); k++) {
      if (!check_part(json_array_get(content, k), path, i)) return false;
    }
  }
  return true;
}

bool conversation_load(conversation *c, const char *path, size_t most) {
  input_text text = {0};
  json_error_t where;
  if (read_file(path, most, &text)) return false;
  json_t *root = json_loadb(text.data, text.length, JSON_ALLOW_NUL, &where);
  free(text.data);
  if (!root) {
    failure("%s: line %d, column %d: %s", path, where.line, where.column, where.text);
    return false;
  }
  json_t *messages = json_is_object(root) ? json_object_get(root, "messages") : root;
  bool ok = check_messages(messages, path);
  if (ok) {
    json_decref(c->messages);
    c->messages = json_incref(messages);
  }
  json_decref(root);
  return ok;
}

// A slip must not cost a file that is something else.
static bool may_replace(const char *path, size_t most) {
  struct stat st;
  if (stat(path, &st)) return true; // writing says what is wrong
  if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > most) {
    failure("%s: exists and has %llu bytes, more than the %zu for which there is memory to see whether it is a "
            "conversation; name another file, or remove it",
            path, (unsigned long long)st.st_size, most);
    return false;
  }
  char first = 0;
  FILE *file = S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
  if (file && fread(&first, 1, 1, file) != 1) first = 0;
  if (file) fclose(file);
  bool begins = first == '{' || first == '[';
  json_t *root = begins ? json_load_file(path, JSON_ALLOW_NUL, NULL) : NULL;
  json_t *messages = json_is_object(root) ? json_object_get(root, "messages") : root;
  bool talk = json_is_array(messages) &&
              (!json_array_size(messages) || json_is_string(json_object_get(json_array_get(messages, 0), "role")));
  json_decref(root);
  if (!talk) failure("%s: exists and is no conversation; name another file, or remove it", path);
  return talk;
}

bool conversation_save(const conversation *c, const char *path, size_t most) {
  if (!may_replace(path, most)) return false;
  size_t size = strlen(path) + 32;
  char *temporary = malloc(size);
  json_t *root = json_pack("{s:O}", "messages", c->messages);
  bool ok = temporary && root;
  if (!ok) failure("no memory for a file's name");
  if (ok) {
    snprintf(temporary, size, "%s.%ld.part", path, (long)getpid());
    FILE *file = fopen(temporary, "wbx");
    ok = file && !json_dumpf(root, file, JSON_INDENT(2)) && fputc('\n', file) != EOF && !fflush(file) &&
         !fsync(fileno(file));
    if (file && fclose(file)) ok = false;
    if (ok) ok = !rename(temporary, path);
    if (!ok) {
      failure("%s: cannot write: %s", path, strerror(errno));
      if (file) unlink(temporary);
    }
  }
  json_decref(root);
  free(temporary);
  return ok;
}

bool context_has_tools(const char *text, size_t length) {
  json_t *root = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
  bool has = json_array_size(json_object_get(root, "tools")) > 0;
  json_decref(root);
  return has;
}
