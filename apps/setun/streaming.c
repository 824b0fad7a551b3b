// The report on memory and streaming.
#include "streaming.h"

#include "model.h"
#include "output.h"

static double larger(double a, double b) {
  return a > b ? a : b;
}

double measure_disk(const setun_model *model) {
  enum { DISK = 1 << 30 };
  double speed;
  if (!model_plan_of(model).streamed) return 0;
  return setun_model_measure_disk(model, DISK, &speed, NULL) == SETUN_OK ? speed : 0;
}

streaming_report make_streaming_report(const setun_model *model, const setun_stream_stats *since, double before) {
  streaming_report r = {.stats = stream_stats(model), .plan = model_plan_of(model), .peak = setun_memory_peak()};
  r.stats.bytes -= since->bytes;
  r.stats.read_s -= since->read_s;
  r.stats.waited_s -= since->waited_s;
  r.stats.packed_s -= since->packed_s;
  r.stats.passes_s -= since->passes_s;
  r.stats.expert_hits -= since->expert_hits;
  r.stats.expert_misses -= since->expert_misses;
  r.stats.experts_prefetched -= since->experts_prefetched;
  r.stats.prefetch_hits -= since->prefetch_hits;
  r.stats.expert_deltas -= since->expert_deltas;
  r.stats.expert_delta_bytes -= since->expert_delta_bytes;
  r.stats.experts_in_turn -= since->experts_in_turn; // trials of reading ahead are of all passes
  double passes = r.stats.passes_s, compute = passes - r.stats.waited_s;
  if (!r.plan.streamed || !r.stats.bytes) return r;
  r.disk_after = measure_disk(model);
  r.disk = before > 0 && r.disk_after > 0 ? (before + r.disk_after) / 2 : larger(before, r.disk_after);
  // The ends of reads are noticed slightly late; limited to the passes' time.
  double reading = r.stats.read_s < passes ? r.stats.read_s : passes;
  r.speed = reading > 0 ? (double)r.stats.bytes / reading : 0;
  if (r.disk > 0) r.overlap = larger((double)r.stats.bytes / r.disk, compute) / passes;
  return r;
}

void print_memory_report(const streaming_report *r) {
  char peak[32], budget[32], planned[32];
  fprintf(stderr, "memory   %s at most", format_bytes(r->peak, peak));
  if (r->plan.budget)
    fprintf(stderr, " of %s; planned %s", format_bytes(r->plan.budget, budget), format_bytes(r->plan.total, planned));
  fprintf(stderr, "\n");
}

void print_streaming_report(const char *what, const streaming_report *r) {
  char text[32];
  if (!r->stats.bytes) return;
  fprintf(stderr, "%-8s %s streamed at %.2f GB/s (%s)", what, format_bytes(r->stats.bytes, text), r->speed / 1e9,
          r->stats.how);
  if (r->disk > 0) fprintf(stderr, ", %.0f %% of the disk's %.2f GB/s", 100 * r->speed / r->disk, r->disk / 1e9);
  fprintf(stderr, "; overlap %.2f (computed %.2f s, waited %.2f s)\n", r->overlap,
          r->stats.passes_s - r->stats.waited_s, r->stats.waited_s);
  uint64_t wanted = r->stats.expert_hits + r->stats.expert_misses;
  if (!wanted) return;
  fprintf(stderr, "%-8s %u of %u experts fit into the cache, which held %llu of %llu requested (%.1f %%)\n", "",
          (unsigned)r->plan.n_experts_cached, (unsigned)r->plan.n_experts, (unsigned long long)r->stats.expert_hits,
          (unsigned long long)wanted, 100.0 * (double)r->stats.expert_hits / (double)wanted);
}

void print_expert_report(const setun_model *model) {
  setun_plan plan = model_plan_of(model);
  setun_stream_stats stats = stream_stats(model);
  if (!plan.n_experts_cached) return;
  fprintf(stderr, "experts  hits of those requested, by layer (slots by %s):", stats.expert_rule);
  for (uint32_t i = 0; i < plan.n_layer; i++) {
    uint64_t hits = 0, misses = 0;
    setun_model_count_experts(model, i, &hits, &misses, NULL);
    fprintf(stderr, " %llu/%llu", (unsigned long long)hits, (unsigned long long)(hits + misses));
  }
  fprintf(stderr, "\n");
  if (stats.expert_deltas) {
    char bytes[32], whole[32];
    fprintf(stderr, "%-8s %llu read as differences from another one, of %s in the mean instead of %s\n", "",
            (unsigned long long)stats.expert_deltas,
            format_bytes(stats.expert_delta_bytes / stats.expert_deltas, bytes),
            format_bytes(plan.expert_token_bytes / plan.n_expert_layers / plan.n_experts_of_token, whole));
  }
  if (stats.experts_in_turn) {
    fprintf(stderr,
            "%-8s %llu read in order, before they were requested, since the layer before used nearly all of its own\n",
            "", (unsigned long long)stats.experts_in_turn);
  }
  if (stats.prefetch_trials) {
    fprintf(stderr, "%-8s trials: %u; passes that read ahead took %.1f %% of the time of those that did not; now %s\n",
            "", (unsigned)stats.prefetch_trials, 100 * stats.prefetch_time, stats.prefetch_on ? "on" : "off");
  }
  if (!stats.experts_prefetched) return;
  fprintf(stderr,
          "%-8s %llu read before they were requested, %llu of them used; predicted of those used, by layers ahead:", "",
          (unsigned long long)stats.experts_prefetched, (unsigned long long)stats.prefetch_hits);
  for (int i = 0; i < 4 && stats.prefetch_recall[i] >= 0; i++)
    fprintf(stderr, " %.0f %%", 100 * stats.prefetch_recall[i]);
  fprintf(stderr, "\n");
}

void print_streaming_json(const streaming_report *r) {
  print_text("\"memory_peak\": %llu, \"memory_planned\": %llu, \"memory_budget\": %llu, ", (unsigned long long)r->peak,
             (unsigned long long)r->plan.total, (unsigned long long)r->plan.budget);
  print_text("\"streamed_bytes_per_pass\": %llu, \"streamed_bytes\": %llu, ", (unsigned long long)r->plan.streamed,
             (unsigned long long)r->stats.bytes);
  if (!r->stats.bytes) return;
  print_json_member("stream_read_gbs", r->speed / 1e9);
  print_json_member("disk_read_gbs", r->disk / 1e9);
  print_json_member("stream_overlap", r->overlap);
  print_json_member("stream_read_s", r->stats.read_s);
  print_json_member("stream_waited_s", r->stats.waited_s);
  print_json_member("stream_packed_s", r->stats.packed_s);
  print_json_member("stream_passes_s", r->stats.passes_s);
  print_text("\"stream_how\": \"%s\", ", r->stats.how);
  if (!r->plan.n_experts_cached) return;
  print_text("\"experts\": %u, \"experts_cached\": %u, ", (unsigned)r->plan.n_experts,
             (unsigned)r->plan.n_experts_cached);
  print_text("\"expert_hits\": %llu, \"expert_misses\": %llu, ", (unsigned long long)r->stats.expert_hits,
             (unsigned long long)r->stats.expert_misses);
  print_text("\"experts_prefetched\": %llu, \"prefetch_hits\": %llu, ", (unsigned long long)r->stats.experts_prefetched,
             (unsigned long long)r->stats.prefetch_hits);
  print_text("\"experts_in_turn\": %llu, \"prefetch_trials\": %u, ", (unsigned long long)r->stats.experts_in_turn,
             (unsigned)r->stats.prefetch_trials);
  if (r->stats.prefetch_trials) print_json_member("prefetch_time", r->stats.prefetch_time);
  print_text("\"expert_deltas\": %llu, \"expert_delta_bytes\": %llu, ", (unsigned long long)r->stats.expert_deltas,
             (unsigned long long)r->stats.expert_delta_bytes);
}
