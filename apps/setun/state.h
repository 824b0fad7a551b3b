// Files that the command keeps for itself from one run to the next.
#ifndef SETUN_APP_STATE_H
#define SETUN_APP_STATE_H

// The path of such a file in $XDG_STATE_HOME/setun, or in ~/.local/state/setun where that names no absolute path (XDG
// Base Directory Specification); the folder is made where it is missing. Freed with free. NULL after a note: there is
// no such folder.
char *state_file(const char *name);

#endif
