// Masks of SmolLM2's vocabulary against each token tried by itself. SETUN_MODELS names the folder with its file;
// without it the test is skipped.
#include "base/memory.h"
#include "constraint_masks.h"
#include "runtime/vocabulary.h"

#include <stdio.h>

static st_tokenizer *tokenizer;
static st_token_trie *trie;

static void test_masks(void **state) {
  (void)state;
  check_all_masks(tokenizer, trie, 3);
}

int main(void) {
  const char *folder = getenv("SETUN_MODELS");
  char path[4096];
  setun_error err;
  st_directory *d = NULL;
  snprintf(path, sizeof path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder ? folder : ".");
  if (!folder || st_directory_open(path, NULL, &d, &err)) {
    fprintf(stderr, "skipped: %s\n", folder ? err.message : "SETUN_MODELS does not name a folder of models");
    return 77;
  }
  if (st_vocabulary_load(d, NULL, NULL, &tokenizer, &err) || st_token_trie_new(tokenizer, &trie, &err)) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  st_token_trie_free(trie);
  st_tokenizer_free(tokenizer);
  st_directory_free(d);
  return failed;
}
