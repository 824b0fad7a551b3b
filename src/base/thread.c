// Starting threads: signals and stacks.
#define _POSIX_C_SOURCE 200809L
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

// Kernels use up to 160 KB of stack, and several times as much under sanitizers. On Linux the thread-local variables of
// all libraries are on the stack too: if these leave no room, larger stacks are tried.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 8 << 20, STACK_MOST = 64 << 20 };
#else
enum { STACK = 1 << 20, STACK_MOST = 64 << 20 };
#endif

int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
  pthread_attr_t attributes;
  int failed = pthread_attr_init(&attributes);
  if (failed) return failed;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  failed = EINVAL;
  for (size_t stack = STACK; failed == EINVAL && stack <= STACK_MOST; stack *= 2) {
    failed = pthread_attr_setstacksize(&attributes, stack);
    if (!failed) failed = pthread_create(thread, &attributes, fn, context);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return failed;
}
