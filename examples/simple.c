/* Prints a completion: simple MODEL PROMPT */
#include <setun.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  setun_error error;
  setun_model *model = NULL;
  setun_session *session = NULL;
  setun_sampler *sampler = NULL;
  setun_decoder *decoder = NULL;
  setun_token ids[1024], id = 0;
  const char *text = NULL;
  size_t count = 0, length = 0;
  if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;

  setun_model_params params = setun_model_params_default();
  setun_status s = setun_model_load(argv[1], &params, &model, &error);
  if (s == SETUN_OK) s = setun_session_new(model, NULL, &session, &error);
  if (s == SETUN_OK) s = setun_tokenize(model, argv[2], strlen(argv[2]), SETUN_TOKENIZE_BOS, ids, 1024, &count, &error);
  if (s == SETUN_OK && count > 1024) return fprintf(stderr, "the prompt has %zu tokens, at most 1024 fit\n", count), 1;
  if (s == SETUN_OK) s = setun_session_eval(session, ids, count, NULL, &error);
  if (s == SETUN_OK) s = setun_sampler_new(NULL, &sampler, &error);
  if (s == SETUN_OK) s = setun_decoder_new(model, SETUN_DECODE_CONTINUES, &decoder, &error);
  if (s == SETUN_OK) printf("%s", argv[2]);

  for (int i = 0; s == SETUN_OK && i < 64 && setun_session_position(session) < setun_session_context(session); i++) {
    size_t n_vocab = setun_model_get_info(model).n_vocab;
    s = setun_sampler_sample(sampler, setun_session_logits(session), n_vocab, &id, &error);
    if (s != SETUN_OK || setun_token_is_end(model, id)) break;
    s = setun_decoder_push(decoder, id, &text, &length, &error);
    if (s == SETUN_OK) fwrite(text, 1, length, stdout);
    if (s == SETUN_OK) s = setun_session_eval(session, &id, 1, NULL, &error);
  }
  printf("\n");
  if (s != SETUN_OK) fprintf(stderr, "%s\n", error.message);
  setun_decoder_free(decoder);
  setun_sampler_free(sampler);
  setun_session_free(session);
  setun_model_free(model);
  return s != SETUN_OK;
}
