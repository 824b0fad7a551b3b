// Starting threads that leave signals to the application's own.
#define _POSIX_C_SOURCE 200809L
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

// What kernels keep on the stack is up to 160 KB; some C libraries give a thread less than that.
enum { STACK_LEAST = 1 << 20 };

int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
  pthread_attr_t attributes;
  size_t stack;
  int failed = pthread_attr_init(&attributes);
  if (failed) return failed;
  if (!pthread_attr_getstacksize(&attributes, &stack) && stack < STACK_LEAST)
    pthread_attr_setstacksize(&attributes, STACK_LEAST);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  failed = pthread_create(thread, &attributes, fn, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return failed;
}
