// Text from options, files and standard input; token ids from text.
#define _POSIX_C_SOURCE 200809L
#include "input.h"

#include "base/hex.h"
#include "base/utf8.h"
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const option text_rows[3] = {
    {'p', "prompt", OPTION_TEXT, offsetof(text_options, prompt), "TEXT", 0, 0, "the text"},
    {'f', "file", OPTION_FILE, offsetof(text_options, file), "FILE", 0, 0,
     "a file with the text, or - for standard input (the default unless that is a terminal)"},
    {'e', "escape", OPTION_FLAG, offsetof(text_options, escape), NULL, 0, 0,
     "interpret \\n, \\r, \\t, \\\\, \\\" and \\xNN in the text as in C"},
};

size_t text_limit(uint64_t memory) {
  enum { LEAST = 1 << 20, A_BYTE = 4 };
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (!memory) memory = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : SIZE_MAX;
  uint64_t most = memory / A_BYTE;
  return most < LEAST ? LEAST : most < SIZE_MAX ? (size_t)most : SIZE_MAX;
}

static int read_stream(FILE *from, const char *name, size_t most, input_text *text) {
  size_t capacity = 0, length = 0;
  char *data = NULL;
  for (size_t got = 1; got;) {
    if (capacity - length < 4096) {
      size_t larger = capacity ? capacity * 2 : 65536;
      char *grown = larger > capacity ? realloc(data, larger) : NULL;
      if (!grown) {
        free(data);
        return failure("%s: out of memory for more than %zu bytes of text", name, length);
      }
      data = grown;
      capacity = larger;
    }
    got = fread(data + length, 1, capacity - length - 1, from);
    length += got;
    if (length > most) {
      free(data);
      return failure("%s: expected at most %zu bytes, as memory allows, found more", name, most);
    }
  }
  if (ferror(from)) {
    free(data);
    return failure("%s: cannot read: %s", name, reason_of(errno));
  }
  data[length] = 0;
  *text = (input_text){data, length};
  return 0;
}

int read_file(const char *path, size_t most, input_text *text) {
  if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", most, text);
  FILE *file = fopen(path, "rb");
  if (!file) return failure("%s: cannot open: %s", path, reason_of(errno));
  int status = read_stream(file, path, most, text);
  fclose(file);
  return status;
}

size_t unescape(char *text, size_t length) {
  static const char letters[] = "nrt\\\"'", meanings[] = "\n\r\t\\\"'";
  size_t out = 0;
  for (size_t i = 0; i < length; i++) {
    size_t left = length - i;
    const char *found = text[i] == '\\' && left > 1 && text[i + 1] ? strchr(letters, text[i + 1]) : NULL;
    if (found) {
      text[out++] = meanings[found - letters];
      i++;
    } else if (text[i] == '\\' && left > 3 && text[i + 1] == 'x' && st_hex_digit(text[i + 2]) >= 0 &&
               st_hex_digit(text[i + 3]) >= 0) {
      text[out++] = (char)(unsigned char)(st_hex_digit(text[i + 2]) * 16 + st_hex_digit(text[i + 3]));
      i += 3;
    } else {
      text[out++] = text[i];
    }
  }
  return out;
}

static int find_text(const command *self, const text_options *o, size_t most, input_text *text) {
  if (o->prompt && o->file) return usage_error(self, "expected either --prompt or --file, found both");
  if (o->prompt) {
    *text = (input_text){strdup(o->prompt), strlen(o->prompt)};
    return text->data ? 0 : failure("out of memory for the prompt");
  }
  if (o->file) return read_file(o->file, most, text);
  if (isatty(STDIN_FILENO)) return usage_error(self, "no text: give -p TEXT or -f FILE, or pipe it in");
  return read_file("-", most, text);
}

int check_text(const char *name, const input_text *text) {
  size_t span = st_utf8_span(text->data, text->length);
  if (span == text->length) return 0;
  return failure("%s: the text is not UTF-8 at byte %zu", strcmp(name, "-") ? name : "standard input", span);
}

int read_text(const command *self, const text_options *o, size_t most, input_text *text) {
  int status = find_text(self, o, most, text);
  if (!status && (status = check_text(o->prompt ? "--prompt" : o->file ? o->file : "-", text))) {
    free(text->data);
    *text = (input_text){0};
  }
  if (!status && o->escape) text->length = unescape(text->data, text->length);
  return status;
}

static bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// One id at `p`; NULL when there is none.
static const char *parse_id(const char *p, const char *end, setun_token *id) {
  int64_t v = 0;
  const char *start = p;
  for (; p < end && *p >= '0' && *p <= '9' && v <= INT32_MAX; p++) v = v * 10 + (*p - '0');
  if (p == start || v > INT32_MAX) return NULL;
  *id = (setun_token)v;
  return p;
}

static const char *skip_spaces(const char *p, const char *end) {
  while (p < end && is_space(*p)) p++;
  return p;
}

// The ids between *at and `end`, separated by commas, or by spaces where `spaces`. NULL, or what was expected at *at.
static const char *parse_list(const char **at, const char *end, bool spaces, id_list *list) {
  const char *p = *at;
  bool need = false; // a comma requires another id
  for (p = skip_spaces(p, end); p < end || need; p = skip_spaces(p, end)) {
    *at = p;
    p = parse_id(p, end, &list->ids[list->count]);
    if (!p) return "a token id, a whole number from 0 to 2147483647";
    list->count++;
    const char *next = *at = skip_spaces(p, end);
    need = next < end && *next == ',';
    if (!need && next < end && !(spaces && next > p)) return "a comma";
    p = next + need;
  }
  return NULL;
}

bool parse_ids(const char *text, size_t length, id_list *list, char why[128]) {
  const char *p = skip_spaces(text, text + length), *end = text + length;
  while (end > p && is_space(end[-1])) end--;
  bool array = p < end && *p == '[';
  const char *wrong = NULL;
  // at most one id for every two bytes
  *list = (id_list){malloc((length / 2 + 2) * sizeof *list->ids), 0};
  if (!list->ids) {
    *why = 0;
    failure("out of memory for the ids in %zu bytes of text", length);
    return false;
  }
  if (array && (end - p < 2 || end[-1] != ']')) {
    wrong = "']' at the array's end";
    p = end;
  } else {
    p += array;
    end -= array;
    wrong = parse_list(&p, end, !array, list);
  }
  if (!wrong) return true;
  int shown = end - p < 16 ? (int)(end - p) : 16;
  snprintf(why, 128, "expected %s, found \"%.*s\" (after %zu ids)", wrong, shown, p, list->count);
  free(list->ids);
  *list = (id_list){NULL, 0};
  return false;
}

bool tokenize_text(const setun_model *model, const input_text *text, int flags, id_list *list) {
  setun_error error;
  size_t capacity = text->length + 8, count = 0;
  setun_token *ids = malloc(capacity * sizeof *ids);
  if (!ids) {
    failure("out of memory for the ids of %zu bytes of text", text->length);
    return false;
  }
  setun_status s = setun_tokenize(model, text->data, text->length, flags, ids, capacity, &count, &error);
  if (s == SETUN_OK && count > capacity) { // normalization may lengthen the text
    setun_token *more = count <= SIZE_MAX / sizeof *ids ? realloc(ids, count * sizeof *ids) : NULL;
    if (!more) {
      free(ids);
      failure("out of memory for %zu ids", count);
      return false;
    }
    ids = more;
    s = setun_tokenize(model, text->data, text->length, flags, ids, count, &count, &error);
  }
  if (s != SETUN_OK) {
    free(ids);
    report(&error);
    return false;
  }
  *list = (id_list){ids, count};
  return true;
}

void print_id_array(const setun_token *ids, size_t n) {
  print_text("[");
  for (size_t i = 0; i < n; i++) print_text("%s%d", i ? ", " : "", (int)ids[i]);
  print_text("]\n");
}
