// Files that the command keeps between runs.
#ifndef SETUN_APP_STATE_H
#define SETUN_APP_STATE_H

#include <stdbool.h>

// The path of such a file in $XDG_STATE_HOME/setun, or in ~/.local/state/setun if that is not an absolute path (XDG
// Base Directory Specification); the folder is made if missing. Freed with free. NULL after a note: the folder cannot
// be made.
char *state_file(const char *name);
// The same for what can be made again: the folder $XDG_CACHE_HOME/setun, or ~/.cache/setun.
char *cache_folder(void);
// Makes all folders of the path up to its last slash, with this mode less the umask. False, with errno.
bool make_folders(char *path, unsigned mode);

#endif
