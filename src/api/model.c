// setun.h: version, models and vocabularies.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/system_memory.h"
#include "quant/quant.h"
#include "runtime/sampler_defaults.h"

#include <string.h>

enum { ADAPTER_RANK_MOST = 65536 };

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *setun_version(void) {
  return TEXT(SETUN_VERSION_MAJOR) "." TEXT(SETUN_VERSION_MINOR) "." TEXT(SETUN_VERSION_PATCH);
}

int setun_version_number(void) {
  return SETUN_VERSION_NUMBER;
}

const char *setun_isa_available(void) {
  return st_backend_find(NULL)->available();
}

static setun_status fail_assume(const char *found, setun_error *err) {
  st_buffer known = {0};
  for (int i = 0; i < ST_FORMAT_COUNT; i++) {
    const st_format *f = st_format_get((st_format_id)i);
    if (st_format_is_ambiguous(f) && !st_buffer_format(&known, "%s%s", known.length ? ", " : "", f->name)) break;
  }
  setun_status s = st_fail(err, SETUN_ERROR_ARGUMENT, "assume: expected one of %s, found \"%.32s\"",
                           known.data ? known.data : "the formats that share their type", found);
  st_buffer_free(&known);
  return s;
}

setun_status st_check_reading(const char *assume, const char *const *ignore_keys, size_t n, setun_error *err) {
  // The option affects few files, but a mistyped name must be reported.
  const st_format *assumed = assume ? st_format_by_name(assume) : NULL;
  if (assume && !(assumed && st_format_is_ambiguous(assumed))) return fail_assume(assume, err);
  if (n && !ignore_keys) return st_fail_null("ignore_keys", err);
  for (size_t i = 0; i < n; i++) {
    if (!ignore_keys[i]) return st_fail_null("a key of ignore_keys", err);
  }
  return SETUN_OK;
}

static setun_status check_source(const setun_model_params *p, setun_error *err) {
  const setun_source *source = p->source;
  if (!source) return SETUN_OK;
  if (!source->bytes == !source->read) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "source: expected either bytes or a function that reads them, found %s",
                   source->bytes ? "both" : "neither");
  }
  if (p->no_stream) return st_fail(err, SETUN_ERROR_ARGUMENT, "no_stream: a source is not a file that can be mapped");
  return SETUN_OK;
}

static setun_status check_params(const setun_model_params *p, setun_error *err) {
  if (p->activation && strcmp(p->activation, "int8") && strcmp(p->activation, "float")) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "activation: expected int8 or float, found \"%.64s\"", p->activation);
  }
  if (p->n_adapters && !p->adapters) return st_fail_null("adapters", err);
  for (size_t i = 0; i < p->n_adapters; i++) {
    if (!p->adapters[i].path) return st_fail_null("an adapter's path", err);
  }
  if (p->adapter_rank > ADAPTER_RANK_MOST || !p->adapter_rank != !p->adapter_bytes) {
    return st_fail(
        err, SETUN_ERROR_ARGUMENT,
        "adapter_rank and adapter_bytes: expected both or neither, and a rank of at most %d, found %u and %llu",
        ADAPTER_RANK_MOST, p->adapter_rank, (unsigned long long)p->adapter_bytes);
  }
  if (p->threads < 0 || p->threads > 1024) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "threads: expected 0 to 1024, found %d", p->threads);
  }
  const st_backend *backend;
  size_t index;
  setun_status s = st_check_reading(p->assume, p->ignore_keys, p->n_ignore_keys, err);
  if (s == SETUN_OK) s = st_backend_choose(p->device, &backend, &index, err);
  return s == SETUN_OK ? check_source(p, err) : s;
}

static setun_status read_source(const void *context, uint64_t offset, void *to, size_t n, setun_error *err) {
  const setun_source *s = context;
  if (offset > s->length || n > s->length - offset) {
    return st_fail(err, SETUN_ERROR_IO, "the source ends early: expected %zu bytes at offset %llu, found %llu", n,
                   (unsigned long long)offset, (unsigned long long)s->length);
  }
  if (s->bytes) {
    memcpy(to, (const char *)s->bytes + offset, n);
  } else if (!s->read(s->user, offset, to, n)) {
    return st_fail(err, SETUN_ERROR_IO, "reading %zu bytes of the source at offset %llu failed", n,
                   (unsigned long long)offset);
  }
  return SETUN_OK;
}

const st_spec *st_spec_of(const st_directory *d) {
  const st_spec *spec = NULL;
  if (d->container == ST_GGUF) st_gguf_spec(d, &spec, NULL);
  if (d->container == ST_HUGGINGFACE) st_hf_spec(d, &spec, NULL);
  return spec;
}

const char *st_default_pre(const st_directory *d) {
  const st_spec *spec = st_spec_of(d);
  if (!spec || d->container == ST_GGUF) return spec ? spec->gguf_pre : NULL;
  return spec->hf_pre ? spec->hf_pre : "gpt-2";
}

// The device was checked with the other parameters.
st_placement_options st_placement_options_of(const setun_model_params *p, const st_log *log) {
  const st_backend *backend;
  size_t index;
  st_backend_choose(p->device, &backend, &index, NULL);
  return (st_placement_options){.backend = backend,
                                .device = index,
                                .device_cache = p->device_cache,
                                .isa = p->isa,
                                .activation = p->activation,
                                .precise = p->precise,
                                .threads = p->threads,
                                .progress = p->progress,
                                .user = p->user,
                                .log = log,
                                .adapters = p->adapters,
                                .n_adapters = p->n_adapters,
                                .adapter_rank = p->adapter_rank,
                                .adapter_bytes = p->adapter_bytes,
                                .context = p->context,
                                .context_size = st_context_size_of,
                                .memory = p->memory,
                                .device_memory = p->device_memory,
                                .expected = p->beside,
                                .mapped = p->no_stream,
                                .experts_state = p->experts_state,
                                .prefetch = {.mode = p->experts_ahead < 0 ? ST_PREFETCH_NEVER : ST_PREFETCH_MEASURED,
                                             .distance = p->experts_ahead > 0 ? (uint32_t)p->experts_ahead : 1}};
}

// Without the key, texts may be split differently than in training.
setun_status st_notice_default_pre(const st_directory *d, setun_error *err) {
  st_text model = {0};
  if (d->container != ST_GGUF || st_metadata_find(&d->metadata, "tokenizer.ggml.pre")) return SETUN_OK;
  if (st_metadata_text(&d->metadata, "tokenizer.ggml.model", &model, NULL) != SETUN_OK) return SETUN_OK;
  if (model.length != 4 || memcmp(model.data, "gpt2", 4)) return SETUN_OK;
  const char *pre = st_default_pre(d);
  return st_notices_add(d->notices, SETUN_LOG_WARNING, err,
                        "%s: tokenizer.ggml.pre: expected this key, found none: texts are split as by \"%s\"", d->path,
                        pre ? pre : "default");
}

// Plain text must not become tokens without an embedding row. Published models have special tokens beyond it (Gemma 3's
// for images): using such a token is an error then.
static setun_status check_rows(const setun_model *m, setun_error *err) {
  const st_tokenizer *t = m->tokenizer;
  uint32_t size = st_tokenizer_size(t), rows = m->model->h.n_vocab;
  for (uint32_t id = rows; id < size; id++) {
    st_text text = {0};
    bool begins = (int32_t)id == st_tokenizer_bos(t) && st_tokenizer_add_bos(t);
    if (!st_tokenizer_has_text(t, (int32_t)id) || (st_tokenizer_is_control(t, (int32_t)id) && !begins)) continue;
    setun_status s = st_tokenizer_text(t, (int32_t)id, &text, err);
    if (s != SETUN_OK) return s;
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "the vocabulary: expected at most the %u tokens that the embedding has rows for, found %u, such as "
                   "token %u, \"%.*s\"",
                   rows, size, id, (int)(text.length < 40 ? text.length : 40), text.data);
  }
  return SETUN_OK;
}

// Everything but weights.
static setun_status load_texts(setun_model *m, const st_directory *d, setun_error *err) {
  if (d->container == ST_SAFETENSORS) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a GGUF file or a model's directory, found only weights: %s",
                   d->path, "give the directory, with its config.json and tokenizer");
  }
  m->container = d->container;
  m->spec = st_spec_of(d);
  m->sampling = st_sampler_defaults(d, &m->log);
  setun_status s = st_vocabulary_load(d, st_default_pre(d), &m->log, &m->tokenizer, err);
  if (s == SETUN_OK) s = st_templates_load(d, &m->templates, err);
  if (s == SETUN_OK) s = st_prompts_load(d, &m->prompts, err);
  if (s == SETUN_OK) s = st_architecture_name(d, &m->architecture, err);
  return s == SETUN_OK ? st_notice_template(d, &m->templates, m->architecture, m->tokenizer, err) : s;
}

// An unknown family is more informative than what its tokenizer lacks.
static setun_status check_family(const st_directory *d, setun_error *err) {
  const st_spec *spec;
  if (d->container == ST_GGUF) return st_gguf_spec(d, &spec, err);
  return d->container == ST_HUGGINGFACE ? st_hf_spec(d, &spec, err) : SETUN_OK;
}

static setun_status plan_expecting(const st_directory *d, const setun_model_params *p, uint64_t expected,
                                   st_memory_plan *plan, setun_error *err) {
  st_placement_options options = st_placement_options_of(p, NULL); // loading reports problems, and adds adapters
  options.n_adapters = 0;
  options.expected += expected;
  return st_placement_plan(d, &options, plan, err);
}

// Before the vocabulary takes memory: a budget that is too small is refused, with a sufficient one. Other errors are
// reported where they belong.
static setun_status check_budget(const st_directory *d, const setun_model_params *p, st_memory_plan *plan,
                                 setun_error *err) {
  st_memory_plan own = {0};
  setun_error first;
  st_vocabulary_size size = st_vocabulary_measure(d);
  if (d->container == ST_SAFETENSORS) return SETUN_OK;
  bool refused = plan_expecting(d, p, size.least, &own, &first) == SETUN_ERROR_MEMORY;
  if (refused) {
    st_memory_plan_free(&own);
    setun_status s = plan_expecting(d, p, size.enough, &own, err); // whose least is reported
    if (s != SETUN_ERROR_MEMORY && err) *err = first;
    if (plan) *plan = own, own = (st_memory_plan){0};
  }
  st_memory_plan_free(&own);
  return refused ? SETUN_ERROR_MEMORY : SETUN_OK;
}

// The same for a vocabulary: without the parameters of a session.
static setun_status check_vocabulary_budget(const st_directory *d, const setun_model_params *p, setun_error *err) {
  st_vocabulary_size size = st_vocabulary_measure(d);
  uint64_t resident = st_memory_resident(), least = resident + size.enough + ((1 << 20) - 1);
  if (!p->memory || p->memory >= resident + size.least) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_MEMORY, "%s: expected at least %lluM of memory for the vocabulary, found %.1fM",
                 d->path, (unsigned long long)(least >> 20), (double)p->memory / (1 << 20));
}

// The context to plan for, to which p->context then points; NULL: the plan's default.
static setun_status take_planned(setun_model_params *p, setun_context_params *planned, setun_error *err) {
  setun_session_params session;
  setun_status s = SETUN_OK;
  if (p->session && p->context) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "expected a session or a context to plan for, found both");
  }
  if (p->context) {
    s = st_take_context_params(planned, p->context, err);
  } else if (p->session) {
    s = st_take_session_params(&session, p->session, err);
    if (s == SETUN_OK) *planned = st_session_context_params(&session);
  } else {
    return SETUN_OK;
  }
  p->context = planned;
  return s;
}

setun_status st_api_open(const char *path, const setun_model_params *params, const st_file_source *source,
                         st_next_fn next, void *context, st_memory_plan *plan, setun_model **model, setun_error *err) {
  ST_DEFAULT_FLOAT_MODES;
  setun_model_params p;
  setun_context_params planned;
  st_directory *d = NULL;
  setun_status s = st_take_model_params(&p, params, err);
  if (s == SETUN_OK) s = check_params(&p, err);
  if (s == SETUN_OK) s = take_planned(&p, &planned, err);
  if (s != SETUN_OK) return s;
  st_file_source given = {.read = read_source, .context = p.source, .size = p.source ? p.source->length : 0};
  if (!source && p.source) source = &given;
  if (!path && source) path = "the model";
  if (!path) return st_fail_null("path", err);
  setun_model *m = st_calloc(1, sizeof *m);
  if (m) m->trie = st_calloc(1, sizeof *m->trie);
  if (!m || !m->trie) {
    st_free(m);
    return st_fail_memory(err, "the model");
  }
  m->maker = st_process_current();
  m->log = (st_log){p.log, p.user};
  const st_open_options options = {.assume = p.assume,
                                   .ignore_keys = p.ignore_keys,
                                   .n_ignore_keys = p.n_ignore_keys,
                                   .log = &m->log,
                                   .source = source,
                                   .texts_only = !next};
  s = st_directory_open(path, &options, &d, err);
  if (s == SETUN_OK) {
    if (next) s = check_family(d, err);
    if (s == SETUN_OK) s = next || p.context ? check_budget(d, &p, plan, err) : check_vocabulary_budget(d, &p, err);
    if (s == SETUN_OK) s = load_texts(m, d, err);
    if (s == SETUN_OK && next) s = next(m, d, &p, context, err);
    if (s != SETUN_OK && s != SETUN_ERROR_CANCELED && err && strncmp(err->message, path, strlen(path))) {
      st_fail_in(err, s, "%s", path);
    }
  }
  if (s == SETUN_OK && m->placement && m->placement->streamer) {
    m->directory = d;
  } else {
    if (s != SETUN_OK)
      st_placement_free(m->placement), m->placement = NULL,
                                       m->model = NULL; // before the directory, from which it may stream
    st_directory_free(d);
  }
  if (s == SETUN_OK) {
    *model = m;
  } else {
    setun_model_free(m);
  }
  return s;
}

setun_status st_api_load_weights(setun_model *m, const st_directory *d, const setun_model_params *p, void *context,
                                 setun_error *err) {
  st_placement_options options = st_placement_options_of(p, &m->log);
  (void)context;
  if (p->experts_ahead < -1 || p->experts_ahead > ST_PREFETCH_DISTANCES) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "experts_ahead: expected -1 to %d, found %d", ST_PREFETCH_DISTANCES,
                   p->experts_ahead);
  }
  setun_status s = st_placement_load(d, &options, &m->placement, err);
  if (s == SETUN_OK) {
    m->model = m->placement->model;
    m->model->on_experts = p->on_experts;
    m->model->experts_user = p->experts_user;
  }
  if (s == SETUN_OK) s = check_rows(m, err);
  if (s == SETUN_OK) s = st_token_gaps_find(m->tokenizer, m->model->h.n_vocab, &m->gaps, err);
  if (s == SETUN_OK) s = st_token_gaps_notice(&m->gaps, m->model->h.n_vocab, d, err);
  if (s == SETUN_OK) s = st_notice_default_pre(d, err);
  return s;
}

setun_status setun_model_load(const char *path, const setun_model_params *params, setun_model **model,
                              setun_error *error) {
  ST_NEED(model);
  return st_api_open(path, params, NULL, st_api_load_weights, NULL, NULL, model, error);
}

setun_status setun_model_load_vocabulary(const char *path, const setun_model_params *params, setun_model **model,
                                         setun_error *error) {
  ST_NEED(model);
  return st_api_open(path, params, NULL, NULL, NULL, NULL, model, error);
}

void setun_model_free(setun_model *m) {
  if (!m) return;
  st_token_trie_free(atomic_load(m->trie));
  st_free(m->trie);
  st_placement_free(m->placement);
  st_directory_free(m->directory);
  st_tokenizer_free(m->tokenizer);
  st_token_gaps_free(&m->gaps);
  st_templates_free(&m->templates);
  st_prompts_free(&m->prompts);
  st_free(m->architecture);
  st_free(m);
}

setun_status setun_model_get_info(const setun_model *model, setun_model_info *info, setun_error *error) {
  ST_NEED(model);
  setun_model_info found = {.container = model->container == ST_GGUF ? "gguf" : "huggingface",
                            .n_vocab = st_tokenizer_size(model->tokenizer)};
  const st_model *m = model->model;
  if (!m) return ST_FILL(info, &found);
  const st_memory_plan *plan = &model->placement->plan;
  found.architecture = m->spec->name;
  found.isa = m->backend->device_isa(m->device);
  found.activation = m->h.int8 ? "int8" : m->fast ? "int8-block" : "float";
  found.n_layer = m->h.n_layer;
  found.n_embd = m->h.n_embd;
  found.n_head = m->h.n_head;
  found.n_head_kv = m->h.n_head_kv;
  found.head_dim = m->h.head_dim;
  found.n_ff = m->h.n_ff;
  found.n_vocab = m->h.n_vocab;
  found.n_ctx_train = m->h.n_ctx_train;
  found.n_params = m->n_params;
  found.weight_bytes = model->placement->streamer ? plan->resident + plan->vectors : m->weight_bytes;
  found.bytes_per_token = m->bytes_per_token;
  found.macs_per_token = m->macs_per_token;
  found.head_macs = m->head_macs;
  found.float_macs = m->float_macs;
  return ST_FILL(info, &found);
}

uint32_t setun_model_n_vocab(const setun_model *model) {
  if (!model) return 0;
  return model->model ? model->model->h.n_vocab : st_tokenizer_size(model->tokenizer);
}
