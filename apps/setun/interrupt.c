// Signals that ask a command to end: remembered, and passed on to the session that computes.
#define _DEFAULT_SOURCE // SIGWINCH
#define _DARWIN_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "interrupt.h"

#include "options.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/select.h>

static setun_session *volatile watched;
static volatile sig_atomic_t received;

static void on_signal(int number) {
  setun_session *session = watched;
  received = number;
  if (session) setun_session_stop(session);
}

void note_interrupts(void) {
  struct sigaction old, action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
  if (received) return; // the next one ends the process
  sigemptyset(&action.sa_mask);
  static const int numbers[] = {SIGINT, SIGTERM};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    // a shell's background job has SIGINT ignored, and keeps it so
    if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
  }
}

void watch_interrupts(setun_session *session) {
  watched = session;
  if (session) note_interrupts();
}

int interrupt_status(void) {
  return received ? 128 + received : 0;
}

int failed_status(void) {
  return received ? interrupt_status() : STATUS_FAILED;
}

static volatile sig_atomic_t resized, continued;

static void on_change(int number) {
  if (number == SIGCONT)
    continued = 1;
  else
    resized = 1;
}

void catch_interrupts(setun_session *session) {
  struct sigaction action = {.sa_handler = on_signal}, change = {.sa_handler = on_change};
  watched = session;
  if (!session) return;
  sigemptyset(&action.sa_mask);
  sigemptyset(&change.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGCONT, &change, NULL);
  sigaction(SIGWINCH, &change, NULL);
}

static const int caught[] = {SIGINT, SIGTERM, SIGCONT, SIGWINCH};

void hold_signals(bool hold) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigaddset(&set, caught[i]);
  pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

bool wait_for_input(int fd) {
  sigset_t let;
  fd_set fds;
  FD_ZERO(&fds);
  FD_SET(fd, &fds);
  hold_signals(true);
  pthread_sigmask(SIG_BLOCK, NULL, &let);
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigdelset(&let, caught[i]);
  bool came = received || resized || continued;
  came = came || (pselect(fd + 1, &fds, NULL, NULL, NULL, &let) < 0 && errno == EINTR);
  hold_signals(false);
  if (came) errno = EINTR;
  return !came;
}

bool interrupt_pending(void) {
  return received != 0;
}

bool take_interrupt(void) {
  bool came = received != 0;
  if (received == SIGINT) received = 0;
  return came;
}

bool take_resized(void) {
  bool came = resized != 0;
  resized = 0;
  return came;
}

bool take_continued(void) {
  bool came = continued != 0;
  continued = 0;
  return came;
}
