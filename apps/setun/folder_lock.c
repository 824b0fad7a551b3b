// The lock is an fcntl lock on a file in the folder, which always ends with the process.
#define _POSIX_C_SOURCE 200809L
#include "folder_lock.h"

#include "interrupt.h"
#include "output.h"
#include "state.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// The previous owner of the lock may have removed the file: a lock on a file without a name is void.
static bool is_at(int fd, const char *path) {
  struct stat a, b;
  return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// 1: locked; 0: another process has it, or the file was just removed; -1: an error, with errno.
static int try_lock(folder_lock *lock) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (!make_folders(lock->path, 0777)) return -1;
  lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock->fd < 0) return errno == ENOENT ? 0 : -1;
  if (!fcntl(lock->fd, F_SETLK, &whole) && is_at(lock->fd, lock->path)) return 1;
  int error = errno, result = error && error != EACCES && error != EAGAIN && error != EINTR ? -1 : 0;
  close(lock->fd);
  errno = error;
  return result;
}

bool lock_folder(const char *folder, folder_lock *lock) {
  struct timespec pause = {0, 100000000};
  int locked = 0;
  *lock = (folder_lock){.path = join_path(folder, ".lock"), .fd = -1};
  if (!lock->path) return false;
  for (int i = 0; !interrupt_status(); i++) {
    errno = 0;
    if ((locked = try_lock(lock))) break;
    if (i == 5) note("%s: waiting for another process that is using it", folder);
    nanosleep(&pause, NULL);
  }
  if (locked < 0) failure("%s: cannot be locked: %s", lock->path, reason_of(errno));
  if (locked == 1) return true;
  free(lock->path);
  *lock = (folder_lock){0};
  return false;
}

void unlock_folder(folder_lock *lock, bool remove) {
  if (!lock->path) return;
  if (remove) unlink(lock->path);
  close(lock->fd);
  free(lock->path);
  *lock = (folder_lock){0};
}
