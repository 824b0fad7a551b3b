// The shared library is loaded, used and unloaded repeatedly: nothing of it may stay mapped.
#include "setun.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void find(void *library, const char *name, void *function, size_t size) {
  void *symbol = dlsym(library, name);
  if (!symbol) fail_msg("%s: no such function", name);
  memcpy(function, &symbol, size); // ISO C has no conversion from object to function pointers
}

// Loads the library, tokenizes with it, and unloads it.
static void use(void) {
  setun_status (*load)(const char *, const setun_model_params *, setun_model **, setun_error *);
  setun_status (*tokenize)(const setun_model *, const char *, size_t, int, setun_token *, size_t, size_t *,
                           setun_error *);
  void (*model_free)(setun_model *);
  setun_error error = {SETUN_OK, ""};
  setun_model *model = NULL;
  setun_token ids[16];
  size_t n = 0;
  void *library = dlopen(SETUN_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  find(library, "setun_model_load_vocabulary", &load, sizeof load);
  find(library, "setun_tokenize", &tokenize, sizeof tokenize);
  find(library, "setun_model_free", &model_free, sizeof model_free);
  if (load(SETUN_TEST_DATA "/golden/hf/llama3", NULL, &model, &error) != SETUN_OK) fail_msg("%s", error.message);
  if (tokenize(model, "Hello, world 42!", 16, 0, ids, 16, &n, &error) != SETUN_OK) fail_msg("%s", error.message);
  assert_true(n > 3);
  model_free(model);
  assert_int_equal(dlclose(library), 0);
}

// Bytes of executable memory that this process has mapped.
static unsigned long executable_bytes(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096], rights[8];
  unsigned long from, to, sum = 0;
  if (!maps) {
    print_message("skipped: this system does not list its mappings in /proc/self/maps\n");
    skip();
  }
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strchr(rights, 'x')) sum += to - from;
  }
  fclose(maps);
  return sum;
}

static void nothing_stays(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) use();
  unsigned long before = executable_bytes();
  for (int i = 0; i < 50; i++) use();
  assert_int_equal(executable_bytes(), before);
}

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  printf("skipped: sanitizers keep what was unloaded\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
