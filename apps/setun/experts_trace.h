// `--trace FILE`: the experts that the tokens of each pass use, one line per layer, which tools/replay_experts.py
// replays with caches. The first line describes the model: "setun-experts 1 layers=16 experts=64 used=8"; each other
// line has the layer, the number of the pass's tokens, and the experts with their numbers of tokens: "3 1 7 19 40", "3
// 12 7:5 19 40:6", where a 1 is omitted.
#ifndef SETUN_APP_EXPERTS_TRACE_H
#define SETUN_APP_EXPERTS_TRACE_H

#include "setun.h"

#define TRACE_ROW(at)                                                                                                  \
  { 0, "trace", OPTION_FILE, at, "FILE", 0, 0, "write which experts the tokens use, for tools/replay_experts.py" }

typedef struct experts_trace {
  setun_output *output; // NULL: no trace
  uint64_t written;
  char *pending;
  size_t length, capacity;
  setun_status status; // of the first write that failed
  setun_error error;
} experts_trace;

// To be called before the model is loaded with write_experts and the trace in its params. False after a report.
bool open_experts_trace(experts_trace *trace, const char *path);
// A setun_experts_fn.
void write_experts(uint32_t layer, uint32_t n_tokens, const uint32_t *experts, const uint32_t *tokens, uint32_t n,
                   void *trace);
// Writes the first line, when the model is loaded. False after a report: it has no experts.
bool begin_experts_trace(experts_trace *trace, const setun_model *model);
// Creates the file if `whole`, otherwise discards it. False after a report.
bool close_experts_trace(experts_trace *trace, bool whole);

#endif
