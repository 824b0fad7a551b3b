// Lines and messages from the terminal, with editing, completion and a history, or from standard input if that is not a
// terminal.
#ifndef SETUN_APP_EDITOR_H
#define SETUN_APP_EDITOR_H

#include "completion.h"

typedef struct editor editor;

typedef enum input_event { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_TOO_LONG, INPUT_FAILED } input_event;

typedef struct editor_options {
  bool terminal;                                           // standard input and output are a terminal
  bool color;                                              // colour of the prompt
  size_t most;                                             // most bytes of a message
  const char *history;                                     // history file; NULL: none; valid until editor_free
  completion (*complete)(const char *line, size_t length); // completions for the end of such a line
} editor_options;

// NULL after a report.
editor *editor_new(const editor_options *options);
void editor_free(editor *e); // writes the history and restores the terminal

// Between lines the terminal does not echo input; it becomes part of the next line.

// One line without its newline; *text is valid until the next call. On a terminal, pasted text stays one line that
// contains newlines, until the return key. INPUT_FAILED after a report; INPUT_INTERRUPTED after a signal (see
// interrupt.h).
input_event editor_line(editor *e, const char *prompt, const char **text, size_t *length);

// A message: on a terminal, a backslash at a line's end continues it on the next line, and lines between two """ are
// one message. Otherwise one line. INPUT_TOO_LONG, without a report, if it has too many bytes.
input_event editor_message(editor *e, const char **text, size_t *length);

#endif
