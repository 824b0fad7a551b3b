// Starting threads that leave signals to the application's own.
#define _POSIX_C_SOURCE 200809L
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  int failed = pthread_create(thread, NULL, fn, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}
