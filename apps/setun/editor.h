// Lines and messages from whoever sits at the terminal, with editing and a history that ends with the program; or from
// standard input where that is not a terminal.
#ifndef SETUN_APP_EDITOR_H
#define SETUN_APP_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct editor editor;

typedef enum input_event { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_TOO_LONG, INPUT_FAILED } input_event;

// For standard input and output, where `terminal` says that these are a terminal; a message has at most `most` bytes.
// NULL after a report.
editor *editor_new(bool terminal, size_t most);
void editor_free(editor *e); // leaves the terminal as it was

// One line without its newline, *text being the editor's own until its next call. With a terminal, pasted text stays
// one line with newlines in it, which wait for the return key. INPUT_FAILED after a report; INPUT_INTERRUPTED when a
// signal came (see interrupt.h).
input_event editor_line(editor *e, const char *prompt, const char **text, size_t *length);

// A message: on a terminal, a backslash at a line's end continues it on the next line, and lines between two """ are
// one message. Elsewhere one line. INPUT_TOO_LONG, with nothing said, for one of more bytes than it may have.
input_event editor_message(editor *e, const char **text, size_t *length);

#endif
