// Compiling constraints: a queue of jobs that wait for theirs, one thread that compiles them one after the other, and
// the compiled ones, which are kept for later requests within a limit of memory.
#ifndef SETUN_SERVER_COMPILER_H
#define SETUN_SERVER_COMPILER_H

#include "job.h"

compiler *compiler_new(const server *front); // NULL: out of memory, or no thread
// Gives the job the constraint that it requests and submits it: at once if such a constraint is kept, otherwise when it
// is compiled. Takes ownership of the job.
void compiler_submit(compiler *c, job *j);
// Releases a job's constraint.
void compiler_release(compiler *c, compiled *one);
// Call before a step in which a job's constraint may grow: reserves the bytes that it may grow by; those that no job
// uses are freed first. False: they would exceed the limit together with those that jobs use.
bool compiler_grant(compiler *c, const compiled *one, uint64_t *bytes);
void compiler_take_back(compiler *c, uint64_t bytes); // after the step
// Frees the constraints of a model, which none of its jobs use any more.
void compiler_forget(compiler *c, const server *s);
// Answers waiting jobs with 503, and ends the thread.
void compiler_stop(compiler *c);
void compiler_free(compiler *c); // after compiler_stop; `c` may be NULL

// ---- statistics, for any thread ----

typedef struct compiler_state {
  uint64_t compiled, found, bytes; // constraints compiled; taken from those that are kept; memory of all
  uint32_t waiting, kept;
} compiler_state;

void compiler_look(compiler *c, compiler_state *state);
bool compiler_is_busy(const compiler *c); // a constraint is being compiled

#endif
