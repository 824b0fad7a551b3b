// Input of commands: text from an option, a file or standard input, and lists of token ids.
#ifndef SETUN_APP_INPUT_H
#define SETUN_APP_INPUT_H

#include "options.h"
#include "setun.h"

// The options -p, -f and -e. Zero-initialize.
typedef struct text_options {
  const char *prompt, *file;
  bool escape;
} text_options;

extern const option text_rows[3];
#define TEXT_GROUP(type)                                                                                               \
  { "text", text_rows, 3, offsetof(type, text) }

// Text with its length; `data` is freed with free.
typedef struct input_text {
  char *data;
  size_t length;
} input_text;

// The text of -p, of -f ("-": standard input), or of standard input unless it is a terminal; unchanged, except
// for escapes with -e. At most `most` bytes are read (see text_limit). Returns 0, or the exit status after a report.
int read_text(const command *self, const text_options *o, size_t most, input_text *text);
// 0, or 1 after a report that the text is not UTF-8, with the file's name ("-": standard input).
int check_text(const char *name, const input_text *text);
// Replaces \n \r \t \\ \" \' and \xNN (two hexadecimal digits) by their characters; other backslashes stay. Returns the
// new length, which is not longer.
size_t unescape(char *text, size_t length);
// A whole file, or standard input for "-". Returns 0, or 1 after a report, such as that it has more than `most` bytes.
int read_file(const char *path, size_t most, input_text *text);
// A reasonable limit for text within a memory budget; 0: on this machine. Whether there is room for its tokens is
// checked separately.
size_t text_limit(uint64_t memory);

// Token ids; `ids` is freed with free.
typedef struct id_list {
  setun_token *ids;
  size_t count;
} id_list;

// Reads "1,2,3", "1 2 3" or "[1, 2, 3]". On failure `why` has the reason, or is "" after a report (out of
// memory); there is nothing to free.
bool parse_ids(const char *text, size_t length, id_list *list, char why[128]);

// Tokenizes a whole text. False after a report.
bool tokenize_text(const setun_model *model, const input_text *text, int flags, id_list *list);

void print_id_array(const setun_token *ids, size_t n); // "[1, 2, 3]" and a newline

#endif
