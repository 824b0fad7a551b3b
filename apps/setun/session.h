// Session files: texts that a later run of the command continues; and statistics of a session's drafts.
#ifndef SETUN_APP_SESSION_H
#define SETUN_APP_SESSION_H

#include "setun.h"

// Loads the file into the session if it exists; otherwise checks that it can be created. False after a report.
bool load_session(setun_session *session, const char *path);
// Writes it, completely or not at all. False after a report.
bool save_session(setun_session *session, const char *path);

// Statistics of drafts (--draft): a line on stderr, nothing if there were none; and members of a JSON object, each
// after ", ".
void print_draft_report(const setun_session *session);
void print_draft_json(const setun_session *session);

#endif
