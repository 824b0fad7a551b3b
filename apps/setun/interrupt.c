// Signals that ask a command to end: recorded, and passed on to the running session.
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

// The signals that end a process by default. When a terminal closes, it sends SIGHUP and the shell sends another one; a
// limit of processor time sends SIGXCPU every second. For the other signals, a second one means that the user will not
// wait.
static const struct {
  int number;
  bool repeats;
} ending[] = {{SIGINT, false},  {SIGTERM, false},   {SIGQUIT, false}, {SIGHUP, true},
              {SIGXCPU, true},  {SIGPIPE, false},   {SIGALRM, false}, {SIGUSR1, false},
              {SIGUSR2, false}, {SIGVTALRM, false}, {SIGPROF, false}};
enum { ENDING = sizeof ending / sizeof *ending };

// Ignored signals stay ignored: SIGINT in a shell's background job, SIGHUP under nohup.
static void catch_ending(bool once) {
  for (size_t i = 0; i < ENDING; i++) {
    bool reset = once && !ending[i].repeats;
    struct sigaction old,
        action = {.sa_handler = on_signal, .sa_flags = (reset ? (int)SA_RESETHAND : 0) | (once ? SA_RESTART : 0)};
    sigemptyset(&action.sa_mask);
    if (!sigaction(ending[i].number, NULL, &old) && old.sa_handler != SIG_IGN)
      sigaction(ending[i].number, &action, NULL);
  }
}

void note_interrupts(void) {
  if (!received) catch_ending(true); // otherwise the next one ends the process
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
  struct sigaction change = {.sa_handler = on_change};
  watched = session;
  if (!session) return;
  sigemptyset(&change.sa_mask);
  catch_ending(false);
  sigaction(SIGCONT, &change, NULL);
  sigaction(SIGWINCH, &change, NULL);
}

// All signals that catch_interrupts catches.
static sigset_t caught_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < ENDING; i++) sigaddset(&set, ending[i].number);
  sigaddset(&set, SIGCONT);
  sigaddset(&set, SIGWINCH);
  return set;
}

void block_signals(bool block) {
  sigset_t set = caught_signals();
  pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

bool wait_for_input(int fd) {
  sigset_t open, caught = caught_signals();
  fd_set fds;
  FD_ZERO(&fds);
  FD_SET(fd, &fds);
  pthread_sigmask(SIG_BLOCK, &caught, &open);
  bool came = received || resized || continued;
  came = came || (pselect(fd + 1, &fds, NULL, NULL, NULL, &open) < 0 && errno == EINTR);
  pthread_sigmask(SIG_SETMASK, &open, NULL);
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
