// Conversations as JSON.
#define _POSIX_C_SOURCE 200809L
#include "conversation.h"

#include "input.h"
#include "output.h"

#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct conversation {
  st_json *document; // that contains the messages
  st_json messages;
  st_json *variables;
};

conversation *conversation_new(void) {
  conversation *c = calloc(1, sizeof *c);
  if (c) {
    c->document = st_json_new();
    c->messages = st_json_make_array();
    c->variables = st_json_new();
  }
  if (c && c->document && c->variables) return c;
  conversation_free(c);
  failure("out of memory for a conversation");
  return NULL;
}

void conversation_free(conversation *c) {
  if (!c) return;
  st_json_free(c->document);
  st_json_free(c->variables);
  free(c);
}

int conversation_set_variable(conversation *c, const command *self, const char *assignment) {
  const char *equals = strchr(assignment, '=');
  setun_error error;
  st_json *value = NULL;
  if (!equals || equals == assignment) {
    return usage_error(self, "--template-arg expects KEY=JSON, such as enable_thinking=false, not '%s'", assignment);
  }
  if (!st_utf8_valid(assignment, (size_t)(equals - assignment))) {
    return failure("--template-arg %s: the variable's name is not UTF-8", assignment);
  }
  char *key = strndup(assignment, (size_t)(equals - assignment));
  if (!key) return failure("out of memory for a variable");
  int status = 0;
  if (st_json_parse_any(equals + 1, strlen(equals + 1), key, &value, &error) == SETUN_OK) {
    st_json_set(c->variables, c->variables, key, st_json_copy_of(c->variables, value));
    if (st_json_failed(c->variables)) status = failure("out of memory for a variable");
  } else if (error.code == SETUN_ERROR_MEMORY) {
    status = report(&error);
  } else {
    status = usage_error(self, "--template-arg %s: expected JSON (text needs quotation marks), found '%s': %s", key,
                         equals + 1, error.message + strlen(key) + 2);
  }
  st_json_free(value);
  free(key);
  return status;
}

// ---- messages ----

static const char *role_of(const conversation *c, size_t i) {
  const char *role = st_json_string(st_json_find(st_json_at(&c->messages, i), "role"));
  return role ? role : "";
}

static bool is_role(const conversation *c, size_t i, const char *role) {
  return i < conversation_count(c) && strcmp(role_of(c, i), role) == 0;
}

// Some models have a developer prompt as the system prompt.
static size_t first_turn(const conversation *c) {
  return is_role(c, 0, "system") || is_role(c, 0, "developer") ? 1 : 0;
}

// Index of the user's last message; the number of messages if there is none.
static size_t last_user(const conversation *c) {
  size_t n = conversation_count(c);
  for (size_t i = n; i-- > 0;) {
    if (is_role(c, i, "user")) return i;
  }
  return n;
}

// False after a report.
static bool make_message(conversation *c, const char *role, const char *text, size_t length, st_json *message) {
  *message = st_json_make_object();
  st_json content = st_json_make_string(c->document, text, length);
  if (st_json_failed(c->document)) {
    failure(st_utf8_valid(text, length) ? "out of memory for the %s's message" : "the %s's message is not UTF-8", role);
    return false;
  }
  st_json_set(c->document, message, "role", st_json_make_text(c->document, role));
  st_json_set(c->document, message, "content", content);
  return true;
}

// Whether adding a message succeeded; false after a report.
static bool is_kept(conversation *c) {
  if (!st_json_failed(c->document)) return true;
  failure("out of memory for a message");
  return false;
}

static bool append(conversation *c, st_json message) {
  st_json_push(c->document, &c->messages, message);
  return is_kept(c);
}

bool conversation_set_system(conversation *c, const char *text, size_t length) {
  st_json message;
  if (!make_message(c, "system", text, length, &message) || !is_kept(c)) return false;
  if (first_turn(c)) {
    c->messages.as.items[0] = message;
  } else {
    st_json_insert(c->document, &c->messages, 0, message);
  }
  return is_kept(c);
}

const char *conversation_system(const conversation *c) {
  return first_turn(c) ? st_json_string(st_json_find(st_json_at(&c->messages, 0), "content")) : NULL;
}

bool conversation_add_user(conversation *c, const char *text, size_t length) {
  st_json message;
  return make_message(c, "user", text, length, &message) && is_kept(c) && append(c, message);
}

bool conversation_add_answer(conversation *c, const char *text, size_t length, const char *reasoning,
                             size_t reasoning_length) {
  // Two names are in use; templates that use neither ignore them.
  static const char *const names[] = {"reasoning_content", "thinking"};
  st_json message;
  if (!make_message(c, "assistant", text, length, &message)) return false;
  for (size_t i = 0; reasoning_length && i < 2; i++) {
    st_json_set(c->document, &message, names[i], st_json_make_string(c->document, reasoning, reasoning_length));
  }
  return is_kept(c) && append(c, message);
}

size_t conversation_count(const conversation *c) {
  return st_json_size(&c->messages);
}

bool conversation_wants_answer(const conversation *c) {
  size_t n = conversation_count(c);
  return n && is_role(c, n - 1, "user");
}

static void remove_from(conversation *c, size_t first) {
  if (conversation_count(c) > first) st_json_remove(&c->messages, first, conversation_count(c) - first);
}

bool conversation_drop_answer(conversation *c) {
  size_t user = last_user(c);
  if (user == conversation_count(c)) return false;
  remove_from(c, user + 1);
  return true;
}

bool conversation_undo(conversation *c) {
  size_t user = last_user(c);
  if (user == conversation_count(c)) return false;
  remove_from(c, user);
  return true;
}

void conversation_clear(conversation *c) {
  remove_from(c, first_turn(c));
}

char *conversation_context(const conversation *c, bool generate) {
  st_json *context = st_json_new(); // freed before the conversation that its values come from
  st_buffer text = {0};
  if (context) {
    // Published templates are made for transformers, which always passes these, as null if absent.
    st_json_set(context, context, "messages", c->messages);
    st_json_set(context, context, "tools", st_json_make_null());
    st_json_set(context, context, "documents", st_json_make_null());
    st_json_set(context, context, "add_generation_prompt", st_json_make_bool(generate));
    for (size_t i = 0; i < st_json_members(c->variables); i++) {
      const st_json_member *m = st_json_member_at(c->variables, i);
      st_json_set(context, context, m->key, m->value);
    }
  }
  if (!context || st_json_failed(context) || !st_json_append_exact(context, &text)) {
    failure("out of memory for the conversation's text");
    st_buffer_free(&text);
  }
  st_json_free(context);
  return text.data;
}

// ---- files ----

// A part of content that is a list: text, or something that a text model cannot process.
static bool check_part(const st_json *part, const char *path, size_t i) {
  const char *type = st_json_string(st_json_find(part, "type"));
  if (type && strcmp(type, "text") == 0 && st_json_is_string(st_json_find(part, "text"))) return true;
  const char *kinds[] = {"image", "audio", "video"};
  for (size_t k = 0; type && k < 3; k++) {
    if (!strstr(type, kinds[k])) continue;
    failure("%s: message %zu: expected text, found %s %s: images, audio and video are not supported", path, i + 1,
            k == 2 ? "a" : "an", kinds[k]);
    return false;
  }
  failure("%s: message %zu: content: expected a part {\"type\": \"text\", \"text\": ...}, found another type", path,
          i + 1);
  return false;
}

// Message `i`; `name` is the source for messages.
static bool check_message(const st_json *message, const char *name, size_t i) {
  const st_json *content = st_json_find(message, "content");
  if (!st_json_is_string(st_json_find(message, "role"))) {
    failure("%s: message %zu: expected an object with \"role\", found none", name, i + 1);
    return false;
  }
  bool answer = !strcmp(st_json_string(st_json_find(message, "role")), "assistant"); // which may be calls alone
  if (!answer && (!content || st_json_is_null(content))) {
    failure("%s: message %zu: expected \"content\", found none", name, i + 1);
    return false;
  }
  if (content && !st_json_is_string(content) && !st_json_is_null(content) && !st_json_is_array(content)) {
    failure("%s: message %zu: content: expected text or a list of parts, found something else", name, i + 1);
    return false;
  }
  for (size_t k = 0; k < st_json_size(content); k++) {
    if (!check_part(st_json_at(content, k), name, i)) return false;
  }
  return true;
}

static bool check_messages(const st_json *messages, const char *name) {
  if (!st_json_is_array(messages)) {
    failure("%s: expected an array of messages, or an object with \"messages\", found neither", name);
    return false;
  }
  for (size_t i = 0; i < st_json_size(messages); i++) {
    if (!check_message(st_json_at(messages, i), name, i)) return false;
  }
  return true;
}

// The messages in a file's root; NULL: neither a list nor an object with one.
static const st_json *messages_of(const st_json *root) {
  return st_json_is_object(root) ? st_json_find(root, "messages") : root;
}

bool conversation_load(conversation *c, const char *path, size_t most) {
  input_text text = {0};
  if (read_file(path, most, &text)) return false;
  bool read = conversation_read(c, text.data, text.length, path, false);
  free(text.data);
  return read;
}

// No member of a request is ignored; those that `chat --json` prints with an answer are accepted.
static bool check_members(const st_json *root, const char *name) {
  static const char *const known[] = {"messages", "stop_reason", "prompt_tokens", "new_tokens"};
  enum { KNOWN = sizeof known / sizeof *known };
  for (size_t i = 0; st_json_is_object(root) && i < st_json_members(root); i++) {
    const char *key = st_json_member_at(root, i)->key;
    size_t k = 0;
    while (k < KNOWN && strcmp(key, known[k]) != 0) k++;
    if (k < KNOWN) continue;
    failure("%s: expected only \"messages\", found \"%s\" (variables of the template: see --template-arg)", name, key);
    return false;
  }
  return true;
}

bool conversation_read(conversation *c, const char *text, size_t length, const char *name, bool strict) {
  setun_error error;
  st_json *root;
  if (st_json_parse_any(text, length, name, &root, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  const st_json *messages = messages_of(root);
  if ((strict && !check_members(root, name)) || !check_messages(messages, name)) {
    st_json_free(root);
    return false;
  }
  st_json_free(c->document);
  c->document = root;
  c->messages = *messages;
  return true;
}

bool conversation_add_json(conversation *c, const char *text, size_t length, const char *name) {
  setun_error error;
  st_json *root;
  if (st_json_parse_any(text, length, name, &root, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  bool added = check_message(root, name, conversation_count(c)) && append(c, st_json_copy_of(c->document, root));
  st_json_free(root);
  return added;
}

const char *conversation_last_role(const conversation *c) {
  return conversation_count(c) ? role_of(c, conversation_count(c) - 1) : "";
}

char *conversation_lines(const conversation *c) {
  st_buffer text = {0};
  bool ok = st_buffer_text(&text, "[");
  for (size_t i = 0; ok && i < conversation_count(c); i++) {
    ok = st_buffer_text(&text, i ? ",\n  " : "\n  ") && st_json_append_exact(st_json_at(&c->messages, i), &text);
  }
  if (ok && st_buffer_text(&text, "\n]")) return text.data;
  failure("out of memory for the conversation's text");
  st_buffer_free(&text);
  return NULL;
}

char *conversation_last_line(const conversation *c, const char *stop_reason) {
  const st_json *message = st_json_at(&c->messages, conversation_count(c) - 1);
  st_json *root = st_json_new(); // freed before the conversation that its values come from
  st_buffer text = {0};
  for (size_t i = 0; root && i < st_json_members(message); i++) {
    const st_json_member *m = st_json_member_at(message, i);
    st_json_set(root, root, m->key, m->value);
  }
  if (root) st_json_set(root, root, "stop_reason", st_json_make_text(root, stop_reason));
  if (!root || st_json_failed(root) || !st_json_append_exact(root, &text) || !st_buffer_text(&text, "\n")) {
    failure("out of memory for the conversation's text");
    st_buffer_free(&text);
  }
  st_json_free(root);
  return text.data;
}

// Whether a file's text is a conversation; false after a report.
static bool is_conversation(const char *path, const input_text *text) {
  setun_error error;
  st_json *root;
  setun_status s = st_json_parse_any(text->data, text->length, path, &root, &error);
  if (s == SETUN_ERROR_MEMORY) {
    report(&error);
    return false;
  }
  const st_json *messages = messages_of(root);
  bool talk = st_json_is_array(messages) &&
              (!st_json_size(messages) || st_json_is_string(st_json_find(st_json_at(messages, 0), "role")));
  st_json_free(root);
  if (!talk) failure("%s: exists and is not a conversation; name another file, or remove it", path);
  return talk;
}

// A mistyped name must not overwrite a different kind of file.
static bool may_replace(const char *path, size_t most) {
  struct stat st;
  if (stat(path, &st)) return true; // writing reports what is wrong
  if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > most) {
    failure("%s: exists and has %llu bytes, more than the %zu that can be read into memory to check that it is a "
            "conversation; name another file, or remove it",
            path, (unsigned long long)st.st_size, most);
    return false;
  }
  char first = 0;
  FILE *file = S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
  if (!file && S_ISREG(st.st_mode)) {
    failure("%s: cannot open: %s", path, reason_of(errno));
    return false;
  }
  if (file && fread(&first, 1, 1, file) != 1) first = 0;
  if (file) fclose(file);
  if (first != '{' && first != '[') {
    failure("%s: exists and is not a conversation; name another file, or remove it", path);
    return false;
  }
  input_text text = {0};
  if (read_file(path, most, &text)) return false;
  bool talk = is_conversation(path, &text);
  free(text.data);
  return talk;
}

// {"messages": [...]} and a newline. False: out of memory.
static bool put_file(const conversation *c, st_buffer *out) {
  st_json *root = st_json_new(); // freed before the conversation that its values come from
  if (root) st_json_set(root, root, "messages", c->messages);
  bool ok = root && !st_json_failed(root) && st_json_append_lines(root, out) && st_buffer_text(out, "\n");
  st_json_free(root);
  return ok;
}

// Reads a whole file. False after a report.
static bool write_file(const char *path, const char *text, size_t length) {
  setun_output *output = NULL;
  setun_error error;
  setun_status s = setun_output_open(path, &output, &error);
  if (s == SETUN_OK) s = setun_output_write(output, 0, text, length, &error);
  if (s == SETUN_OK) {
    s = setun_output_commit(output, &error);
  } else {
    setun_output_discard(output);
  }
  if (s != SETUN_OK) report(&error);
  return s == SETUN_OK;
}

bool conversation_save(const conversation *c, const char *path, size_t most) {
  if (!may_replace(path, most)) return false;
  st_buffer text = {0};
  bool ok = put_file(c, &text);
  if (!ok) failure("out of memory for the conversation's text");
  ok = ok && write_file(path, text.data, text.length);
  st_buffer_free(&text);
  return ok;
}

bool context_has_tools(const char *text, size_t length, bool *has) {
  setun_error error;
  st_json *root;
  *has = false;
  if (st_json_parse_any(text, length, "context", &root, &error) != SETUN_OK) {
    if (error.code == SETUN_ERROR_MEMORY) report(&error);
    return error.code != SETUN_ERROR_MEMORY;
  }
  *has = st_json_size(st_json_find(root, "tools")) > 0;
  st_json_free(root);
  return true;
}
