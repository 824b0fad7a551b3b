// Starting threads that leave signals to the application's own.
#ifndef SETUN_BASE_THREAD_H
#define SETUN_BASE_THREAD_H

#include <pthread.h>

// pthread_create with all signals blocked in the new thread but those that its own faults raise: a signal that the
// application waits for must not end in a thread that it does not know. Returns what pthread_create does.
int st_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);

#endif
