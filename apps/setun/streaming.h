// What is said of memory and streaming after a command's work.
#ifndef SETUN_APP_STREAMING_H
#define SETUN_APP_STREAMING_H

#include "setun.h"

// Read speed beside the disk's own, overlap, and peak memory beside the budget. `disk` is 0 where it was not measured.
typedef struct streaming_report {
  setun_stream_stats stats;
  setun_plan plan;
  double disk, speed; // bytes a second
  double overlap;     // max(what was read / disk, computing) / passes
  uint64_t peak;
} streaming_report;

// What was done after `since` (all zero: from the beginning). Measures the disk when weights were streamed. Call it
// before anything that is no part of the work takes memory.
streaming_report make_streaming_report(const setun_model *model, const setun_stream_stats *since);
// To stderr.
void print_memory_report(const streaming_report *r);
// To stderr, for the work that `what` names; nothing where everything is held.
void print_streaming_report(const char *what, const streaming_report *r);
// Members of a JSON object, each followed by ", "; of memory alone where everything is held.
void print_streaming_json(const streaming_report *r);

#endif
