// Lines and messages from whoever sits at the terminal, with editing, completion and a history; or from standard input
// where that is not a terminal.
#ifndef SETUN_APP_EDITOR_H
#define SETUN_APP_EDITOR_H

#include "completion.h"

typedef struct editor editor;

typedef enum input_event { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_TOO_LONG, INPUT_FAILED } input_event;

typedef struct editor_options {
  bool terminal;       // standard input and output are one
  bool color;          // of the prompt
  size_t most;         // bytes of a message
  const char *history; // file that keeps the lines for the next time; NULL: none; valid until editor_free
  completion (*complete)(const char *line, size_t length); // what the end of such a line may become
} editor_options;

// NULL after a report.
editor *editor_new(const editor_options *options);
void editor_free(editor *e); // writes the history, and leaves the terminal as it was

// Between lines the terminal shows nothing of what is typed; it becomes part of the next line.

// One line without its newline, *text being the editor's own until its next call. With a terminal, pasted text stays
// one line with newlines in it, which wait for the return key. INPUT_FAILED after a report; INPUT_INTERRUPTED when a
// signal came (see interrupt.h).
input_event editor_line(editor *e, const char *prompt, const char **text, size_t *length);

// A message: on a terminal, a backslash at a line's end continues it on the next line, and lines between two """ are
// one message. Elsewhere one line. INPUT_TOO_LONG, with nothing said, for one of more bytes than it may have.
input_event editor_message(editor *e, const char **text, size_t *length);

#endif
