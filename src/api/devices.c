// setun.h: devices.
#include "api/api.h"

#include <stdio.h>
#include <string.h>

// The device with that index among those of all backends; NULL: past the last. `own` is its index in its backend.
static const st_backend *device_at(size_t index, size_t *own, st_device_facts *facts) {
  const st_backend *b;
  for (size_t i = 0; (b = st_backend_at(i)); i++) {
    for (*own = 0; b->device_at(*own, facts); ++*own) {
      if (index-- == 0) return b;
    }
  }
  return NULL;
}

setun_status setun_session_get_device_work(const setun_session *session, size_t index, setun_device_work *device_work,
                                           setun_error *error) {
  st_op_counts counts;
  setun_device_work found = {0};
  ST_NEED(session);
  setun_status s = st_check_struct(device_work, sizeof found, "device_work", error);
  if (s != SETUN_OK) return s;
  if (!st_session_device_work(session->inner, index, &counts)) {
    return st_fail(error, SETUN_ERROR_LIMIT, "index: past the last operation that is counted");
  }
  found.dispatches = counts.dispatches, found.barriers = counts.barriers;
  found.read = counts.read, found.written = counts.written;
  snprintf(found.name, sizeof found.name, "%s", counts.name);
  return ST_FILL(device_work, &found);
}

setun_status setun_get_device(size_t index, setun_device_info *device_info, setun_error *error) {
  size_t own;
  st_device_facts facts;
  setun_device_info found = {0};
  setun_status s = st_check_struct(device_info, sizeof found, "device_info", error);
  if (s != SETUN_OK) return s;
  const st_backend *b = device_at(index, &own, &facts);
  if (!b) return st_fail(error, SETUN_ERROR_LIMIT, "index: past the last device");
  found.memory = facts.memory;
  if (b == st_backend_find(NULL))
    snprintf(found.name, sizeof found.name, "%s", b->name);
  else
    snprintf(found.name, sizeof found.name, "%s:%zu", b->name, own);
  memcpy(found.description, facts.name, sizeof found.description);
  memcpy(found.problem, facts.problem, sizeof found.problem);
  return ST_FILL(device_info, &found);
}
