// Session files: texts that a later run of the command continues.
#ifndef SETUN_APP_SESSION_H
#define SETUN_APP_SESSION_H

#include "setun.h"

// Loads the file into the session where there is one; where there is none, sees to it that one can be made. False after
// a report.
bool load_session(setun_session *session, const char *path);
// Writes it, whole or not at all. False after a report.
bool save_session(setun_session *session, const char *path);

#endif
