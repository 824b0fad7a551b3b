// Models on a chosen backend, below setun.h, and their results there.
#ifndef SETUN_TESTS_PLACED_H
#define SETUN_TESTS_PLACED_H

#include "models.h"

#include "backend/backend.h"
#include "placement/placement.h"
#include "runtime/session.h"

typedef struct placed {
  st_directory *directory;
  st_placement *placement;
  st_session *session;
  size_t n_vocab;
} placed;

static inline placed place(const char *path, const st_placement_options *options, const setun_session_params *params) {
  placed p = {0};
  setun_error err = {SETUN_OK, ""};
  if (st_directory_open(path, &(st_open_options){0}, &p.directory, &err)) fail_msg("%s: %s", path, err.message);
  if (st_placement_load(p.directory, options, &p.placement, &err)) fail_msg("%s: %s", path, err.message);
  if (st_session_new(p.placement->model, params, &p.session, &err)) fail_msg("%s: %s", path, err.message);
  p.n_vocab = p.placement->model->h.n_vocab;
  return p;
}

static inline void placed_free(placed *p) {
  st_session_free(p->session);
  st_placement_free(p->placement);
  st_directory_free(p->directory);
}

// Logits after a prompt, after one more token, after others in several passes, and again after the last when the
// sequence was saved, dropped and loaded.
enum { PLACED_LOGITS = 4 };
static inline float *placed_logits(placed *p) {
  static const setun_token ids[] = {1, 5,  9,   20, 33, 47, 60, 2, 7, 11, 18, 25,
                                    3, 99, 100, 41, 17, 29, 8,  6, 4, 77, 65, 12};
  static const size_t ends[PLACED_LOGITS] = {11, 12, sizeof ids / sizeof *ids - 1, sizeof ids / sizeof *ids};
  static char saved[1 << 20];
  float *out = st_malloc(PLACED_LOGITS * p->n_vocab, sizeof *out);
  setun_error err = {SETUN_OK, ""};
  size_t done = 0, length = 0;
  assert_non_null(out);
  for (int i = 0; i < PLACED_LOGITS; i++) {
    if (i == PLACED_LOGITS - 1) {
      if (st_session_save_memory(p->session, saved, sizeof saved, &length, &err)) fail_msg("%s", err.message);
      assert_true(length <= sizeof saved);
      assert_int_equal(st_session_truncate(p->session, 0, NULL), SETUN_OK);
      if (st_session_load_memory(p->session, saved, length, &err)) fail_msg("%s", err.message);
    }
    if (st_session_eval(p->session, ids + done, ends[i] - done, NULL, &err)) fail_msg("%s", err.message);
    memcpy(out + i * p->n_vocab, st_session_logits(p->session), p->n_vocab * sizeof *out);
    done = ends[i];
  }
  return out;
}

#endif
