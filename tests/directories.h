// tests/golden/directories.json, which the packages gguf and safetensors wrote, and opening the directories that it is
// about. To be included after cmocka.h.
#ifndef SETUN_TESTS_DIRECTORIES_H
#define SETUN_TESTS_DIRECTORIES_H

#include "base/file.h"
#include "base/memory.h"
#include "format/directory.h"

#include <stdio.h>

static st_json *golden;

static int load_golden(void **state) {
  (void)state;
  char *text;
  size_t length;
  setun_error err;
  if (st_file_load(SETUN_TEST_DATA "/golden/directories.json", 1 << 24, &text, &length, &err) != SETUN_OK) return -1;
  st_json_parse(text, length, "directories.json", &golden, &err);
  st_free(text);
  return golden ? 0 : -1;
}

static int free_golden(void **state) {
  (void)state;
  st_json_free(golden);
  return 0;
}

// A directory of tests/, which the caller frees.
static st_directory *open_path(const char *name) {
  char path[512];
  setun_error err;
  st_directory *d = NULL;
  snprintf(path, sizeof path, "%s/%s", SETUN_TEST_DATA, name);
  if (st_directory_open(path, NULL, &d, &err) != SETUN_OK) fail_msg("%s", err.message);
  return d;
}

// A directory of tests/golden/, likewise.
static st_directory *open_golden(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "golden/%s", name);
  return open_path(path);
}

#endif
