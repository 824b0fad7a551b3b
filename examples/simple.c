/* Prints a completion: simple MODEL PROMPT */
#include <setun.h>
#include <stdio.h>
#include <string.h>

static bool print(const char *text, size_t length, void *user) {
  (void)user;
  return fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
  setun_error error;
  setun_model *model = NULL;
  setun_session *session = NULL;
  setun_sampler *sampler = NULL;
  setun_token ids[1024];
  size_t count = 0;
  if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;

  /* An empty prompt begins from BOS alone, where the model has such a token. */
  int flags = *argv[2] ? SETUN_TOKENIZE_BOS : SETUN_TOKENIZE_BOS_ALWAYS;
  setun_generate_params params = setun_generate_params_default();
  params.max_tokens = 64;
  params.on_text = print;

  setun_status s = setun_model_load(argv[1], NULL, &model, &error);
  if (s == SETUN_OK) s = setun_session_new(model, NULL, &session, &error);
  if (s == SETUN_OK) s = setun_tokenize(model, argv[2], strlen(argv[2]), flags, ids, 1024, &count, &error);
  if (s == SETUN_OK && (count == 0 || count > 1024))
    return fprintf(stderr, "the prompt has %zu tokens: expected 1 to 1024\n", count), 1;
  if (s == SETUN_OK) s = setun_session_eval(session, ids, count, NULL, &error);
  setun_sampler_params sampling = setun_sampler_params_default();
  sampling.model = model; /* tokens without text are never sampled */
  if (s == SETUN_OK) s = setun_sampler_new(&sampling, &sampler, &error);
  if (s == SETUN_OK) printf("%s", argv[2]);
  if (s == SETUN_OK) s = setun_generate(session, sampler, &params, NULL, &error);
  printf("\n");
  if (s != SETUN_OK) fprintf(stderr, "%s\n", error.message);
  setun_sampler_free(sampler);
  setun_session_free(session);
  setun_model_free(model);
  return s != SETUN_OK;
}
