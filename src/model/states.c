// Hidden states after the final norm, and the dense matrices of embeddings.
#include "model/states.h"

#include "model/embedding.h"
#include "model/product.h"

#include <string.h>

setun_status st_run_states(st_run *r, const uint32_t *rows, uint32_t n, float *out, setun_error *err) {
  const st_model *m = r->model;
  m->backend->gather(r->queue, r->x, rows, n, m->h.n_embd, r->branch); // `branch` is unused between passes
  m->backend->rmsnorm(r->queue, r->branch, n, 1, m->h.n_embd, m->output_norm, m->h.norm_eps);
  return m->backend->read(r->queue, r->branch, 0, (size_t)n * m->h.n_embd, out, err);
}

uint32_t st_dense_width(const st_hparams *h) {
  const st_embedding *e = &h->embedding;
  uint64_t width = e->n_dense ? h->n_embd : 0;
  for (uint32_t i = 0; i < e->n_dense; i++) width = e->dense[i].rows > width ? e->dense[i].rows : width;
  return (uint32_t)width;
}

setun_status st_run_project(st_run *r, const float *pooled, float *out, setun_error *err) {
  const st_model *m = r->model;
  uint32_t n = m->h.embedding.n_dense;
  if (!n) {
    memcpy(out, pooled, m->h.n_embd * sizeof *out);
    return SETUN_OK;
  }
  setun_status s = m->backend->write(r->queue, r->dense[0], 0, m->h.n_embd, pooled, err);
  if (s != SETUN_OK) return s;
  for (uint32_t i = 0; i < n; i++) {
    const st_product product = {&m->dense[i], r->dense[(i + 1) % 2], 0};
    st_multiply(r, r->dense[i % 2], 0, 1, NULL, &product, 1);
  }
  return m->backend->read(r->queue, r->dense[n % 2], 0, st_embedding_width(&m->h), out, err);
}
