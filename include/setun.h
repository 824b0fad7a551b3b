/* Setun: language models with ternary and other very low-bit weights. The public header, and the only one that programs
 * include. Its parts are installed with it:
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
 *   setun_constraint.h    constraints; matching
 *   setun_files.h         inspection; conversion; output files
 *   setun_experimental.h  synthetic models; quantization; benchmarks
 *
 * Conventions. Every function that can fail returns a setun_status and takes a `setun_error *` last, which may be NULL;
 * on failure it holds the status and a one-line message that names what failed, what was expected and what was found,
 * and output parameters are left untouched (except that setun_model_plan and setun_model_plan_synthetic also fill in
 * the plan when the budget is too small; the contents of a caller's buffer are unspecified). Handles are opaque; the
 * caller owns each handle that it receives and frees it with the function documented with it, which accepts NULL. Text
 * is UTF-8 and comes with its length in bytes unless it is a path or a name, which end with a 0 byte. The library keeps
 * no global state, reads no environment variables, prints nothing and never ends the process.
 *
 * Arguments. Unexpected NULL pointers, numbers out of range and unknown flags are SETUN_ERROR_ARGUMENT; functions that
 * return no status then return 0, false, -1 or NULL, as for an empty object. A text or an array may be NULL where its
 * length is 0.
 *
 * Structs that grow. Parameters (setun_X_params) and structs that getters fill in (setun_model_info, setun_plan, ...)
 * begin with `size`, the size in bytes of the caller's struct, so that fields can be appended while programs built with
 * an older header keep working. Initialize parameters with setun_X_params_default() or setun_X_params_init, then set
 * members. Fields that the caller's struct lacks take their defaults. A struct larger than the library's is accepted if
 * the rest of it is zero. Set `size` before calling a getter: setun_plan plan = {.size = sizeof plan}; the getter fills
 * in what fits, and sets members unknown to it to zero. Wherever parameters are taken by pointer, NULL means the
 * defaults. Other structs never change.
 *
 * Callbacks. Parameters may have `log`, `progress` and `user`; each may be NULL, and `user` is passed to the other two.
 * Callbacks run on the thread that called the function, and never after it has returned; a model's `log` is also called
 * by later operations on the model, until the model is freed.
 *
 * Stability. Within one SOVERSION (the shared library's name, libsetun.so.N) functions, members and enumerators are
 * only added: a program built against an older version runs with a newer one. Declarations in setun_experimental.h, and
 * those marked "experimental" elsewhere, are excluded from that promise.
 *
 * Threads. A setun_model, setun_adapters, setun_file, setun_chat or setun_constraint is immutable after creation: any
 * number of threads may use one at the same time. Every other object (sessions, contexts, samplers, matchers, decoders,
 * stop texts, renderings, replies, outputs) belongs to one thread at a time; only setun_session_stop and
 * setun_context_stop may be called from another thread or from a signal handler.
 *
 * Processes. Objects that compute belong to the process that made them. In a forked child, sessions, contexts and
 * functions that need a model's weights (setun_model_measure_disk) return SETUN_ERROR_STATE; the text functions of a
 * model (tokens, chat), samplers and decoders work. Freeing an inherited object releases the child's memory and does
 * not affect the parent. To compute, a child must load the model itself.
 *
 * Floating point. The application's floating-point modes (rounding, flushing of denormals, traps) do not affect results
 * and are preserved: functions that compute, and the library's threads, round to nearest and keep denormals. Callbacks
 * run in those modes too. */
#ifndef SETUN_H
#define SETUN_H

#include "setun_api.h"
#include "setun_chat.h"
#include "setun_constraint.h"
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
/* The header's version, for comparisons: 100 for 0.1.0, 10203 for 1.2.3. */
#define SETUN_VERSION_NUMBER (SETUN_VERSION_MAJOR * 10000 + SETUN_VERSION_MINOR * 100 + SETUN_VERSION_PATCH)

/* The version of the library at run time: "0.1.0", and in the form of SETUN_VERSION_NUMBER. */
SETUN_API const char *setun_version(void);
SETUN_API int setun_version_number(void);

/* ---- names and choices ------------------------------------------------------------------------------------- */

/* "ok", "memory", "io", "format", "unsupported", "argument", "limit", "canceled", "state"; NULL: not a setun_status. */
SETUN_API const char *setun_status_name(setun_status status);

/* The instruction sets whose kernels this machine can run, best last, such as "scalar avx2 avx512". */
SETUN_API const char *setun_isa_available(void);

/* Settings that are chosen by name. */
typedef enum setun_choice {
  SETUN_CHOICE_ISA,       /* setun_model_params.isa: all that have kernels, in ascending order of preference */
  SETUN_CHOICE_ASSUME,    /* setun_model_params.assume */
  SETUN_CHOICE_LAYOUT,    /* setun_convert_params.to */
  SETUN_CHOICE_EMBEDDING, /* setun_convert_params.embedding and .head */
  SETUN_CHOICE_SYNTHETIC, /* setun_synthesis_params.format and .head */
  SETUN_CHOICE_SHAPE,     /* setun_synthesis_params.shape */
  SETUN_CHOICE_KV,        /* setun_session_params.kv_keys and .kv_values: the index is the setun_kv_type */
  SETUN_CHOICE_SCHEME     /* setun_quantize_params.scheme */
} setun_choice;

/* The names of a choice, by index; NULL past the last. Static text. */
SETUN_API const char *setun_choice_name(setun_choice choice, size_t index);

#ifdef __cplusplus
}
#endif

#endif
