// Placement of weights in memory: matrices packed into the kernels' forms, in arenas of huge pages.
#include "backend/cpu/cpu.h"

#include "base/memory.h"
#include "base/system_memory.h"

#include <stdatomic.h>
#include <string.h>

enum { CHUNK = 64 << 20 };

struct st_arena_chunk {
  st_arena_chunk *next;
  char *data;
  size_t size, used;
};

// The machine itself.
bool st_cpu_device_at(size_t index, st_device_facts *facts) {
  uint64_t available = st_memory_available();
  if (index) return false;
  *facts = (st_device_facts){.memory = available == UINT64_MAX ? 0 : available};
  strncpy(facts->name, st_kernels_available(), sizeof facts->name - 1);
  return true;
}

setun_status st_cpu_device_new(const st_device_options *options, st_device **device, setun_error *err) {
  st_device *d = st_calloc(1, sizeof *d);
  if (!d) return st_fail_memory(err, "the device");
  setun_status s = st_kernels_get(options->isa, &d->kernels, err);
  if (s == SETUN_OK) s = st_workers_new(&d->workers, err);
  if (s != SETUN_OK) {
    st_free(d);
    return s;
  }
  *device = d;
  return SETUN_OK;
}

void st_cpu_device_free(st_device *d) {
  if (!d) return;
  for (st_arena_chunk *c = d->chunks, *next; c; c = next) {
    next = c->next;
    st_pages_free(c->data, c->size);
    st_free(c);
  }
  st_workers_free(d->workers);
  st_free(d);
}

setun_status st_cpu_pool_new(st_device *d, int threads, st_pool **pool, setun_error *err) {
  return st_pool_new(d->workers, threads, pool, err);
}

const char *st_cpu_device_isa(const st_device *d) {
  return d->kernels.name;
}

// `size` bytes aligned to 64, freed with the device; NULL when out of memory.
static void *arena_alloc(st_device *d, size_t size) {
  size_t rounded;
  if (!st_add_size(size, 63, &rounded)) return NULL;
  rounded &= ~(size_t)63;
  st_arena_chunk *c = d->chunks;
  if (!c || c->size - c->used < rounded) {
    st_arena_chunk *fresh = st_calloc(1, sizeof *fresh);
    if (!fresh) return NULL;
    fresh->size = rounded > CHUNK ? rounded : CHUNK;
    fresh->data = st_pages_alloc(fresh->size, true);
    if (!fresh->data) {
      st_free(fresh);
      return NULL;
    }
    if (c) st_pages_drop(c->data + c->used, c->size - c->used); // what was there has shrunk
    fresh->next = c;
    d->chunks = c = fresh;
  }
  void *p = c->data + c->used;
  c->used += rounded;
  return p;
}

// Returns the last `size` bytes of the most recent allocation to the arena; of any other allocation, none.
static void arena_shrink(st_device *d, const uint8_t *end, size_t size) {
  st_arena_chunk *c = d->chunks;
  if ((const uint8_t *)c->data + c->used == end) c->used -= size;
}

static setun_status fail_matrix(const st_format *format, st_shape shape, setun_error *err) {
  return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a %s matrix of %llu x %llu", format->name,
                 (unsigned long long)shape.rows, (unsigned long long)shape.columns);
}

// The kind of rows that st_form_pack takes for the form.
static st_rows rows_of(st_form form) {
  switch (st_form_rows_taken(form)) {
  case ST_FORM_TRITS: return ST_ROWS_TRITS;
  case ST_FORM_FLOATS: return ST_ROWS_FLOAT;
  default: return ST_ROWS_BYTES;
  }
}

static st_activation activation_of(const st_format *format, st_form form, st_precision precision) {
  if (st_form_rows_taken(form) == ST_FORM_FLOATS) return ST_ACT_F32;
  if (precision == ST_PRECISION_INT8) return st_format_is_ternary(format) ? ST_ACT_INT8_TOKEN : ST_ACT_F32;
  return precision == ST_PRECISION_FAST ? ST_ACT_INT8_BLOCK : ST_ACT_F32;
}

static size_t groups_of(uint64_t rows) {
  return ((size_t)rows + ST_GROUP - 1) / ST_GROUP;
}

static st_activation activation_for(const st_matrix_desc *d) {
  return activation_of(d->format, st_form_of(d->format), d->precision);
}

bool st_cpu_supports(const st_device *d, const st_matrix_desc *desc, st_operation operation) {
  st_form form = st_form_of(desc->format);
  return operation == ST_OP_EMBED ? d->kernels.row[form] != NULL
                                  : d->kernels.matmul[form][activation_for(desc)] != NULL;
}

static setun_status check_matrix(const st_matrix_desc *desc, setun_error *err) {
  st_shape shape = desc->shape;
  if (shape.rows > SIZE_MAX / 2 || shape.columns > SIZE_MAX / 32) {
    return st_fail(err, SETUN_ERROR_FORMAT, "a matrix of %llu x %llu is too large", (unsigned long long)shape.rows,
                   (unsigned long long)shape.columns);
  }
  return SETUN_OK;
}

void st_cpu_workload_add(const st_device *d, const st_matrix_desc *desc, st_workload *workload) {
  uint64_t *most = &workload->most[activation_for(desc)];
  (void)d;
  if (desc->shape.columns > *most) *most = desc->shape.columns;
}

// Allocates its own codes and separate scales; false when out of memory.
static bool allocate(st_device *d, const st_matrix_desc *desc, st_dmatrix *m, size_t codes) {
  size_t scales = groups_of(desc->shape.rows) * ST_GROUP * sizeof(float);
  m->bytes = codes;
  if (st_form_has_row_scales(st_form_of(desc->format))) {
    m->scales = arena_alloc(d, scales);
    m->bytes += scales;
    if (!m->scales) return false;
  }
  if (desc->ownership == ST_OWNED) m->m.data = arena_alloc(d, codes);
  return m->m.data || desc->ownership != ST_OWNED;
}

// Columns that share a scale, where a form has such blocks.
static uint32_t block_of(const st_format *format, size_t columns) {
  return format->ops->row_head ? (uint32_t)columns : format->block;
}

// The form of a finalized matrix, the last one that is faster here. Denser forms are for tokens with one scale; their
// sums must not overflow where those of 2-bit codes do not.
static st_form final_form(const st_device *d, const st_format *format, st_activation kind, size_t columns) {
  enum { MOST_COLUMNS = 1 << 22 };
  if (kind != ST_ACT_INT8_TOKEN || columns > MOST_COLUMNS) return st_form_of(format);
  for (int form = ST_FORM_COUNT - 1; form >= 0; form--) {
    if (d->kernels.faster[form] && st_form_is_denser((st_form)form, format)) return (st_form)form;
  }
  return st_form_of(format);
}

// The form in which rows are written: the final one of a matrix whose codes are its own where any tensor of the format
// can have it, so that they are written once; else the format's.
static st_form written_form(const st_device *d, const st_matrix_desc *desc) {
  st_form final = final_form(d, desc->format, activation_for(desc), (size_t)desc->shape.columns);
  bool direct = desc->ownership == ST_OWNED && st_form_is_direct(final, desc->format);
  return direct ? final : st_form_of(desc->format);
}

setun_status st_cpu_matrix_new(st_device *d, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err) {
  setun_status s = check_matrix(desc, err);
  if (s != SETUN_OK) return s;
  const st_format *format = desc->format;
  st_form form = written_form(d, desc);
  size_t columns = (size_t)desc->shape.columns, codes;
  uint32_t block = block_of(format, columns);
  size_t group_bytes = st_form_group_bytes(form, columns, block);
  st_dmatrix *m = st_calloc(1, sizeof *m);
  if (!m || !st_mul_size(groups_of(desc->shape.rows), group_bytes, &codes) || !allocate(d, desc, m, codes)) {
    st_free(m);
    return fail_matrix(format, desc->shape, err);
  }
  m->m = (st_matrix){.form = form,
                     .rows = (size_t)desc->shape.rows,
                     .columns = columns,
                     .block = block,
                     .bfloat = format->ops->bfloat,
                     .group_bytes = group_bytes,
                     .data = m->m.data,
                     .scales = m->scales};
  m->format = format;
  m->stored = desc->stored;
  m->activation = activation_for(desc);
  st_cpu_workload_add(d, desc, &d->workload);
  *matrix = m;
  return SETUN_OK;
}

void st_cpu_matrix_borrow(st_dmatrix *m, void *codes) {
  m->m.data = codes;
}

st_matrix_info st_cpu_matrix_info(const st_device *d, const st_matrix_desc *desc) {
  const st_format *format = desc->format;
  st_form form = st_form_of(format);
  size_t columns = (size_t)desc->shape.columns;
  uint64_t groups = groups_of(desc->shape.rows);
  st_form final = final_form(d, format, activation_for(desc), columns);
  return (st_matrix_info){.codes = groups * st_form_group_bytes(form, columns, block_of(format, columns)),
                          .own = groups * st_form_group_bytes(final, columns, block_of(format, columns)),
                          .beside = st_form_has_row_scales(form) ? groups * ST_GROUP * sizeof(float) : 0,
                          .rows = rows_of(form),
                          .row_unit = ST_GROUP,
                          .strips = desc->stored.rows && st_form_takes_strips(format, desc->stored),
                          .direct = st_form_is_stored(format)};
}

typedef struct {
  st_dmatrix *m;
  st_form form;       // the new one
  size_t group_bytes; // in it
  atomic_bool cannot;
} squeeze_job;

static void share_groups(const squeeze_job *j, int index, int threads, size_t *first, size_t *last) {
  st_pool_share(groups_of(j->m->m.rows), 1, index, threads, first, last);
}

static void check_part(void *context, int index, int threads) {
  squeeze_job *j = context;
  const st_matrix *m = &j->m->m;
  size_t first, last;
  share_groups(j, index, threads, &first, &last);
  for (size_t g = first; g < last && !atomic_load(&j->cannot); g++) {
    if (!st_form_can_squeeze(j->form, m->columns, m->block, m->data + g * m->group_bytes))
      atomic_store(&j->cannot, true);
  }
}

// Each part starts at its own beginning.
static void squeeze_part(void *context, int index, int threads) {
  squeeze_job *j = context;
  size_t first, last;
  share_groups(j, index, threads, &first, &last);
  const uint8_t *from = j->m->m.data + first * j->m->m.group_bytes;
  uint8_t *to = (uint8_t *)from;
  for (size_t g = first; g < last; g++, from += j->m->m.group_bytes, to += j->group_bytes) {
    st_form_squeeze(j->form, j->m->m.columns, j->m->m.block, from, to);
  }
}

setun_status st_cpu_matrix_finalize(st_device *d, st_dmatrix *m, st_pool *pool, setun_error *err) {
  (void)err;
  st_form form = final_form(d, m->format, m->activation, m->m.columns);
  if (form == m->m.form) return SETUN_OK;
  squeeze_job j = {.m = m, .form = form, .group_bytes = st_form_group_bytes(form, m->m.columns, m->m.block)};
  atomic_init(&j.cannot, false);
  st_pool_run(pool, check_part, &j);
  if (atomic_load(&j.cannot)) return SETUN_OK;
  st_pool_run(pool, squeeze_part, &j);
  int threads = st_pool_threads(pool);
  uint8_t *data = (uint8_t *)m->m.data;
  size_t groups = groups_of(m->m.rows), saved = groups * (m->m.group_bytes - j.group_bytes);
  for (int i = 1; i < threads; i++) {
    size_t first, last;
    share_groups(&j, i, threads, &first, &last);
    memmove(data + first * j.group_bytes, data + first * m->m.group_bytes, (last - first) * j.group_bytes);
  }
  arena_shrink(d, data + groups * m->m.group_bytes, saved);
  m->m.form = form;
  m->m.group_bytes = j.group_bytes;
  m->bytes -= saved;
  return SETUN_OK;
}

static void write_rows(st_dmatrix *m, const st_matrix_rows *r) {
  uint64_t row = r->row, count = r->count;
  const float *scales = r->scales;
  size_t columns = m->m.columns;
  size_t blocks = m->format->scales == ST_SCALE_BLOCK ? (columns + m->m.block - 1) / m->m.block : 1;
  size_t row_bytes = columns; // of trits
  st_form_rows taken = st_form_rows_taken(m->m.form);
  if (taken == ST_FORM_FLOATS) row_bytes = columns * sizeof(float);
  if (taken == ST_FORM_BLOCKS) row_bytes = (size_t)st_format_row_bytes(m->format, columns);
  for (uint64_t i = 0; i < count; i += ST_GROUP) {
    size_t n = count - i < ST_GROUP ? (size_t)(count - i) : ST_GROUP;
    uint8_t *group = (uint8_t *)m->m.data + (size_t)((row + i) / ST_GROUP) * m->m.group_bytes;
    const float *s = scales ? scales + i * blocks : NULL;
    st_form_pack(m->m.form, m->format, columns, m->m.block, (const char *)r->data + i * row_bytes, s, n, group);
    if (m->scales) memcpy(m->scales + row + i, s, n * sizeof *s);
  }
}

static void write_strip(st_dmatrix *m, const st_matrix_rows *r) {
  size_t per_row = m->format->scales == ST_SCALE_BLOCK ? m->m.columns / m->m.block : 1;
  const st_strip *strip = r->strip;
  for (uint64_t i = 0; i < strip->count; i += ST_GROUP) {
    uint8_t *group = (uint8_t *)m->m.data + (size_t)((r->row + i) / ST_GROUP) * m->m.group_bytes;
    st_form_pack_strip(m->m.form, m->format, m->stored, strip, r->data, r->scales ? r->scales + i * per_row : NULL,
                       strip->row + i, group);
    if (m->scales) memcpy(m->scales + r->row + i, r->scales + i, ST_GROUP * sizeof *r->scales);
  }
}

setun_status st_cpu_matrix_write(st_dmatrix *m, const st_matrix_rows *r, setun_error *err) {
  (void)err;
  if (r->strip) {
    write_strip(m, r);
  } else if (r->data) {
    write_rows(m, r);
  } else if (m->scales) {
    memcpy(m->scales + r->row, r->scales, (size_t)r->count * sizeof *r->scales);
  }
  return SETUN_OK;
}

void st_cpu_matrix_free(st_dmatrix *m) {
  st_free(m);
} // its bytes are freed with the arena

uint64_t st_cpu_matrix_bytes(const st_dmatrix *m) {
  return m->bytes;
}

setun_status st_cpu_vector_new(st_device *d, const float *values, size_t n, st_dvector **vector, setun_error *err) {
  (void)d;
  size_t bytes;
  st_dvector *v = NULL;
  if (st_mul_size(n, sizeof(float), &bytes) && st_add_size(bytes, sizeof *v, &bytes)) v = st_malloc(bytes, 1);
  if (!v) return st_fail_memory(err, "a vector of weights");
  v->n = n;
  memcpy(v->values, values, n * sizeof(float));
  *vector = v;
  return SETUN_OK;
}

void st_cpu_vector_free(st_dvector *v) {
  st_free(v);
}
