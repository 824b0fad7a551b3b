// The signals that ask a command to end (Ctrl-C, Ctrl-\, SIGTERM, a closed terminal, a time limit): they stop its work,
// and it ends in order, removing its temporary files and restoring the terminal.
#ifndef SETUN_APP_INTERRUPT_H
#define SETUN_APP_INTERRUPT_H

#include "setun.h"

// From now on the first such signal is recorded, for progress callbacks and loops that check interrupt_status; a second
// one, except SIGHUP and SIGXCPU, ends the process as by default.
void note_interrupts(void);
// The same, and the signal also stops the session's evaluation. The session must live until watch_interrupts(NULL).
void watch_interrupts(setun_session *session);
// 0, or the exit status for the received signal, such as 130.
int interrupt_status(void);
int failed_status(void); // the same, or 1 without a signal: the status of failed work

// For commands that continue after Ctrl-C: every signal stops the session's evaluation and ends a waiting read with
// EINTR. Also records when the process continues after a stop, and when the terminal is resized. `session` as above.
void catch_interrupts(setun_session *session);
bool interrupt_pending(void); // whether one arrived since the last take_interrupt
bool take_interrupt(void);    // the same, and clears SIGINT
bool take_resized(void), take_continued(void);
// Blocks these signals in this thread while it writes: an interrupted write would lose text.
void block_signals(bool block);
// Waits until there is something to read, or one of these signals: false, with EINTR. A signal that arrived just before
// is not missed, as it could be between a check and a read.
bool wait_for_input(int fd);

#endif
