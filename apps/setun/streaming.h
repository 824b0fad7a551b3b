// The report on memory and streaming after a command's work.
#ifndef SETUN_APP_STREAMING_H
#define SETUN_APP_STREAMING_H

#include "setun.h"

// The disk's speed in bytes per second for the streamed weights, into their ring; 0 if none are streamed.
double measure_disk(const setun_model *model);

// Read speed compared with the disk's own, overlap, and peak memory compared with the budget. `disk` is 0 if not
// measured.
typedef struct streaming_report {
  setun_stream_stats stats;
  setun_plan plan;
  double disk, speed, disk_after; // bytes per second; the disk's: the mean of before and after the work, and the latter
  double overlap;                 // max(bytes read / disk, computing) / passes
  uint64_t peak;
} streaming_report;

// The work after `since` (all zero: from the beginning). Measures the disk if weights were streamed; `before` is its
// speed before the work, since it varies, or 0. Call it before anything that is not part of the work takes memory.
streaming_report make_streaming_report(const setun_model *model, const setun_stream_stats *since, double before);
// To stderr.
void print_memory_report(const streaming_report *r);
// To stderr, for the work named `what`; nothing if all weights are resident.
void print_streaming_report(const char *what, const streaming_report *r);
// Members of a JSON object, each followed by ", "; only about memory if all weights are resident.
// Hits and misses of the cache of experts, layer by layer, since the model was loaded.
void print_expert_report(const setun_model *model);
void print_streaming_json(const streaming_report *r);

#endif
