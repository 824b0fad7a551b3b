// Starting threads: their signals, which are left to the application's own, and their stacks.
#ifndef SETUN_BASE_THREAD_H
#define SETUN_BASE_THREAD_H

#include <pthread.h>

// pthread_create with all signals blocked in the new thread but those that its own faults raise: a signal that the
// application waits for must not end in a thread that it does not know. Its stack has a size of its own, whatever the
// limit on the application's is. Returns what pthread_create does.
int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);

#endif
