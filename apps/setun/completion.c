// Completion of input: the commands of a conversation, and the paths that some of them take.
#define _POSIX_C_SOURCE 200809L
#include "completion.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_MOST = 1024, LISTED_MOST = 100 };

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

void completion_free(completion *c) {
  for (size_t i = 0; i < c->count; i++) free(c->names[i]);
  free(c->names);
  *c = (completion){0};
}

static bool add(completion *c, const char *name, const char *end) {
  char **grown = realloc(c->names, (c->count + 1) * sizeof *grown);
  if (!grown) return false;
  c->names = grown;
  char *copy = malloc(strlen(name) + strlen(end) + 1);
  if (!copy) return false;
  strcpy(copy, name);
  strcat(copy, end);
  c->names[c->count++] = copy;
  return true;
}

// The length of their common prefix, in complete characters.
static size_t shared(const completion *c) {
  size_t n = c->count ? strlen(c->names[0]) : 0;
  for (size_t i = 1; i < c->count; i++) {
    size_t same = 0;
    while (same < n && c->names[i][same] == c->names[0][same]) same++;
    n = same;
  }
  while (n && ((unsigned char)c->names[0][n] & 0xC0) == 0x80) n--;
  return n;
}

static void finish(completion *c, size_t begun) {
  if (c->count > 1) qsort(c->names, c->count, sizeof *c->names, by_name);
  size_t n = shared(c);
  c->begun = begun;
  c->common = n > begun ? n - begun : 0;
}

completion complete_word(const char *const *words, size_t n, const char *begun, size_t length) {
  completion c = {0};
  for (size_t i = 0; i < n; i++) {
    if (strncmp(words[i], begun, length) == 0 && !add(&c, words[i], " ")) break;
  }
  finish(&c, length);
  return c;
}

static bool is_directory(const char *folder, const char *name) {
  char path[2 * NAME_MOST];
  struct stat st;
  int n = snprintf(path, sizeof path, "%s/%s", folder, name);
  return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

completion complete_path(const char *begun, size_t length) {
  completion c = {0};
  char folder[NAME_MOST] = ".";
  const char *name = begun;
  for (size_t i = 0; i < length; i++) {
    if (begun[i] == '/') name = begun + i + 1;
  }
  size_t before = (size_t)(name - begun), n = length - before;
  if (before >= sizeof folder) return c;
  if (before) {
    memcpy(folder, begun, before);
    folder[before] = 0;
  }
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    bool hidden = e->d_name[0] == '.' && !(n && name[0] == '.');
    if (hidden || strncmp(e->d_name, name, n) != 0 || !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    if (c.count == LISTED_MOST || !add(&c, e->d_name, is_directory(folder, e->d_name) ? "/" : "")) break;
  }
  if (d) closedir(d);
  finish(&c, n);
  return c;
}
