// What is said of memory and streaming after a command's work.
#ifndef SETUN_APP_STREAMING_H
#define SETUN_APP_STREAMING_H

#include "setun.h"

// Bytes a second that the disk reads of the weights that stream, into their ring; 0 where nothing streams.
double measure_disk(const setun_model *model);

// Read speed beside the disk's own, overlap, and peak memory beside the budget. `disk` is 0 where it was not measured.
typedef struct streaming_report {
  setun_stream_stats stats;
  setun_plan plan;
  double disk, speed, disk_after; // bytes a second; the disk's: its mean before and after the work, and the latter
  double overlap;                 // max(what was read / disk, computing) / passes
  uint64_t peak;
} streaming_report;

// What was done after `since` (all zero: from the beginning). Measures the disk when weights were streamed; `before` is
// what it was before the work, as it changes its pace, or 0. Call it before anything that is not part of the work takes
// memory.
streaming_report make_streaming_report(const setun_model *model, const setun_stream_stats *since, double before);
// To stderr.
void print_memory_report(const streaming_report *r);
// To stderr, for the work that `what` names; nothing where all weights are resident.
void print_streaming_report(const char *what, const streaming_report *r);
// Members of a JSON object, each followed by ", "; of memory alone where all weights are resident.
// Hits and misses of the cache of experts, layer by layer, since the model was loaded.
void print_expert_report(const setun_model *model);
void print_streaming_json(const streaming_report *r);

#endif
