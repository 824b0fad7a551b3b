/* Streams two texts at once from one model, each in its own thread; the first one continues until the main thread
 * stops it, after the second has ended: two_sessions MODEL PROMPT PROMPT */
#include <pthread.h>
#include <setun.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct stream {
  const char *name, *prompt;
  const setun_model *model;
  setun_session *session;
  int most;         /* new tokens; -1: until it is stopped */
  atomic_bool stop; /* setun_session_stop ends an evaluation; this is for the moments between two of them */
  setun_status status;
  setun_error error;
} stream;

/* Lines of the two streams must not mix. */
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void show(const stream *st, const char *text, size_t length) {
  if (!length) return;
  pthread_mutex_lock(&output);
  printf("%s: ", st->name);
  fwrite(text, 1, length, stdout);
  printf("\n");
  fflush(stdout);
  pthread_mutex_unlock(&output);
}

/* When the context is full the text restarts from its beginning, so that the stream never ends. */
static setun_status next(stream *st, const setun_token *prompt, size_t n, setun_token id) {
  if (setun_session_position(st->session) < setun_session_context(st->session)) {
    return setun_session_eval(st->session, &id, 1, NULL, &st->error);
  }
  setun_status s = setun_session_truncate(st->session, 0, &st->error);
  return s == SETUN_OK ? setun_session_eval(st->session, prompt, n, NULL, &st->error) : s;
}

/* What each thread runs: a session, a sampler and a decoder belong to one thread, the model to all. */
static void *run(void *user) {
  stream *st = (stream *)user;
  setun_token prompt[256], id = 0;
  size_t n = 0, length = 0;
  const char *text = NULL;
  setun_sampler *sampler = NULL;
  setun_decoder *decoder = NULL;
  setun_sampler_params sampling = setun_sampler_params_default();
  sampling.model = st->model; /* tokens without text are never sampled */
  size_t n_vocab = setun_model_n_vocab(st->model);
  setun_status s =
      setun_tokenize(st->model, st->prompt, strlen(st->prompt), SETUN_TOKENIZE_BOS, prompt, 256, &n, &st->error);
  if (s == SETUN_OK && (n == 0 || n > 256)) {
    s = SETUN_ERROR_LIMIT;
    snprintf(st->error.message, sizeof st->error.message, "the prompt has %zu tokens: expected 1 to 256", n);
  }
  if (s == SETUN_OK) s = setun_session_eval(st->session, prompt, n, NULL, &st->error);
  if (s == SETUN_OK) s = setun_sampler_new(&sampling, &sampler, &st->error);
  if (s == SETUN_OK) s = setun_decoder_new(st->model, SETUN_DECODE_CONTINUES, &decoder, &st->error);
  for (int i = 0; s == SETUN_OK && !atomic_load(&st->stop) && (st->most < 0 || i < st->most); i++) {
    s = setun_sampler_sample(sampler, setun_session_logits(st->session), n_vocab, &id, &st->error);
    if (s == SETUN_OK) s = setun_decoder_push(decoder, id, &text, &length, &st->error);
    if (s == SETUN_OK) show(st, text, length);
    if (s == SETUN_OK) s = next(st, prompt, n, id);
  }
  setun_decoder_free(decoder);
  setun_sampler_free(sampler);
  st->status = s;
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: %s MODEL PROMPT PROMPT\n", argv[0]), 2;
  setun_error error;
  setun_model *model = NULL;
  setun_model_params params = setun_model_params_default();
  setun_session_params one_thread = setun_session_params_default();
  one_thread.threads = 1;
  stream streams[2] = {{"first", argv[2], NULL, NULL, -1, false, SETUN_OK, {SETUN_OK, ""}},
                       {"second", argv[3], NULL, NULL, 32, false, SETUN_OK, {SETUN_OK, ""}}};
  pthread_t threads[2];
  int started = 0;
  setun_status s = setun_model_load(argv[1], &params, &model, &error);
  for (int i = 0; i < 2 && s == SETUN_OK; i++) {
    streams[i].model = model;
    s = setun_session_new(model, &one_thread, &streams[i].session, &error);
  }
  if (s != SETUN_OK) fprintf(stderr, "%s\n", error.message);
  while (s == SETUN_OK && started < 2 && pthread_create(&threads[started], NULL, run, &streams[started]) == 0)
    started++;

  if (started == 2) pthread_join(threads[1], NULL);
  if (started) {
    atomic_store(&streams[0].stop, true);
    setun_session_stop(streams[0].session);
    pthread_join(threads[0], NULL);
  }
  for (int i = 0; i < 2; i++) {
    bool fine = streams[i].status == SETUN_OK || streams[i].status == SETUN_ERROR_CANCELED;
    if (!fine) fprintf(stderr, "%s: %s\n", streams[i].name, streams[i].error.message);
    if (!fine) s = streams[i].status;
    if (started == 2 && fine) printf("%s: %s\n", streams[i].name, i == 0 ? "(stopped)" : "(ended)");
    setun_session_free(streams[i].session);
  }
  setun_model_free(model);
  return s != SETUN_OK || started < 2;
}
