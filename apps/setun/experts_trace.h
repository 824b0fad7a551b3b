// `--trace FILE`: to which experts the tokens of each pass go, a line for each layer, which tools/replay_experts.py
// replays against caches. The first line says what there is: "setun-experts 1 layers=16 experts=64 used=8"; the others
// are the layer, the pass's tokens, and the experts with their tokens: "3 1 7 19 40", "3 12 7:5 19 40:6", where 1 is
// left out.
#ifndef SETUN_APP_EXPERTS_TRACE_H
#define SETUN_APP_EXPERTS_TRACE_H

#include "setun.h"

#define TRACE_ROW(at)                                                                                                  \
  { 0, "trace", OPTION_FILE, at, "FILE", 0, 0, "write to which experts the tokens go, for tools/replay_experts.py" }

typedef struct experts_trace {
  setun_output *output; // NULL: there is none
  uint64_t written;
  char *pending;
  size_t length, capacity;
  setun_status status; // of the first write that failed, and why
  setun_error error;
} experts_trace;

// Before the model is loaded, whose params are to have write_experts with the trace. False after a report.
bool open_experts_trace(experts_trace *trace, const char *path);
// A setun_experts_fn.
void write_experts(uint32_t layer, uint32_t n_tokens, const uint32_t *experts, const uint32_t *tokens, uint32_t n,
                   void *trace);
// When the model is loaded: the first line. False after a report: it has no experts.
bool begin_experts_trace(experts_trace *trace, const setun_model *model);
// The file appears where `whole`. False after a report.
bool close_experts_trace(experts_trace *trace, bool whole);

#endif
