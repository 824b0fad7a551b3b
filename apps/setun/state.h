// Files that the command keeps for itself from one run to the next.
#ifndef SETUN_APP_STATE_H
#define SETUN_APP_STATE_H

#include <stdbool.h>

// The path of such a file in $XDG_STATE_HOME/setun, or in ~/.local/state/setun where that names no absolute path (XDG
// Base Directory Specification); the folder is made where it is missing. Freed with free. NULL after a note: there is
// no such folder.
char *state_file(const char *name);
// Makes every folder of the path up to its last slash, with this mode less the umask. False, with errno.
bool make_folders(char *path, unsigned mode);

#endif
