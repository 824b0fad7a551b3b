// The signals that ask a command to end (Ctrl-C, Ctrl-\, SIGTERM, a terminal that goes away, a limit of time) while it
// works: they stop it, and it ends in order, with its temporary files removed and the terminal as it was.
#ifndef SETUN_APP_INTERRUPT_H
#define SETUN_APP_INTERRUPT_H

#include "setun.h"

// From now on the first such signal is remembered, for progress callbacks and loops that ask interrupt_status; a second
// one, SIGHUP and SIGXCPU apart, ends the process as if nobody had asked.
void note_interrupts(void);
// The same, and the signal stops the session's evaluation. The session must live until watch_interrupts(NULL).
void watch_interrupts(setun_session *session);
// 0, or the exit status for the signal that came, such as 130.
int interrupt_status(void);
int failed_status(void); // the same, or 1 when none came: the status of work that did not succeed

// For commands that go on after Ctrl-C: every signal stops the session's evaluation and ends a waiting read with EINTR.
// Also notices when the process goes on after a stop, and when the terminal has another size. `session` as above.
void catch_interrupts(setun_session *session);
bool interrupt_pending(void); // did one come since the last take_interrupt?
bool take_interrupt(void);    // the same, and forgets SIGINT
bool take_resized(void), take_continued(void);
// Keeps these signals from this thread while it writes: a write that one of them ends would lose text.
void block_signals(bool block);
// Waits until there is something to read, or one of these signals: false, with EINTR. One that came just before is not
// missed, as it would be between a question and a read.
bool wait_for_input(int fd);

#endif
