// Ctrl-C (SIGINT) and SIGTERM while a session computes: they stop it, and the command ends in order.
#ifndef SETUN_APP_INTERRUPT_H
#define SETUN_APP_INTERRUPT_H

#include "setun.h"

// From now on the first such signal stops the session's evaluation and is remembered; a second one ends the process
// as if nobody had asked. The session must live until watch_interrupts(NULL).
void watch_interrupts(setun_session *session);
// 0, or the exit status for the signal that came, such as 130.
int interrupt_status(void);

#endif
