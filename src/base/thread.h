// Starting threads: their signals, which are left to the application's threads, and their stacks.
#ifndef SETUN_BASE_THREAD_H
#define SETUN_BASE_THREAD_H

#include <pthread.h>

// pthread_create with all signals blocked in the new thread except those raised by its own faults: signals for the
// application must not be delivered to a thread unknown to it. The stack has a fixed size, independent of the
// application's limit. Returns what pthread_create does.
int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);

#endif
