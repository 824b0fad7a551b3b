// Stop texts from the command line.
#define _POSIX_C_SOURCE 200809L
#include "stops.h"

#include "input.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

// A copy, unescaped if requested; NULL after a report.
static char *copy_text(const char *text, bool escape) {
  char *copy = strdup(text);
  if (!copy) {
    failure("out of memory for a stop text");
    return NULL;
  }
  size_t length = escape ? unescape(copy, strlen(copy)) : strlen(copy);
  copy[length] = 0;
  if (strlen(copy) == length) return copy;
  failure("--stop: expected text without zero bytes, found %s", text);
  free(copy);
  return NULL;
}

bool open_stops(const text_list *texts, bool escape, setun_stops **stops) {
  char *copies[STOPS_MOST] = {0};
  setun_error error;
  bool fine = true;
  for (size_t i = 0; i < texts->count && fine; i++) fine = (copies[i] = copy_text(texts->items[i], escape)) != NULL;
  if (fine && setun_stops_new((const char *const *)copies, texts->count, stops, &error) != SETUN_OK) {
    failure("--stop: %s", error.message);
    fine = false;
  }
  for (size_t i = 0; i < texts->count; i++) free(copies[i]);
  return fine;
}
