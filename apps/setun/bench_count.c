// The command `bench --count`: dispatches, barriers and bytes of one decoded token by operation, beside the bytes that
// the model's weights and cache require.
#include "bench_count.h"

#include "output.h"

#include <string.h>

enum { OPERATIONS_MOST = 64 };

typedef struct counted {
  setun_device_work of[OPERATIONS_MOST];
  size_t n;
} counted;

static void count(const setun_session *session, counted *c) {
  for (c->n = 0; c->n < OPERATIONS_MOST; c->n++) {
    c->of[c->n].size = sizeof *c->of;
    if (setun_session_get_device_work(session, c->n, &c->of[c->n], NULL) != SETUN_OK) return;
  }
}

static void subtract(counted *c, const counted *before) {
  for (size_t i = 0; i < c->n; i++) {
    setun_device_work *w = &c->of[i];
    const setun_device_work *b = &before->of[i];
    w->dispatches -= b->dispatches, w->barriers -= b->barriers, w->read -= b->read, w->written -= b->written;
  }
}

// Those after the operations.
enum { SUBMISSIONS, RECORDINGS, BUFFERS, TO_DEVICE, STREAMED, FROM_DEVICE, OTHERS };

static setun_device_work total(const counted *c) {
  setun_device_work all = {0};
  for (size_t i = 0; i + OTHERS < c->n; i++) {
    const setun_device_work *w = &c->of[i];
    all.dispatches += w->dispatches, all.barriers += w->barriers, all.read += w->read, all.written += w->written;
  }
  return all;
}

static void print_row_json(const char *name, const setun_device_work *w) {
  print_text("{\"name\": \"%s\", \"dispatches\": %llu, \"barriers\": %llu, \"read\": %llu, \"written\": %llu}", name,
             (unsigned long long)w->dispatches, (unsigned long long)w->barriers, (unsigned long long)w->read,
             (unsigned long long)w->written);
}

static void print_row(const char *name, const setun_device_work *w) {
  print_text("%-22s %10llu %8llu %14llu %14llu\n", name, (unsigned long long)w->dispatches,
             (unsigned long long)w->barriers, (unsigned long long)w->read, (unsigned long long)w->written);
}

// What a token must read, and of `states` also write.
typedef struct least {
  uint64_t weights, cache, states; // cache: with states
  uint32_t n_layer;
} least;

static uint64_t least_bytes(const least *l) {
  return l->weights + l->cache + l->states;
}

static void print_counts_json(const counted *c, const least *l) {
  setun_device_work all = total(c);
  print_text("{\"operations\": [");
  for (size_t i = 0, shown = 0; i + OTHERS < c->n; i++) {
    if (!c->of[i].dispatches) continue;
    print_text("%s", shown++ ? ",\n " : "");
    print_row_json(c->of[i].name, &c->of[i]);
  }
  print_text("],\n \"total\": ");
  print_row_json("total", &all);
  const setun_device_work *others = c->of + c->n - OTHERS;
  print_text(",\n \"layers\": %u, \"dispatches_per_layer\": %llu, \"submissions\": %llu, "
             "\"recordings\": %llu, \"buffers_made\": %llu, \"bytes_to_device\": %llu, "
             "\"bytes_streamed\": %llu, \"bytes_back\": %llu,\n \"least_bytes\": %llu, \"weight_bytes\": %llu, "
             "\"cache_bytes\": %llu, \"state_bytes\": %llu, ",
             l->n_layer, (unsigned long long)(all.dispatches / l->n_layer),
             (unsigned long long)others[SUBMISSIONS].dispatches, (unsigned long long)others[RECORDINGS].dispatches,
             (unsigned long long)others[BUFFERS].dispatches, (unsigned long long)others[TO_DEVICE].written,
             (unsigned long long)others[STREAMED].written, (unsigned long long)others[FROM_DEVICE].read,
             (unsigned long long)least_bytes(l), (unsigned long long)l->weights, (unsigned long long)l->cache,
             (unsigned long long)l->states);
  print_text("\"above_least\": ");
  print_json_number((double)(all.read + all.written) / (double)least_bytes(l) - 1);
  print_text("}\n");
}

static void print_counts(const counted *c, const least *l) {
  setun_device_work all = total(c);
  const setun_device_work *others = c->of + c->n - OTHERS;
  print_text("%-22s %10s %8s %14s %14s\n", "operation", "dispatches", "barriers", "bytes read", "bytes written");
  for (size_t i = 0; i + OTHERS < c->n; i++) {
    if (c->of[i].dispatches) print_row(c->of[i].name, &c->of[i]);
  }
  print_row("total", &all);
  print_text("%llu dispatches for each of %u layers, %llu others; %llu submission%s, %llu recorded; %llu buffers made; "
             "%llu bytes to the device, %llu of weights streamed, %llu back\n",
             (unsigned long long)(all.dispatches / l->n_layer), l->n_layer,
             (unsigned long long)(all.dispatches % l->n_layer), (unsigned long long)others[SUBMISSIONS].dispatches,
             plural(others[SUBMISSIONS].dispatches), (unsigned long long)others[RECORDINGS].dispatches,
             (unsigned long long)others[BUFFERS].dispatches, (unsigned long long)others[TO_DEVICE].written,
             (unsigned long long)others[STREAMED].written, (unsigned long long)others[FROM_DEVICE].read);
  print_text("least: %llu bytes of weights and %llu of the cache, of which %llu are states, also written; read and "
             "written %.2f %% above\n",
             (unsigned long long)l->weights, (unsigned long long)l->cache, (unsigned long long)l->states,
             100 * ((double)(all.read + all.written) / (double)least_bytes(l) - 1));
}

// The first tokens after the others make buffers and pipelines, and record; the last is counted.
static setun_status decode(setun_session *session, setun_sampler *sampler, const count_work *work, counted *c,
                           setun_error *error) {
  counted before;
  setun_token largest;
  setun_status s = setun_session_eval(session, work->ids, work->depth, NULL, error);
  for (uint32_t i = 0; i < COUNT_TOKENS && s == SETUN_OK; i++) {
    if (i + 1 == COUNT_TOKENS) count(session, &before);
    s = setun_session_eval_sample(session, work->ids + work->depth + i, 1, sampler, &largest, error);
  }
  count(session, c);
  if (s == SETUN_OK) subtract(c, &before);
  return s;
}

int count_token(const char *name, const setun_model *model, const compute_options *compute, const count_work *work) {
  setun_session *session = NULL;
  setun_sampler *sampler = NULL;
  setun_sampler_params greedy = setun_sampler_params_default();
  setun_error error;
  counted c;
  if (!open_session(name, model, compute, work->depth + COUNT_TOKENS, &session)) return 1;
  setun_model_info info = model_info(model);
  greedy.temperature = 0;
  setun_status s = setun_sampler_new(&greedy, &sampler, &error);
  if (s == SETUN_OK) s = decode(session, sampler, work, &c, &error);
  const least l = {.weights = info.bytes_per_token,
                   .cache = setun_session_cache_bytes(session, work->depth + COUNT_TOKENS),
                   .states = setun_session_cache_bytes(session, 0),
                   .n_layer = info.n_layer};
  setun_sampler_free(sampler);
  setun_session_free(session);
  if (s != SETUN_OK) return report(&error);
  if (c.n <= OTHERS) return failure("--count: expected a GPU (--device), found the CPU, whose work is not counted");
  if (work->json)
    print_counts_json(&c, &l);
  else
    print_counts(&c, &l);
  return 0;
}
