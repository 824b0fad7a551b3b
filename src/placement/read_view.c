// The files of a directory a second time, with bytes that are already in memory used in place of reads.
#include "placement/read_view.h"

#include "base/memory.h"

#include <string.h>

typedef struct st_view_part {
  const st_read_view *view;
  const st_file *file; // the directory's own
} st_view_part;

// Takes bytes from memory if they are there, and the others from the file.
static setun_status read_part(const void *context, uint64_t offset, void *to, size_t n, setun_error *err) {
  const st_view_part *p = context;
  const st_read_view *v = p->view;
  for (size_t i = 0; i < v->n_ranges; i++) {
    const st_stream_range *r = &v->ranges[i];
    if (r->file != p->file || offset < r->offset || offset - r->offset > r->bytes) continue;
    if (n > r->bytes - (offset - r->offset)) continue;
    memcpy(to, v->pointers[i] + (offset - r->offset), n);
    return SETUN_OK;
  }
  return st_file_read(p->file, offset, to, n, err);
}

setun_status st_read_view_open(st_read_view *v, const st_directory *d, setun_error *err) {
  uint32_t n = d->n_parts;
  *v = (st_read_view){.directory = *d};
  v->directory.parts = st_calloc(n, sizeof *v->directory.parts);
  v->parts = st_calloc(n, sizeof *v->parts);
  v->sources = st_calloc(n, sizeof *v->sources);
  if (!v->directory.parts || !v->parts || !v->sources) return st_fail_memory(err, "the model's files");
  for (uint32_t i = 0; i < n; i++) {
    st_file *part = &v->directory.parts[i];
    *part = d->parts[i];
    if (part->source) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "%s: only weights of files on disk can be streamed, and these do not fit into the memory budget",
                     d->path);
    }
    v->parts[i] = (st_view_part){.view = v, .file = &d->parts[i]};
    v->sources[i] = (st_file_source){.read = read_part, .context = &v->parts[i], .size = part->size};
    part->source = &v->sources[i];
  }
  return SETUN_OK;
}

void st_read_view_close(st_read_view *v) {
  for (uint32_t i = 0; v->directory.parts && i < v->directory.n_parts; i++) st_file_unmap(&v->directory.parts[i]);
  st_free(v->directory.parts);
  st_free(v->parts);
  st_free(v->sources);
  *v = (st_read_view){0};
}

setun_status st_read_view_check(const st_read_view *v, setun_error *err) {
  setun_status status = SETUN_OK;
  for (uint32_t i = 0; i < v->directory.n_parts && status == SETUN_OK; i++) {
    status = st_file_check(v->parts[i].file, err);
  }
  return status;
}
