// The command `plan`: predict a model's memory and speed without loading it.
#include "commands.h"
#include "expert_use.h"
#include "model.h"
#include "output.h"

#include <math.h>
#include <string.h>

typedef struct plan_options {
  model_options model;
  compute_options compute;
  const char *shape, *format, *head;
  int64_t ctx;
  bool json;
} plan_options;

#define AT(member) offsetof(plan_options, member)
static const option rows[] = {
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 1, INT32_MAX,
     "tokens in the context (default: the model's, at most 4096)"},
    {0, "shape", OPTION_CHOICE, AT(shape), NULL, SETUN_CHOICE_SHAPE, 0,
     "plan for a model of this shape instead of a file, as in `bench --synthetic`"},
    {0, "format", OPTION_CHOICE, AT(format), NULL, SETUN_CHOICE_SYNTHETIC, 0,
     "with --shape: the matrices' format (default t16)"},
    {0, "head", OPTION_CHOICE, AT(head), NULL, SETUN_CHOICE_SYNTHETIC, 0,
     "with --shape: the embedding's and the head's format (default f16)"},
    WINDOW_ROWS(plan_options),
    DRAFT_ROW(plan_options, "none"),
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print JSON"},
};

// This machine's limits; 0 if not measured.
typedef struct limits {
  setun_ceilings ceilings;
  double disk;            // bytes per second
  double decode, prefill; // most tokens per second; with a cache of experts, if these are used equally,
  double decode_zipf;     // and by Zipf's law
} limits;

// Seconds of work at a speed; 0 if the speed is unknown.
static double seconds_at(double work, double speed) {
  return speed > 0 ? work / speed : 0;
}

static double most_of(double a, double b) {
  return a > b ? a : b;
}

// The part of an expert's bytes that are read for it if the cache lacks it: a delta where one exists for any of the
// cached experts of its layer, each of which is cached with the same chance.
static double read_part(const setun_plan *p) {
  if (!p->n_expert_deltas) return 1;
  double links = 2.0 * (double)p->n_expert_deltas / p->n_experts;
  double record = (double)p->expert_token_bytes / ((double)p->n_experts_of_token * p->n_expert_layers);
  double made = 1 - pow(1 - hit_rate_uniform(p), links);
  double delta = (double)p->expert_delta_bytes / (double)p->n_expert_deltas;
  return 1 - made + made * delta / record;
}

// The bytes that a pass reads from disk with this hit rate of the expert cache; a prompt's tokens use all experts, each
// of which is read once.
static double pass_bytes(const setun_plan *p, double hit_rate, double tokens) {
  double dense = (double)(p->streamed - p->expert_token_bytes), of_token = (double)p->expert_token_bytes;
  if (!p->n_experts_cached) return dense;
  double layer = (double)p->n_experts_of_token * p->n_expert_layers, used = layer / p->n_experts;
  double wanted = p->n_experts * (1 - pow(1 - used, tokens));
  return dense + of_token / layer * wanted * (1 - hit_rate) * read_part(p);
}

// A pass takes as long as the slowest of disk, memory bus and arithmetic units.
static double pass_seconds(const setun_plan *p, const limits *l, double hit_rate, double tokens) {
  double disk = seconds_at(pass_bytes(p, hit_rate, tokens), l->disk);
  double memory = seconds_at((double)p->token_bytes, l->ceilings.read_bytes_per_s);
  double compute = seconds_at(tokens * (double)p->token_macs, l->ceilings.int8_macs_per_s);
  return most_of(disk, most_of(memory, compute));
}

static setun_status measure(const char *path, const plan_options *o, const setun_plan *p, limits *l,
                            setun_error *error) {
  enum { BUFFER = 256 << 20, DISK = 512 << 20 };
  setun_status s = SETUN_OK;
  l->ceilings.size = sizeof l->ceilings;
  if (!p->device_total) // whose memory and units are not measured
    s = setun_measure_ceilings(o->model.isa, (int)o->compute.threads, measuring_buffer(p, BUFFER), &l->ceilings, error);
  if (s == SETUN_OK && p->streamed && path) s = setun_measure_disk(path, p->ring, DISK, &l->disk, error);
  if (s != SETUN_OK) return s;
  l->decode = 1 / pass_seconds(p, l, hit_rate_uniform(p), 1); // infinite: unknown
  l->decode_zipf = 1 / pass_seconds(p, l, hit_rate_zipf(p), 1);
  l->prefill = p->n_batch / pass_seconds(p, l, hit_rate_uniform(p), p->n_batch);
  return s;
}

static void print_row(const char *what, uint64_t bytes, const char *remark) {
  char text[32];
  if (bytes) print_text("%-22s %12s  %s\n", what, format_bytes(bytes, text), remark);
}

// The share of a device with memory of its own.
static void print_device(const setun_plan *p, const char *context, const char *batch, uint64_t draft) {
  char text[32], limit[96] = "--device-memory, or what is free";
  if (!p->device_total) return;
  print_text("of the device's memory\n");
  print_row("resident weights", p->resident, "in the device's order");
  print_row("norms and scales", p->vectors, "");
  print_row("rounding", p->device_rounding, "to the pieces that hold weights");
  print_row("buffers", p->device_buffers, "two, for weights that are copied for each pass");
  print_row("KV cache", p->cache, context);
  print_row("activations", p->device_work, batch);
  print_row("in all", p->device_total, "");
  if (draft)
    snprintf(limit, sizeof limit, "--device-memory, or what is free, less %s for --draft", format_bytes(draft, text));
  print_row("limit", p->device_budget, limit);
  print_row("least limit", p->device_least, "");
  if (p->streamed && p->device_whole > p->device_budget)
    print_row("for all weights", p->device_whole, "to stay on the device");
  print_text("\n");
}

static void print_experts(const setun_plan *p, const limits *l) {
  if (!p->n_experts_cached) return;
  print_text("%u of %u experts fit into the cache. It holds %.0f %% of those that a token is routed to if all are "
             "used equally, and %.0f %% if their use follows Zipf's law",
             (unsigned)p->n_experts_cached, (unsigned)p->n_experts, 100 * hit_rate_uniform(p), 100 * hit_rate_zipf(p));
  if (isfinite(l->decode_zipf))
    print_text(": at most %.1f and %.1f tokens/s in decode", l->decode, l->decode_zipf);
  print_text(".\n");
  if (!p->n_expert_deltas) return;
  print_text("%llu pairs of experts have deltas, %.1f %% of an expert in the mean: reading the others takes %.0f %% of "
             "their bytes where all are used alike.\n",
             (unsigned long long)p->n_expert_deltas,
             100.0 * (double)p->expert_delta_bytes / (double)p->n_expert_deltas * p->n_experts_of_token *
                 p->n_expert_layers / (double)p->expert_token_bytes,
             100 * read_part(p));
}

static void print_table(const setun_plan *p, const limits *l, const plan_options *o) {
  char text[32];
  char context[64], batch[64];
  uint32_t usual = p->n_ctx < 512 ? p->n_ctx : 512;
  bool smaller = !o->compute.batch && p->n_batch < usual;
  setun_session_params session = session_params(&o->compute);
  bool apart = session.kv_keys != session.kv_values;
  snprintf(context, sizeof context, "%u tokens, %s%s%s", (unsigned)p->n_ctx,
           setun_choice_name(SETUN_CHOICE_KV, session.kv_keys), apart ? "," : "",
           apart ? setun_choice_name(SETUN_CHOICE_KV, session.kv_values) : "");
  snprintf(batch, sizeof batch, "batches of %u tokens%s", (unsigned)p->n_batch, smaller ? ": no more fit" : "");
  print_row("resident weights", p->resident, "in the kernels' order");
  print_row("rounding", p->rounding, "to huge pages");
  print_row("norms and scales", p->vectors, "");
  print_row("ring", p->ring, "at most two layers' streamed weights");
  print_row("order of the kernels", p->packed, "one layer's, or piece's, weights stored in another");
  print_row("cache of experts", p->expert_cache, "those that were used, in the kernels' order");
  print_row("KV cache", p->cache, context);
  if (p->cache_states) print_row("  states in it", p->cache_states, "of recurrent layers, including snapshots");
  print_row("activations", p->work, batch);
  print_row("program, vocabulary", p->process, "");
  print_row("in all", p->total, "");
  print_row("left to the system", p->reserve, "page tables and the like, within the budget");
  print_row("budget", p->budget, o->compute.memory ? "--memory" : "what is available, less a margin");
  print_row("least budget", p->least, "including what is left to the system, valid for another start");
  print_text("\n");
  print_device(p, context, batch, o->compute.device_beside);
  if (p->streamed) {
    print_text("%s of the files' %s of weights are read from disk for each %s.\n", format_bytes(p->streamed, text),
               format_bytes(p->stored, context), p->n_experts_cached ? "token, except experts in the cache" : "pass");
  } else if (p->packed) {
    print_text("Rows of the embedding are read from disk; the rest stays in memory.\n");
  } else {
    print_text("All weights stay in memory.\n");
  }
  if (p->rearranged) {
    print_text("%s, in the kernels' order, are stored in another order and converted in each pass, which takes extra "
               "time.\n",
               format_bytes(p->rearranged, text));
  }
  print_experts(p, l);
  if (p->device_total) {
    print_text("How fast the device reads its memory and multiplies is not measured.");
    if (l->disk > 0)
      print_text(" The disk (%.2f GB/s) allows at most %.1f tokens/s in decode.", l->disk / 1e9, l->decode);
    print_text("\n");
    return;
  }
  print_text("At most %.1f tokens/s in decode, %.0f in a prompt (", l->decode, l->prefill);
  if (l->disk > 0) print_text("disk %.2f GB/s, ", l->disk / 1e9);
  print_text("memory %.1f GB/s, %.0f G int8 multiply-adds/s)\n", l->ceilings.read_bytes_per_s / 1e9,
             l->ceilings.int8_macs_per_s / 1e9);
}

// What limits the speed, and what a cache of experts has.
static void print_limits_json(const setun_plan *p, const limits *l) {
  print_json_member("disk_read_gbs", l->disk / 1e9);
  print_json_member("read_bandwidth_gbs", p->device_total ? NAN : l->ceilings.read_bytes_per_s / 1e9);
  print_json_member("int8_peak_gmacs", p->device_total ? NAN : l->ceilings.int8_macs_per_s / 1e9);
  print_json_member("decode_tokens_per_s_at_most", l->decode);
  print_json_member("prefill_tokens_per_s_at_most", l->prefill);
  print_text("\"expert_cache\": %llu, \"expert_bytes_per_token\": %llu, \"experts\": %u, \"experts_cached\": %u, ",
             (unsigned long long)p->expert_cache, (unsigned long long)p->expert_token_bytes, (unsigned)p->n_experts,
             (unsigned)p->n_experts_cached);
  print_json_member("expert_hit_rate_uniform", hit_rate_uniform(p));
  print_json_member("expert_hit_rate_zipf", hit_rate_zipf(p));
  print_json_member("decode_tokens_per_s_at_most_zipf", l->decode_zipf);
  print_text("\"expert_deltas\": %llu, \"expert_delta_bytes\": %llu", (unsigned long long)p->n_expert_deltas,
             (unsigned long long)p->expert_delta_bytes);
}

static void print_json(const setun_plan *p, const limits *l) {
  const struct {
    const char *key;
    uint64_t bytes;
  } members[] = {{"held", p->resident}, // older names of resident, memory_planned and memory_budget
                 {"resident", p->resident},
                 {"vectors", p->vectors},
                 {"rounding", p->rounding},
                 {"ring", p->ring},
                 {"packed", p->packed},
                 {"cache", p->cache},
                 {"cache_pages", p->cache_pages},
                 {"cache_states", p->cache_states},
                 {"work", p->work},
                 {"process", p->process},
                 {"total", p->total},
                 {"memory_planned", p->total},
                 {"budget", p->budget},
                 {"memory_budget", p->budget},
                 {"least", p->least},
                 {"reserve", p->reserve},
                 {"weights", p->weights},
                 {"stored", p->stored},
                 {"streamed_bytes_per_pass", p->streamed},
                 {"rearranged_bytes_per_pass", p->rearranged},
                 {"bytes_per_token", p->token_bytes},
                 {"macs_per_token", p->token_macs},
                 {"device_budget", p->device_budget},
                 {"device_least", p->device_least},
                 {"device_whole", p->device_whole},
                 {"device_total", p->device_total},
                 {"device_rounding", p->device_rounding},
                 {"device_buffers", p->device_buffers},
                 {"device_work", p->device_work},
                 {"context", p->n_ctx},
                 {"batch", p->n_batch}};
  print_text("{");
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    print_text("\"%s\": %llu, ", members[i].key, (unsigned long long)members[i].bytes);
  }
  print_limits_json(p, l);
  print_text("}\n");
}

static bool make_plan(const char *path, const plan_options *o, setun_plan *plan) {
  if (!o->shape) return plan_model(path, &o->model, &o->compute, plan);
  setun_synthesis_params synthesis = setun_synthesis_params_default();
  synthesis.shape = o->shape;
  synthesis.format = o->format;
  synthesis.head = o->head;
  return plan_synthetic(&synthesis, &o->model, &o->compute, plan);
}

static int run(const command *self, int argc, char **argv) {
  plan_options o = {.ctx = 0};
  int status = 0, arguments = parse_options(self, argc, argv, &o, &status);
  if (arguments < 0) return status;
  if (!arguments == !o.shape) return usage_error(self, "expected either MODEL or --shape SHAPE");
  if ((status = check_window(self, &o.compute, o.ctx))) return status;
  setun_plan plan = {.size = sizeof plan};
  limits l = {.disk = 0};
  setun_error error;
  const char *path = arguments ? argv[1] : NULL, *name = path ? path : o.shape;
  o.compute.n_ctx = (uint32_t)o.ctx;
  if (!plan_draft(&o.model, &o.compute) || !make_plan(path, &o, &plan)) return STATUS_FAILED;
  if (o.ctx > plan.n_ctx_most) {
    return failure("%s: --ctx: expected at most the %u tokens that the model was trained for or its RoPE scaling "
                   "extends to, found %lld",
                   name, (unsigned)plan.n_ctx_most, (long long)o.ctx);
  }
  if (measure(path, &o, &plan, &l, &error) != SETUN_OK) return report(&error);
  if (o.json)
    print_json(&plan, &l);
  else
    print_table(&plan, &l, &o);
  return finish_output();
}

const command command_plan = {
    .name = "plan",
    .summary = "predict a model's memory and speed without loading it",
    .arguments = "MODEL | --shape SHAPE",
    .min_arguments = 0,
    .max_arguments = 1,
    .details =
        "Shows the memory that a model will take with this context, batch and budget: which weights stay in memory, "
        "which are read from disk again for each pass because they do not fit, and what the KV cache takes; and the "
        "maximum speed that this machine's disk, memory bus and arithmetic units, which are measured for this, allow. "
        "The model is not loaded: only the file's directory is read. The other commands follow the same plan. A budget "
        "that is too small is an error that names the least sufficient one.",
    .groups = {{"options", OPTION_ROWS(rows), 0}, COMPUTE_GROUP(plan_options), MODEL_GROUP(plan_options)},
    .run = run,
};
