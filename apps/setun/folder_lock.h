// A lock on a repository's folder in the store: only one process at a time may change it.
#ifndef SETUN_APP_FOLDER_LOCK_H
#define SETUN_APP_FOLDER_LOCK_H

#include <stdbool.h>

typedef struct folder_lock {
  char *path; // path of the file ".lock" in the folder; NULL: not locked
  int fd;
} folder_lock;

// Makes the folder if it is missing, and waits while another process has the lock. False after a report or a signal.
bool lock_folder(const char *folder, folder_lock *lock);
// `remove`: also removes the lock's file, for a folder to be removed.
void unlock_folder(folder_lock *lock, bool remove);

#endif
