// The command `bench`: speed, compared with this machine's limits.
#include "bench_compare.h"
#include "bench_count.h"
#include "bench_sequences.h"
#include "commands.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "streaming.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_options {
  model_options model;
  compute_options compute;
  int64_t prefill, decode, depth, sequences, repeats;
  uint64_t buffer;
  bool json, count, compare_isas, compare_threads;
  const char *shape, *format, *head, *save;
  optional_seed seed;
} bench_options;

#define AT(member) offsetof(bench_options, member)
enum { REPEATS_MOST = 1000, TOKENS_MOST = 1 << 20 };
static const option rows[] = {
    {'p', NULL, OPTION_INTEGER, AT(prefill), "N", 1, TOKENS_MOST,
     "tokens to prefill (default 512, or the model's context if that is less)"},
    {'n', NULL, OPTION_INTEGER, AT(decode), "N", 1, TOKENS_MOST,
     "tokens to decode (default 64, or what is left of the model's context)"},
    {0, "depth", OPTION_INTEGER, AT(depth), "N", 1, TOKENS_MOST,
     "tokens in the cache before the first one is decoded (default 1)"},
    {0, "sequences", OPTION_INTEGER, AT(sequences), "N", 1, SEQUENCES_MOST,
     "also time passes over N sequences, one token of each, compared with passes over one sequence; a fork; and a "
     "request whose first tokens (as many as --depth) are in the cache"},
    {'r', NULL, OPTION_INTEGER, AT(repeats), "N", 1, REPEATS_MOST, "runs of each; the median is reported (default 3)"},
    {0, "buffer", OPTION_SIZE, AT(buffer), "SIZE", 1048576, 0x1p46,
     "bytes to read for measuring memory bandwidth (default: far more than the caches hold, or what the budget "
     "leaves)"},
    EXPERTS_AHEAD_ROW(bench_options),
    {0, "compare-isa", OPTION_FLAG, AT(compare_isas), NULL, 0, 0,
     "instead time the model with each instruction set of this machine but scalar, in turns (the model is loaded for "
     "each run), and name those that are slower than a lesser one"},
    {0, "compare-threads", OPTION_FLAG, AT(compare_threads), NULL, 0, 0,
     "the same with 1, 2, 4 threads and so on up to one for each processor"},
    {0, "count", OPTION_FLAG, AT(count), NULL, 0, 0,
     "instead count what a GPU (--device) does for one decoded token after --depth others: dispatches, barriers and "
     "bytes by operation, beside the bytes of the model's weights and cache"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print JSON"},
};

static const option synthetic_rows[] = {
    {0, "synthetic", OPTION_CHOICE, AT(shape), NULL, SETUN_CHOICE_SHAPE, 0,
     "use a synthetic model of this shape, with random weights, instead of reading MODEL"},
    {0, "format", OPTION_CHOICE, AT(format), NULL, SETUN_CHOICE_SYNTHETIC, 0,
     "the format of its matrices (default i2_s)"},
    {0, "head", OPTION_CHOICE, AT(head), NULL, SETUN_CHOICE_SYNTHETIC, 0,
     "the format of its embedding and head (default f16)"},
    {0, "seed", OPTION_SEED, AT(seed), "N", 0, 0, "equal seeds produce equal weights in every format (default 0)"},
    {0, "save", OPTION_FILE, AT(save), "FILE", 0, 0,
     "write it to this GGUF file first, replacing an existing one, and measure that"},
};

typedef struct bench_result {
  setun_model_info info;
  setun_ceilings ceilings; // not a number with a device, which is not measured
  bool on_device;
  streaming_report prefill_stream, decode_stream;
  int threads;
  double prefill, decode;     // tokens per second
  processor_time used;        // for one decoded token
  double read;                // bytes a second, measured between the runs of decode; 0: see reading_buffer
  uint64_t cache_bytes;       // bytes read for one decoded token
  double prefill_macs;        // multiply-adds per second, without the head, which a prompt needs once
  sequences_result sequences; // with --sequences
} bench_result;

static int64_t most_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// Ids without patterns that a router or a cache could profit from.
static void fill_ids(setun_token *ids, int64_t n, uint32_t n_vocab) {
  uint64_t state = 1;
  for (int64_t i = 0; i < n; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids[i] = (setun_token)((state >> 33) % n_vocab);
  }
}

// Seconds for one prefill of `n` tokens into an empty session.
static setun_status time_prefill(setun_session *session, const setun_token *ids, int64_t n, double *seconds,
                                 setun_error *error) {
  setun_status s = setun_session_truncate(session, 0, error);
  double start = seconds_now();
  if (s == SETUN_OK) s = setun_session_eval(session, ids, (size_t)n, NULL, error);
  *seconds = seconds_now() - start;
  return s;
}

// Seconds for the `n` tokens after the first `depth`, one by one. The session has at least those.
static setun_status time_decode(setun_session *session, const setun_token *ids, int64_t depth, int64_t n,
                                double *seconds, setun_error *error) {
  setun_status s = setun_session_truncate(session, (uint32_t)depth, error);
  double start = seconds_now();
  for (int64_t i = depth; s == SETUN_OK && i < depth + n; i++) s = setun_session_eval(session, ids + i, 1, NULL, error);
  *seconds = seconds_now() - start;
  return s;
}

// Bytes to measure reading with while the model is in memory; 0 where the budget leaves too little in addition to it,
// so that it is measured once the model is freed.
static uint64_t reading_buffer(const setun_model *model, const bench_options *o) {
  enum { CACHED = 64 << 20, ENOUGH = 256 << 20 };
  setun_plan plan = model_plan_of(model);
  if (plan.device_total) return 0;
  uint64_t taken = plan.total + plan.reserve, room = plan.budget > taken ? plan.budget - taken : 0;
  if (!plan.budget) room = ENOUGH;
  if (o->buffer) return o->buffer <= room ? o->buffer : 0;
  return room >= ENOUGH ? ENOUGH : room >= CACHED ? room : 0;
}

// Times decode, and reading before and after each run. The machine's speed varies from second to second, so each run
// is compared with the readings next to it; r->read is such that decode's share of it is the median of theirs.
static setun_status time_decodes(const setun_model *model, setun_session *session, const bench_options *o,
                                 const setun_token *ids, bench_result *r, setun_error *error) {
  double decode[REPEATS_MOST], relative[REPEATS_MOST], before = 0, behind = 0;
  uint64_t buffer = reading_buffer(model, o);
  setun_status s = SETUN_OK;
  r->used = (processor_time){0, 0};
  if (buffer) s = setun_measure_read(r->info.isa, r->threads, buffer, &behind, error);
  for (int64_t i = 0; s == SETUN_OK && i < o->repeats; i++) {
    processor_time start = processor_time_now();
    s = time_decode(session, ids, o->depth, o->decode, &decode[i], error);
    processor_time end = processor_time_now();
    r->used.program += end.program - start.program, r->used.system += end.system - start.system;
    before = behind;
    if (s == SETUN_OK && buffer) s = setun_measure_read(r->info.isa, r->threads, buffer, &behind, error);
    relative[i] = (before + behind) / 2 * decode[i];
  }
  if (s != SETUN_OK) return s;
  double tokens = (double)o->repeats * (double)o->decode, seconds = median_of(decode, o->repeats);
  r->used.program /= tokens, r->used.system /= tokens;
  r->decode = (double)o->decode / seconds;
  r->read = median_of(relative, o->repeats) / seconds;
  return SETUN_OK;
}

static setun_status time_all(const setun_model *model, setun_session *session, const bench_options *o,
                             const setun_token *ids, bench_result *r, setun_error *error) {
  double prefill[REPEATS_MOST], warm = 0;
  setun_status s = time_prefill(session, ids, 1, &warm, error);
  double disk = measure_disk(model);
  setun_stream_stats start = stream_stats(model);
  for (int64_t i = 0; s == SETUN_OK && i < o->repeats; i++)
    s = time_prefill(session, ids, o->prefill, &prefill[i], error);
  r->prefill_stream = make_streaming_report(model, &start, disk);
  if (s == SETUN_OK) s = time_prefill(session, ids, o->depth, &warm, error);
  start = stream_stats(model);
  if (s == SETUN_OK) s = time_decodes(model, session, o, ids, r, error);
  if (s != SETUN_OK) return s;
  double prefill_seconds = median_of(prefill, o->repeats);
  uint64_t head = r->info.head_macs;
  r->prefill = (double)o->prefill / prefill_seconds;
  r->prefill_macs = ((double)o->prefill * (double)(r->info.macs_per_token - head) + (double)head) / prefill_seconds;
  // The cache grows during decoding: its mean size.
  r->cache_bytes = setun_session_cache_bytes(session, (uint32_t)(o->depth + o->decode / 2));
  r->decode_stream = make_streaming_report(model, &start, r->prefill_stream.disk_after);
  r->decode_stream.plan.total += reading_buffer(model, o);
  return SETUN_OK;
}

// Not a number where the whole is not known.
static double share(double part, double whole) {
  return isnan(whole) ? whole : whole > 0 ? part / whole : 0;
}

// Bytes per second that decoding reads.
static double decode_bytes(const bench_result *r) {
  return r->decode * (double)(r->info.bytes_per_token + r->cache_bytes);
}

static double compute_peak(const bench_result *r) {
  bool int8 = strncmp(r->info.activation, "int8", 4) == 0;
  return int8 ? r->ceilings.int8_macs_per_s : r->ceilings.float_macs_per_s;
}

// The minimum seconds of a pass over all sequences: for reading, or for multiplying.
static double sequences_bound(const bench_result *r, const bench_options *o) {
  const setun_model_info *m = &r->info;
  double n = (double)o->sequences, bytes = (double)m->bytes_per_token + n * (double)r->cache_bytes;
  double int8 = share(n * (double)(m->macs_per_token - m->float_macs), r->ceilings.int8_macs_per_s);
  double floats = share(n * (double)m->float_macs, r->ceilings.float_macs_per_s);
  double reading = share(bytes, r->ceilings.read_bytes_per_s);
  return reading > int8 + floats ? reading : int8 + floats;
}

static void print_sequences_json(const bench_result *r, const bench_options *o) {
  const sequences_result *s = &r->sequences;
  print_text("\"sequences\": %lld, ", (long long)o->sequences);
  print_json_member("sequences_tokens_per_s", share((double)o->sequences, s->pass));
  print_json_member("sequences_s_per_pass", s->pass);
  print_json_member("sequences_pass_ratio", share(s->pass, s->single_pass));
  print_json_member("sequences_bound_ratio", share(s->pass, sequences_bound(r, o)));
  print_json_member("fork_pass_ratio", share(s->fork, s->single_pass));
  print_text("\"prefix_tokens\": %u, ", s->found);
  print_json_member("prefix_pass_ratio", share(s->hit, s->single_pass));
}

static void print_sequences(const bench_result *r, const bench_options *o) {
  const sequences_result *s = &r->sequences;
  print_text("pass  %4lld sequences %10.2f tokens/s  %.2f ms, %.2f times one sequence's %.2f ms",
             (long long)o->sequences, share((double)o->sequences, s->pass), 1e3 * s->pass,
             share(s->pass, s->single_pass), 1e3 * s->single_pass);
  if (!r->on_device)
    print_text(", %.2f times the least that memory and arithmetic allow", share(s->pass, sequences_bound(r, o)));
  print_text("\n");
  print_text("fork of a sequence %.3f ms, %.3f passes; a request with %u tokens in the cache %.2f ms, %.2f passes\n",
             1e3 * s->fork, share(s->fork, s->single_pass), s->found, 1e3 * s->hit, share(s->hit, s->single_pass));
}

static void print_json(const bench_result *r, const bench_options *o) {
  print_text("{");
  print_json_member("prefill_tokens_per_s", r->prefill);
  print_json_member("prefill_peak_share", share(r->prefill_macs, compute_peak(r)));
  print_json_member("decode_tokens_per_s", r->decode);
  print_json_member("decode_program_s_per_token", r->used.program);
  print_json_member("decode_system_s_per_token", r->used.system);
  print_json_member("decode_bandwidth_share", share(decode_bytes(r), r->ceilings.read_bytes_per_s));
  print_text("\"bytes_per_token\": %llu, \"cache_bytes_per_token\": %llu, \"macs_per_token\": %llu, ",
             (unsigned long long)r->info.bytes_per_token, (unsigned long long)r->cache_bytes,
             (unsigned long long)r->info.macs_per_token);
  print_text("\"prefill_tokens\": %lld, \"decode_tokens\": %lld, \"depth\": %lld, ", (long long)o->prefill,
             (long long)o->decode, (long long)o->depth);
  print_json_member("read_bandwidth_gbs", r->ceilings.read_bytes_per_s / 1e9);
  print_json_member("int8_peak_gmacs", r->ceilings.int8_macs_per_s / 1e9);
  print_json_member("float_peak_gmacs", r->ceilings.float_macs_per_s / 1e9);
  if (o->sequences) print_sequences_json(r, o);
  print_json_member("prefill_stream_overlap", r->prefill_stream.overlap);
  print_streaming_json(&r->decode_stream);
  print_text("\"activation\": \"%s\", \"isa\": \"%s\", \"threads\": %d}\n", r->info.activation, r->info.isa,
             r->threads);
}

// The rates of work, beside the machine's limits where these are known.
static void print_rates(const bench_result *r, const bench_options *o) {
  print_text("prefill %6lld tokens  %10.2f tokens/s  ", (long long)o->prefill, r->prefill);
  if (r->on_device)
    print_text("%.1f G multiply-adds/s (%s)\n", r->prefill_macs / 1e9, r->info.activation);
  else
    print_text("%5.1f %% of %.1f G multiply-adds/s (%s)\n", 100 * share(r->prefill_macs, compute_peak(r)),
               compute_peak(r) / 1e9, r->info.activation);
  print_text("decode  %6lld tokens  %10.2f tokens/s  ", (long long)o->decode, r->decode);
  if (r->on_device)
    print_text("%.2f GB/s of weights and cache", decode_bytes(r) / 1e9);
  else
    print_text("%5.1f %% of %.2f GB/s read from memory", 100 * share(decode_bytes(r), r->ceilings.read_bytes_per_s),
               r->ceilings.read_bytes_per_s / 1e9);
}

static void print_machine(const bench_result *r) {
  if (r->on_device) {
    print_text("%s: how fast it reads its memory and multiplies is not measured\n", r->info.isa);
    return;
  }
  print_text("this machine, %d thread%s, %s: reads %.2f GB/s, multiplies and adds %.1f G int8/s, %.1f G float/s\n",
             r->threads, plural((uint64_t)r->threads), r->info.isa, r->ceilings.read_bytes_per_s / 1e9,
             r->ceilings.int8_macs_per_s / 1e9, r->ceilings.float_macs_per_s / 1e9);
}

static void print_table(const bench_result *r, const bench_options *o) {
  char bytes[32];
  print_machine(r);
  print_text("a token: %s of weights", format_bytes(r->info.bytes_per_token, bytes));
  print_text(" and %s of cache, %.1f M multiply-adds, %s activations\n", format_bytes(r->cache_bytes, bytes),
             (double)r->info.macs_per_token / 1e6, r->info.activation);
  print_rates(r, o);
  if (o->depth > 1) print_text(", %lld tokens in the cache before", (long long)o->depth);
  print_text("\n");
  if (o->sequences) print_sequences(r, o);
}

// Bytes for measuring reads; 0 after a report.
static uint64_t buffer_of(const setun_plan *plan, const bench_options *o) {
  enum { FAR_MORE = 512 << 20 }; // larger than caches
  uint64_t room = measuring_room(plan);
  char wanted[32], most[32];
  if (!o->buffer) return measuring_buffer(plan, FAR_MORE);
  if (o->buffer <= room) return o->buffer;
  failure("--buffer: expected at most %s, the room left by the budget, found %s", format_bytes(room, most),
          format_bytes(o->buffer, wanted));
  return 0;
}

static sequences_work sequences_of(const bench_options *o, const setun_token *ids) {
  return (sequences_work){.n = (uint32_t)o->sequences,
                          .depth = (uint32_t)o->depth,
                          .passes = (uint32_t)o->decode,
                          .repeats = o->repeats,
                          .ids = ids};
}

// Frees the model after timing: together with the buffer for measuring reads it might exceed the budget.
static int measure(const char *name, setun_model *model, const bench_options *o) {
  setun_error error;
  setun_plan plan = model_plan_of(model);
  bool on_device = plan.device_total > 0;
  uint64_t buffer = on_device ? 0 : buffer_of(&plan, o);
  setun_session *session = NULL;
  bench_result r = {.info = model_info(model), .on_device = on_device, .ceilings = {.size = sizeof r.ceilings}};
  int64_t most = most_of(o->prefill, o->depth + o->decode);
  setun_token *ids = malloc((size_t)most * sizeof *ids);
  if (!ids || (!buffer && !on_device)) {
    setun_model_free(model);
    free(ids);
    return buffer || on_device ? failure("out of memory for %lld ids", (long long)most) : STATUS_FAILED;
  }
  int status = STATUS_FAILED;
  if (open_session(name, model, &o->compute, (uint32_t)most, &session)) {
    fill_ids(ids, most, r.info.n_vocab);
    r.threads = setun_session_threads(session);
    watch_interrupts(session);
    setun_status s = time_all(model, session, o, ids, &r, &error);
    status = interrupt_status();
    watch_interrupts(NULL);
    setun_session_free(session);
    if (s == SETUN_OK && o->sequences) {
      const sequences_work work = sequences_of(o, ids);
      s = time_sequences(model, &o->compute, &work, &r.sequences, &error);
      status = interrupt_status();
    }
    if (s != SETUN_OK && !status) status = report(&error);
  }
  setun_model_free(model);
  free(ids);
  if (status) return status;
  if (on_device)
    r.ceilings.read_bytes_per_s = r.ceilings.int8_macs_per_s = r.ceilings.float_macs_per_s = NAN;
  else if (setun_measure_ceilings(r.info.isa, r.threads, buffer, &r.ceilings, &error))
    return report(&error);
  if (r.read > 0) r.ceilings.read_bytes_per_s = r.read;
  if (o->json)
    print_json(&r, o);
  else
    print_table(&r, o);
  if (!o->json) print_memory_report(&r.decode_stream);
  if (!o->json) print_streaming_report("prefill", &r.prefill_stream);
  if (!o->json) print_streaming_report("decode", &r.decode_stream);
  return 0;
}

static bool show_progress(double fraction, void *user) {
  progress_show(user, fraction);
  return !interrupt_status();
}

// Writes the synthetic model to the file of --save. False after a report or a signal.
static bool save_synthetic(setun_synthesis_params *synthesis, const bench_options *o) {
  progress_line progress;
  setun_error error;
  synthesis->threads = (int)o->compute.threads;
  synthesis->progress = show_progress;
  synthesis->user = &progress;
  progress_begin(&progress, "writing");
  note_interrupts();
  setun_status s = setun_synthesize(o->save, synthesis, &error);
  progress_end(&progress);
  if (s != SETUN_OK && s != SETUN_ERROR_CANCELED) report(&error);
  return s == SETUN_OK;
}

static bool open_bench_model(const char *path, const bench_options *o, setun_model **model) {
  if (!o->shape) return open_model(path, &o->model, &o->compute, false, model);
  setun_synthesis_params synthesis = setun_synthesis_params_default();
  synthesis.shape = o->shape;
  synthesis.format = o->format;
  synthesis.head = o->head;
  synthesis.seed = o->seed.value;
  if (!o->save) return open_synthetic_model(&synthesis, &o->model, &o->compute, model);
  return save_synthetic(&synthesis, o) && open_model(o->save, &o->model, &o->compute, false, model);
}

// The counts of tokens where no option gives them.
static void choose_counts(const setun_model *model, bench_options *o) {
  uint32_t trained = model_info(model).n_ctx_train;
  if (!o->prefill) o->prefill = trained >= 1 && trained < 512 ? (int64_t)trained : 512;
  int64_t left = (int64_t)trained - o->depth;
  if (!o->decode) o->decode = left >= 1 && left < 64 ? left : 64;
  o->compute.n_ctx = (uint32_t)most_of(o->prefill, o->depth + o->decode); // may be less than planned
}

// ---- instruction sets ---------------------------------------------------------------------------------------------

// One run of prefill and one of decode, in tokens per second. 0, or the exit status.
static int time_once(const char *name, const setun_model *model, const bench_options *o, double *prefill,
                     double *decode) {
  setun_error error;
  setun_session *session = NULL;
  int64_t most = most_of(o->prefill, o->depth + o->decode);
  setun_token *ids = malloc((size_t)most * sizeof *ids);
  if (!ids) return failure("out of memory for %lld ids", (long long)most);
  fill_ids(ids, most, model_info(model).n_vocab);
  int status = open_session(name, model, &o->compute, (uint32_t)most, &session) ? 0 : STATUS_FAILED;
  if (!status) {
    double first = 0, a = 0, b = 0;
    watch_interrupts(session);
    setun_status s = time_prefill(session, ids, 1, &first, &error);
    if (s == SETUN_OK) s = time_prefill(session, ids, o->prefill, &a, &error);
    if (s == SETUN_OK) s = time_prefill(session, ids, o->depth, &first, &error);
    if (s == SETUN_OK) s = time_decode(session, ids, o->depth, o->decode, &b, &error);
    status = interrupt_status();
    watch_interrupts(NULL);
    if (s != SETUN_OK && !status) status = report(&error);
    *prefill = share((double)o->prefill, a), *decode = share((double)o->decode, b);
  }
  setun_session_free(session);
  free(ids);
  return status;
}

static int compare(const char *name, bench_options *o, comparison *c) {
  int status = 0;
  for (int64_t run = 0; run < o->repeats && !status; run++) {
    for (int i = 0; i < c->n && !status; i++) {
      setun_model *model = NULL;
      if (c->speeds[i].threads)
        o->compute.threads = c->speeds[i].threads;
      else
        o->model.isa = c->speeds[i].name;
      status = open_bench_model(name, o, &model) ? 0 : failed_status();
      if (!status) choose_counts(model, o);
      if (!status) status = time_once(name, model, o, &c->speeds[i].prefill[run], &c->speeds[i].decode[run]);
      setun_model_free(model);
    }
  }
  if (!status) print_comparison(c, o->json);
  return status ? status : finish_output();
}

static int compare_speeds(const char *name, bench_options *o) {
  comparison c;
  bool room = o->compare_isas ? comparison_of_isas(o->repeats, &c) : comparison_of_threads(o->repeats, &c);
  int status = room ? compare(name, o, &c) : failure("out of memory for %lld runs", (long long)o->repeats);
  comparison_free(&c);
  return status;
}

static int count(const char *name, const setun_model *model, const bench_options *o) {
  size_t n = (size_t)o->depth + COUNT_TOKENS;
  setun_token *ids = malloc(n * sizeof *ids);
  if (!ids) return failure("out of memory for %zu ids", n);
  fill_ids(ids, (int64_t)n, model_info(model).n_vocab);
  int status = count_token(name, model, &o->compute, &(count_work){(uint32_t)o->depth, ids, o->json});
  free(ids);
  return status;
}

static int run(const command *self, int argc, char **argv) {
  enum { REPEATS = 3 };
  bench_options o = {.depth = 1};
  setun_model *model = NULL;
  setun_context_params context;
  int status = 0, arguments = parse_options(self, argc, argv, &o, &status);
  if (arguments < 0) return status;
  if (!arguments == !o.shape) return usage_error(self, "expected either MODEL or --synthetic SHAPE");
  if (!o.shape && (o.format || o.head || o.save || o.seed.given)) {
    return usage_error(self, "--format, --head, --seed and --save need --synthetic");
  }
  if (o.compare_isas && (o.sequences || o.model.isa || o.model.device || o.save || o.compare_threads)) {
    return usage_error(self, "--compare-isa excludes --compare-threads, --isa, --device, --sequences and --save");
  }
  if (o.compare_threads && (o.sequences || o.compute.threads || o.save)) {
    return usage_error(self, "--compare-threads excludes --threads, --sequences and --save");
  }
  if (o.count && (o.prefill || o.decode || o.sequences || o.repeats || o.compare_isas || o.compare_threads)) {
    return usage_error(self, "--count excludes -p, -n, -r, --sequences, --compare-isa and --compare-threads");
  }
  if (o.buffer && (o.count || o.compare_isas || o.compare_threads)) {
    return usage_error(self, "--buffer excludes --count, --compare-isa and --compare-threads, which do not read it");
  }
  if (!o.repeats) o.repeats = REPEATS;
  o.compute.n_ctx = (uint32_t)most_of(o.prefill ? o.prefill : 512, o.depth + (o.decode ? o.decode : 64));
  if (o.compare_isas || o.compare_threads) return compare_speeds(o.shape ? o.shape : argv[1], &o);
  if (o.sequences) {
    const sequences_work planned = {
        .n = (uint32_t)o.sequences, .depth = (uint32_t)o.depth, .passes = (uint32_t)(o.decode ? o.decode : 64)};
    context = sequences_context_params(&o.compute, &planned);
    o.compute.context = &context;
  }
  if (!open_bench_model(argv[1], &o, &model)) {
    setun_model_free(model);
    return failed_status();
  }
  choose_counts(model, &o);
  if (o.buffer && model_plan_of(model).device_total) {
    setun_model_free(model);
    return failure("--buffer: how fast a device (--device) reads its memory is not measured");
  }
  if (o.count) {
    status = count(o.shape ? o.shape : argv[1], model, &o);
    setun_model_free(model);
    return status ? status : finish_output();
  }
  status = measure(o.shape ? o.shape : argv[1], model, &o);
  return status ? status : finish_output();
}

const command command_bench = {
    .name = "bench",
    .summary = "prefill and decode speed, compared with this machine's limits",
    .arguments = "MODEL",
    .min_arguments = 0,
    .max_arguments = 1,
    .details =
        "Times a prompt and single tokens, each from an empty context (or, with --depth, tokens after that many), and "
        "measures in the same run how fast this machine reads memory and multiplies with the same threads and "
        "instruction set: reading between the runs of decode, if the budget has room for its buffer in addition to the "
        "model, since some machines change their pace within seconds. The percentages show how close to these limits "
        "the model's own work reaches.\n"
        "With --synthetic no MODEL is needed: a synthetic model of that shape is used, as large and as fast as the "
        "real one. Its weights are random and generated while loading.",
    .groups = {{"options", OPTION_ROWS(rows), 0},
               {"synthetic models", OPTION_ROWS(synthetic_rows), 0},
               COMPUTE_GROUP(bench_options),
               MODEL_GROUP(bench_options)},
    .run = run,
};
