// Placement of weights in memory: matrices packed into the kernels' forms, in arenas of huge pages.
#include "backend/cpu/cpu.h"

#include "base/memory.h"

#include <stdatomic.h>
#include <string.h>

enum { CHUNK = 64 << 20 };

struct st_arena_chunk {
  st_arena_chunk *next;
  char *data;
  size_t size, used;
};

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
    if (c) st_pages_drop(c->data + c->used, c->size - c->used); // what stood there has shrunk
    fresh->next = c;
    d->chunks = c = fresh;
  }
  void *p = c->data + c->used;
  c->used += rounded;
  return p;
}

// Gives back the last `size` bytes of what was allocated last; of anything else nothing comes back.
static void arena_shrink(st_device *d, const uint8_t *end, size_t size) {
  st_arena_chunk *c = d->chunks;
  if ((const uint8_t *)c->data + c->used == end) c->used -= size;
}

static setun_status fail_matrix(const st_format *format, st_shape shape, setun_error *err) {
  return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a %s matrix of %llu x %llu", format->name,
                 (unsigned long long)shape.rows, (unsigned long long)shape.columns);
}

static bool is_float(st_form form) {
  return form == ST_FORM_F32 || form == ST_FORM_F16 || form == ST_FORM_BF16;
}

// Which of the three kinds of rows st_form_pack takes for the form.
st_rows st_cpu_rows_wanted(const st_device *d, const st_format *format) {
  (void)d;
  st_form form = st_form_of(format);
  if (form == ST_FORM_T16 || form == ST_FORM_T16B) return ST_ROWS_TRITS;
  return is_float(form) ? ST_ROWS_FLOAT : ST_ROWS_BYTES;
}

static st_activation activation_of(const st_format *format, st_form form, st_precision precision) {
  if (is_float(form)) return ST_ACT_F32;
  if (precision == ST_PRECISION_INT8) return st_format_is_ternary(format) ? ST_ACT_INT8_TOKEN : ST_ACT_F32;
  return precision == ST_PRECISION_FAST ? ST_ACT_INT8_BLOCK : ST_ACT_F32;
}

static size_t groups_of(uint64_t rows) {
  return ((size_t)rows + ST_GROUP - 1) / ST_GROUP;
}

static setun_status check_matrix(const st_device *d, const st_format *format, st_shape shape, st_precision precision,
                                 setun_error *err) {
  st_form form = st_form_of(format);
  if (!d->kernels.matmul[form][activation_of(format, form, precision)]) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s kernels: no product for %s weights with this kind of activation",
                   d->kernels.name, format->name);
  }
  if (shape.rows > SIZE_MAX / 2 || shape.columns > SIZE_MAX / 32) {
    return st_fail(err, SETUN_ERROR_FORMAT, "a matrix of %llu x %llu is too large", (unsigned long long)shape.rows,
                   (unsigned long long)shape.columns);
  }
  return SETUN_OK;
}

// A matrix whose codes stand nowhere yet.
static setun_status new_matrix(st_device *d, const st_format *format, st_shape shape, st_precision precision,
                               st_dmatrix **matrix, size_t *codes, setun_error *err) {
  setun_status s = check_matrix(d, format, shape, precision, err);
  if (s != SETUN_OK) return s;
  st_form form = st_form_of(format);
  size_t group_bytes = st_form_group_bytes(form, (size_t)shape.columns, format->block), groups = groups_of(shape.rows);
  st_dmatrix *m = st_calloc(1, sizeof *m);
  bool fits = m && st_mul_size(groups, group_bytes, codes);
  if (fits) {
    m->bytes = *codes;
    if (form == ST_FORM_T16) {
      m->scales = arena_alloc(d, groups * ST_GROUP * sizeof(float));
      m->bytes += groups * ST_GROUP * sizeof(float);
      fits = m->scales != NULL;
    }
  }
  if (!fits) {
    st_free(m);
    return fail_matrix(format, shape, err);
  }
  m->m = (st_matrix){.form = form,
                     .rows = (size_t)shape.rows,
                     .columns = (size_t)shape.columns,
                     .block = format->block,
                     .group_bytes = group_bytes,
                     .scales = m->scales};
  m->format = format;
  m->activation = activation_of(format, form, precision);
  size_t *most = &d->max_columns[m->activation];
  if (m->m.columns > *most) *most = m->m.columns;
  *matrix = m;
  return SETUN_OK;
}

setun_status st_cpu_matrix_new(st_device *d, const st_format *format, st_shape shape, st_precision precision,
                               st_dmatrix **matrix, setun_error *err) {
  st_dmatrix *m = NULL;
  size_t codes = 0;
  setun_status s = new_matrix(d, format, shape, precision, &m, &codes, err);
  if (s != SETUN_OK) return s;
  m->m.data = arena_alloc(d, codes);
  if (!m->m.data) {
    st_free(m);
    return fail_matrix(format, shape, err);
  }
  *matrix = m;
  return SETUN_OK;
}

setun_status st_cpu_matrix_new_lent(st_device *d, const st_format *format, st_shape shape, st_precision precision,
                                    st_dmatrix **matrix, setun_error *err) {
  size_t codes;
  return new_matrix(d, format, shape, precision, matrix, &codes, err);
}

void st_cpu_matrix_lend(st_dmatrix *m, void *codes) {
  m->m.data = codes;
}

// Whose layout is the form itself: only t16 is.
bool st_cpu_matrix_direct(const st_device *d, const st_format *format) {
  (void)d;
  return format->id == ST_T16 && st_form_of(format) == ST_FORM_T16;
}

void st_cpu_matrix_scales(st_dmatrix *m, uint64_t row, uint64_t count, const float *scales) {
  if (m->scales) memcpy(m->scales + row, scales, (size_t)count * sizeof *scales);
}

// The form in which a matrix settles. Five codes a byte are made for tokens with one scale; and their sums must not
// overflow where T16's do not.
static st_form settled_form(const st_device *d, st_form form, st_activation kind, size_t columns, uint32_t block) {
  enum { MOST_COLUMNS = 1 << 22 };
  if (!d->kernels.five || kind != ST_ACT_INT8_TOKEN || columns > MOST_COLUMNS) return form;
  return st_form_squeezed(form, block);
}

st_matrix_size st_cpu_matrix_size(const st_device *d, const st_format *format, st_shape shape, st_precision precision) {
  st_form form = st_form_of(format);
  size_t columns = (size_t)shape.columns;
  uint64_t groups = groups_of(shape.rows);
  st_activation kind = activation_of(format, form, precision);
  st_matrix_size size = {.codes = groups * st_form_group_bytes(form, columns, format->block), .input = (uint32_t)kind};
  st_form settled = settled_form(d, form, kind, columns, format->block);
  size.own = groups * st_form_group_bytes(settled, columns, format->block);
  if (form == ST_FORM_T16) size.beside = groups * ST_GROUP * sizeof(float);
  return size;
}

typedef struct {
  st_dmatrix *m;
  size_t group_bytes; // in the new form
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
    if (!st_form_can_squeeze(m->form, m->columns, m->block, m->data + g * m->group_bytes))
      atomic_store(&j->cannot, true);
  }
}

// Each part to its own beginning.
static void squeeze_part(void *context, int index, int threads) {
  squeeze_job *j = context;
  size_t first, last;
  share_groups(j, index, threads, &first, &last);
  const uint8_t *from = j->m->m.data + first * j->m->m.group_bytes;
  uint8_t *to = (uint8_t *)from;
  for (size_t g = first; g < last; g++, from += j->m->m.group_bytes, to += j->group_bytes) {
    st_form_squeeze(j->m->m.form, j->m->m.columns, j->m->m.block, from, to);
  }
}

void st_cpu_matrix_settle(st_device *d, st_dmatrix *m, st_pool *pool) {
  st_form form = settled_form(d, m->m.form, m->activation, m->m.columns, m->m.block);
  if (form == m->m.form) return;
  squeeze_job j = {.m = m, .group_bytes = st_form_group_bytes(form, m->m.columns, m->m.block)};
  atomic_init(&j.cannot, false);
  st_pool_run(pool, check_part, &j);
  if (atomic_load(&j.cannot)) return;
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
}

void st_cpu_matrix_write(st_dmatrix *m, uint64_t row, uint64_t count, const void *rows, const float *scales) {
  size_t columns = m->m.columns;
  size_t blocks = m->format->scales == ST_SCALE_BLOCK ? (columns + m->m.block - 1) / m->m.block : 1;
  size_t row_bytes = columns; // of trits
  if (is_float(m->m.form)) {
    row_bytes = columns * sizeof(float);
  } else if (m->m.form != ST_FORM_T16 && m->m.form != ST_FORM_T16B) {
    row_bytes = columns / m->m.block * m->format->block_bytes;
  }
  for (uint64_t i = 0; i < count; i += ST_GROUP) {
    size_t n = count - i < ST_GROUP ? (size_t)(count - i) : ST_GROUP;
    uint8_t *group = (uint8_t *)m->m.data + (size_t)((row + i) / ST_GROUP) * m->m.group_bytes;
    const float *s = scales ? scales + i * blocks : NULL;
    st_form_pack(m->m.form, m->format, columns, m->m.block, (const char *)rows + i * row_bytes, s, n, group);
    if (m->scales) memcpy(m->scales + row + i, s, n * sizeof *s);
  }
}

bool st_cpu_takes_strips(const st_device *d, const st_format *format, st_shape stored) {
  (void)d;
  return st_form_takes_strips(format, stored);
}

void st_cpu_matrix_write_strip(st_dmatrix *m, uint64_t row, st_shape stored, const st_strip *strip, const void *bytes,
                               const float *scales) {
  size_t per_row = m->format->scales == ST_SCALE_BLOCK ? m->m.columns / m->m.block : 1;
  for (uint64_t i = 0; i < strip->count; i += ST_GROUP) {
    uint8_t *group = (uint8_t *)m->m.data + (size_t)((row + i) / ST_GROUP) * m->m.group_bytes;
    st_form_pack_strip(m->format, stored, strip, bytes, scales ? scales + i * per_row : NULL, strip->row + i, group);
    if (m->scales) memcpy(m->scales + row + i, scales + i, ST_GROUP * sizeof *scales);
  }
}

void st_cpu_matrix_free(st_dmatrix *m) {
  st_free(m);
} // its bytes go with the arena

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
