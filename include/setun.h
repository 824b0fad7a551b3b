/* Setun: language models with ternary and other very low-bit weights. The public header, and the only one that programs
 * include. Its parts are installed beside it:
 *
 *   setun.h               conventions; version; names and choices
 *   setun_api.h           how functions and parameters are declared
 *   setun_types.h         statuses, errors, callbacks, formats of the KV cache
 *   setun_model.h         model; adapters; plan
 *   setun_tokens.h        tokens
 *   setun_session.h       session
 *   setun_context.h       contexts
 *   setun_embeddings.h    embeddings
 *   setun_sampling.h      sampling
 *   setun_generate.h      generating
 *   setun_chat.h          chat
 *   setun_files.h         inspection; conversion; output files
 *   setun_experimental.h  synthetic models; benchmarks
 *
 * Conventions. Every function that can fail returns a setun_status and takes a `setun_error *` last, which may
 * be NULL; on failure it holds the status and one line that names what failed, what was expected and what was
 * found, and output parameters are left untouched (setun_model_plan and setun_model_plan_synthetic fill the plan also
 * where the budget is too small). Handles are opaque; the caller owns each handle that it was given and frees it with
 * the function named beside it, which accepts NULL. Text is UTF-8 and comes with its length in bytes unless it is a
 * path or a name, which end with a 0 byte. The library keeps no global state, reads no environment variables, prints
 * nothing and never ends the process.
 *
 * Arguments. NULL where something is expected, numbers out of range and unknown flags are SETUN_ERROR_ARGUMENT;
 * functions that return no status then give 0, false, -1 or NULL, as for an object that holds nothing. A text or an
 * array may be NULL where its length is 0.
 *
 * Structs that grow. Parameters (setun_X_params) and what getters fill in (setun_model_info, setun_plan, ...) begin
 * with `size`, the bytes that the caller's struct has, so that fields can be added behind the others while programs
 * built with an older header go on working. Parameters begin as setun_X_params_default() gives them, or as
 * setun_X_params_init leaves them; then members are set. Fields that the caller's struct does not have take their
 * defaults. A struct that is larger than the library's own is taken if the rest of it is zero. Before a getter is
 * called, `size` is set: setun_plan plan = {.size = sizeof plan}; it fills what fits, and members that it does not know
 * with zeros. Wherever parameters are taken by pointer, NULL means the defaults. Other structs never change.
 *
 * Callbacks. Where parameters have `log`, `progress` and `user`, each may be NULL, and `user` is what the other two
 * receive. They are called on the thread that called the function, and not after it has returned; a model's `log` is
 * called also by what computes with the model later, until the model is freed.
 *
 * Stability. Within one SOVERSION (the shared library's name, libsetun.so.N) functions, members and enumerators are
 * added at most: a program that was built against an older version runs with a newer one. What setun_experimental.h
 * declares, and what is marked "experimental" elsewhere, is not part of that promise.
 *
 * Threads. A setun_model and a setun_file are immutable once made: any number of threads may use one at once.
 * A setun_session, setun_context, setun_sampler or setun_decoder belongs to one thread at a time; only
 * setun_session_stop and setun_context_stop may be called from another thread or from a signal handler.
 *
 * Processes. What computes belongs to the process that made it. In a forked child, sessions, contexts and what needs a
 * model's weights (setun_model_measure_disk) give SETUN_ERROR_STATE; the text functions of a model (tokens,
 * chat) work, and so do samplers and decoders. Freeing an inherited object releases the child's memory and touches
 * nothing of the parent's. A child that computes loads the model itself.
 *
 * Floating point. What the application has set - rounding, flushing of denormals, traps - changes no result and is the
 * same afterwards: functions that compute, and the library's threads, round to nearest and keep denormals. Callbacks
 * run in those modes too. */
#ifndef SETUN_H
#define SETUN_H

#include "setun_api.h"
#include "setun_chat.h"
#include "setun_context.h"
#include "setun_embeddings.h"
#include "setun_experimental.h"
#include "setun_files.h"
#include "setun_generate.h"
#include "setun_model.h"
#include "setun_sampling.h"
#include "setun_session.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ----------------------------------------------------------------------------------------------- */

#define SETUN_VERSION_MAJOR 0
#define SETUN_VERSION_MINOR 1
#define SETUN_VERSION_PATCH 0
/* Of this header, to compare with: 100 for 0.1.0, 10203 for 1.2.3. */
#define SETUN_VERSION_NUMBER (SETUN_VERSION_MAJOR * 10000 + SETUN_VERSION_MINOR * 100 + SETUN_VERSION_PATCH)

/* Of the library that runs: "0.1.0", and as SETUN_VERSION_NUMBER. */
SETUN_API const char *setun_version(void);
SETUN_API int setun_version_number(void);

/* ---- names and choices ------------------------------------------------------------------------------------- */

/* "ok", "memory", "io", "format", "unsupported", "argument", "limit", "canceled", "state"; NULL: no setun_status. */
SETUN_API const char *setun_status_name(setun_status status);

/* The instruction sets whose kernels this machine can run, best last, such as "scalar avx2 avx512". */
SETUN_API const char *setun_isa_available(void);

/* What is chosen by name. */
typedef enum setun_choice {
  SETUN_CHOICE_ISA,       /* setun_model_params.isa: all that there are kernels for, in rising order of preference */
  SETUN_CHOICE_ASSUME,    /* setun_model_params.assume */
  SETUN_CHOICE_LAYOUT,    /* setun_convert_params.to */
  SETUN_CHOICE_EMBEDDING, /* setun_convert_params.embedding and .head */
  SETUN_CHOICE_SYNTHETIC, /* setun_synthesis_params.format and .head */
  SETUN_CHOICE_SHAPE,     /* setun_synthesis_params.shape */
  SETUN_CHOICE_KV         /* setun_session_params.kv_keys and .kv_values: the index is the setun_kv_type */
} setun_choice;

/* The names of a choice, one an index; NULL beyond the last. Static text. */
SETUN_API const char *setun_choice_name(setun_choice choice, size_t index);

#ifdef __cplusplus
}
#endif

#endif
