// Reference counting of adapters, and freeing them.
#include "model/lora.h"

#include "base/hash.h"
#include "base/memory.h"

st_adapting st_adapting_of(st_lora *l, float scale, uint64_t model) {
  uint64_t identity = l ? l->identity : model;
  return (st_adapting){l, scale, l && scale != 1 ? st_hash(identity, &scale, sizeof scale) : identity};
}

st_lora *st_lora_share(st_lora *l) {
  if (l) atomic_fetch_add(&l->users, 1);
  return l;
}

void st_lora_release(st_lora *l) {
  if (!l || atomic_fetch_sub(&l->users, 1) != 1) return;
  for (uint32_t i = 0; l->pairs && i < l->n; i++) {
    if (l->pairs[i].a) l->backend->matrix_free(l->pairs[i].a);
    if (l->pairs[i].b) l->backend->matrix_free(l->pairs[i].b);
    st_free(l->pairs[i].codes[0]);
    st_free(l->pairs[i].codes[1]);
  }
  if (l->room) atomic_fetch_add(l->room, l->bytes);
  st_free(l->pairs);
  st_free(l);
}
