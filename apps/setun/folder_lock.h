// A lock on a repository's folder in the store: one process at a time changes what is in it.
#ifndef SETUN_APP_FOLDER_LOCK_H
#define SETUN_APP_FOLDER_LOCK_H

#include <stdbool.h>

typedef struct folder_lock {
  char *path; // of the file ".lock" in the folder; NULL: not locked
  int fd;
} folder_lock;

// Makes the folder where it is missing, and waits for another process that has the lock. False after a report or a
// signal.
bool lock_folder(const char *folder, folder_lock *lock);
// `remove`: with the lock's file, for a folder that is to go.
void unlock_folder(folder_lock *lock, bool remove);

#endif
