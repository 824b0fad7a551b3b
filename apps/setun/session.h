// Session files: texts that a later run of the command continues; and what is said of a session's guesses.
#ifndef SETUN_APP_SESSION_H
#define SETUN_APP_SESSION_H

#include "setun.h"

// Loads the file into the session where there is one; where there is none, sees to it that one can be made. False after
// a report.
bool load_session(setun_session *session, const char *path);
// Writes it, whole or not at all. False after a report.
bool save_session(setun_session *session, const char *path);

// What came of guesses (--draft): a line on stderr, nothing where there were none; and members of a JSON object, each
// after ", ".
void print_draft_report(const setun_session *session);
void print_draft_json(const setun_session *session);

#endif
