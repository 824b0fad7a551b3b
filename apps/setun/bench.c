// The command `bench`: speed, and how it stands to this machine's own limits.
#include "commands.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "streaming.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench_options {
  model_options model;
  compute_options compute;
  int64_t prefill, decode, repeats;
  uint64_t buffer;
  bool json;
} bench_options;

#define AT(member) offsetof(bench_options, member)
enum { REPEATS_MOST = 1000, TOKENS_MOST = 1 << 20 };
static const option rows[] = {
    {'p', NULL, OPTION_INTEGER, AT(prefill), "N", 1, TOKENS_MOST,
     "tokens to prefill (default 512, or the model's context where that is less)"},
    {'n', NULL, OPTION_INTEGER, AT(decode), "N", 1, TOKENS_MOST,
     "tokens to decode (default 64, or one less than the model's context)"},
    {'r', NULL, OPTION_INTEGER, AT(repeats), "N", 1, REPEATS_MOST,
     "runs of each, whose median is reported (default 3)"},
    {0, "buffer", OPTION_SIZE, AT(buffer), "SIZE", 1048576, 0x1p46,
     "bytes that the measurement of memory bandwidth reads (default: far more than the caches hold)"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print JSON"},
};

typedef struct bench_result {
  setun_model_info info;
  setun_ceilings ceilings;
  streaming_report streaming;
  int threads;
  double prefill, decode; // tokens a second
  double prefill_macs;    // multiply-adds a second, without the head, which a prompt needs once
} bench_result;

static int64_t most_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int64_t n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Ids that repeat no pattern that a router or a cache could profit from.
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

// Seconds for `n` tokens, one by one, after a first one.
static setun_status time_decode(setun_session *session, const setun_token *ids, int64_t n, double *seconds,
                                setun_error *error) {
  setun_status s = setun_session_truncate(session, 0, error);
  if (s == SETUN_OK) s = setun_session_eval(session, ids, 1, NULL, error);
  double start = seconds_now();
  for (int64_t i = 1; s == SETUN_OK && i <= n; i++) s = setun_session_eval(session, ids + i, 1, NULL, error);
  *seconds = seconds_now() - start;
  return s;
}

static setun_status time_all(setun_session *session, const bench_options *o, const setun_token *ids, bench_result *r,
                             setun_error *error) {
  double prefill[REPEATS_MOST], decode[REPEATS_MOST], warm = 0;
  setun_status s = time_prefill(session, ids, 1, &warm, error);
  for (int64_t i = 0; s == SETUN_OK && i < o->repeats; i++) {
    s = time_prefill(session, ids, o->prefill, &prefill[i], error);
    if (s == SETUN_OK) s = time_decode(session, ids, o->decode, &decode[i], error);
  }
  if (s != SETUN_OK) return s;
  double prefill_seconds = median(prefill, o->repeats);
  uint64_t head = r->info.head_macs;
  r->prefill = (double)o->prefill / prefill_seconds;
  r->prefill_macs = ((double)o->prefill * (double)(r->info.macs_per_token - head) + (double)head) / prefill_seconds;
  r->decode = (double)o->decode / median(decode, o->repeats);
  return setun_measure_ceilings(r->info.isa, r->threads, o->buffer, &r->ceilings, error);
}

static double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

static double compute_peak(const bench_result *r) {
  bool int8 = strncmp(r->info.activation, "int8", 4) == 0;
  return int8 ? r->ceilings.int8_macs_per_s : r->ceilings.float_macs_per_s;
}

static void print_json_member(const char *key, double value) {
  print_text("\"%s\": ", key);
  print_json_number(value);
  print_text(", ");
}

static void print_json(const bench_result *r) {
  print_text("{");
  print_json_member("prefill_tokens_per_s", r->prefill);
  print_json_member("prefill_peak_share", share(r->prefill_macs, compute_peak(r)));
  print_json_member("decode_tokens_per_s", r->decode);
  print_json_member("decode_bandwidth_share",
                    share(r->decode * (double)r->info.bytes_per_token, r->ceilings.read_bytes_per_s));
  print_text("\"bytes_per_token\": %llu, \"macs_per_token\": %llu, ", (unsigned long long)r->info.bytes_per_token,
             (unsigned long long)r->info.macs_per_token);
  print_json_member("read_bandwidth_gbs", r->ceilings.read_bytes_per_s / 1e9);
  print_json_member("int8_peak_gmacs", r->ceilings.int8_macs_per_s / 1e9);
  print_json_member("float_peak_gmacs", r->ceilings.float_macs_per_s / 1e9);
  print_streaming_json(&r->streaming);
  print_text("\"activation\": \"%s\", \"isa\": \"%s\", \"threads\": %d}\n", r->info.activation, r->info.isa,
             r->threads);
}

static void print_table(const bench_result *r, const bench_options *o) {
  char bytes[32];
  print_text("%s kernels, %s activations, %d threads; %s and %.1f M multiply-adds a token\n", r->info.isa,
             r->info.activation, r->threads, format_bytes(r->info.bytes_per_token, bytes),
             (double)r->info.macs_per_token / 1e6);
  print_text("prefill %6lld tokens  %10.2f tokens/s  %5.1f %% of %.1f G multiply-adds/s (%s)\n", (long long)o->prefill,
             r->prefill, 100 * share(r->prefill_macs, compute_peak(r)), compute_peak(r) / 1e9, r->info.activation);
  print_text("decode  %6lld tokens  %10.2f tokens/s  %5.1f %% of %.2f GB/s read from memory\n", (long long)o->decode,
             r->decode, 100 * share(r->decode * (double)r->info.bytes_per_token, r->ceilings.read_bytes_per_s),
             r->ceilings.read_bytes_per_s / 1e9);
}

static int measure(const setun_model *model, const char *path, const bench_options *o) {
  setun_error error;
  setun_session *session = NULL;
  bench_result r = {.info = setun_model_get_info(model)};
  int64_t most = most_of(o->prefill, o->decode + 1);
  setun_token *ids = malloc((size_t)most * sizeof *ids);
  if (!ids) return failure("no memory for %lld ids", (long long)most);
  int status = STATUS_FAILED;
  if (open_session(model, &o->compute, (uint32_t)most, &session)) {
    fill_ids(ids, most, r.info.n_vocab);
    r.threads = setun_session_threads(session);
    watch_interrupts(session);
    setun_status s = time_all(session, o, ids, &r, &error);
    status = interrupt_status();
    watch_interrupts(NULL);
    if (s != SETUN_OK && !status) status = report(&error);
    if (s == SETUN_OK) r.streaming = make_streaming_report(model, path);
  }
  setun_session_free(session);
  free(ids);
  if (status) return status;
  if (o->json)
    print_json(&r);
  else
    print_table(&r, o);
  if (!o->json) print_streaming_report(&r.streaming);
  return 0;
}

static int run(const command *self, int argc, char **argv) {
  bench_options o = {.repeats = 3};
  setun_model *model = NULL;
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  o.compute.n_ctx = (uint32_t)most_of(o.prefill ? o.prefill : 512, o.decode ? o.decode + 1 : 65);
  if (!open_model(argv[1], &o.model, &o.compute, false, &model)) {
    setun_model_free(model);
    return failed_status();
  }
  uint32_t trained = setun_model_get_info(model).n_ctx_train;
  if (!o.prefill) o.prefill = trained >= 1 && trained < 512 ? (int64_t)trained : 512;
  if (!o.decode) o.decode = trained >= 2 && trained < 65 ? (int64_t)trained - 1 : 64;
  status = measure(model, argv[1], &o);
  setun_model_free(model);
  return status ? status : finish_output();
}

const command command_bench = {
    .name = "bench",
    .summary = "prefill and decode speed, beside this machine's own limits",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Times a prompt and single tokens, each from an empty context, and measures in the same run how fast this "
        "machine reads memory and multiplies with the same threads and instruction set. The shares say how much of "
        "these limits the model's own work reaches.",
    .groups = {{"options", OPTION_ROWS(rows), 0}, COMPUTE_GROUP(bench_options), MODEL_GROUP(bench_options)},
    .run = run,
};
