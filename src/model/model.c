// The member of a model for each role, and freeing a model.
#include "model/model.h"

#include "base/memory.h"
#include "model/rope.h"

static st_linear *expert_linear(st_expert *e, st_role role) {
  switch (role) {
  case ST_EXPERT_GATE: return &e->gate;
  case ST_EXPERT_UP: return &e->up;
  case ST_EXPERT_DOWN: return &e->down;
  default: return NULL;
  }
}

st_linear *st_model_linear(st_model *m, st_role role, int32_t layer, int32_t expert) {
  if (expert >= 0) return expert_linear(&m->layers[layer].experts[expert], role);
  if (layer >= 0) return st_role_in_layer(role) ? &m->layers[layer].linear[role] : NULL;
  if (role == ST_DENSE_1 || role == ST_DENSE_2) return &m->dense[role - ST_DENSE_1];
  return role == ST_TOKEN_EMBD ? &m->token_embd : role == ST_OUTPUT ? &m->output : NULL;
}

st_dvector **st_model_vector(st_model *m, st_role role, int32_t layer) {
  if (layer >= 0) return st_role_in_layer(role) ? &m->layers[layer].vector[role] : NULL;
  return role == ST_OUTPUT_NORM ? &m->output_norm : NULL;
}

float **st_model_table(st_model *m, st_role role) {
  if (st_role_get(role)->kind != ST_KIND_TABLE) return NULL;
  float **factors = st_role_rope_factors(&m->h.rope, role);
  return factors ? factors : &m->rope_divisors;
}

static void free_linear(const st_backend *b, st_linear *l) {
  if (l->matrix) b->matrix_free(l->matrix);
  if (l->bias) b->vector_free(l->bias);
  if (l->norm) b->vector_free(l->norm);
}

static void free_layer(const st_backend *b, const st_hparams *h, st_layer *layer) {
  for (int role = 0; role < ST_ROLE_COUNT; role++) {
    free_linear(b, &layer->linear[role]);
    if (layer->vector[role]) b->vector_free(layer->vector[role]);
  }
  for (uint32_t e = 0; layer->experts && e < h->n_expert; e++) {
    free_linear(b, &layer->experts[e].gate);
    free_linear(b, &layer->experts[e].up);
    free_linear(b, &layer->experts[e].down);
  }
  st_free(layer->experts);
}

void st_model_free(st_model *m) {
  if (!m) return;
  const st_backend *b = m->backend;
  for (uint32_t i = 0; m->layers && i < m->h.n_layer; i++) free_layer(b, &m->h, &m->layers[i]);
  if (m->output.matrix == m->token_embd.matrix) m->output.matrix = NULL;
  if (m->output.bias == m->token_embd.bias) m->output.bias = NULL;
  if (m->output.norm == m->token_embd.norm) m->output.norm = NULL;
  for (uint32_t i = 0; i < m->n_head; i++) {
    if (m->head[i].matrix) b->matrix_free(m->head[i].matrix);
  }
  st_free(m->head);
  free_linear(b, &m->output);
  for (int i = 0; i < ST_DENSE_MOST; i++) free_linear(b, &m->dense[i]);
  st_lora_release(m->lora);
  free_linear(b, &m->token_embd);
  if (m->output_norm) b->vector_free(m->output_norm);
  for (st_basis *basis = m->bases, *next; basis; basis = next) {
    next = basis->next;
    if (basis->signs) b->vector_free(basis->signs);
    st_free(basis->order);
    st_free(basis);
  }
  if (m->device) b->device_free(m->device);
  st_free(m->rope_divisors);
  st_hparams_free(&m->h);
  st_free(m->layers);
  st_free(m);
}
