// A model's directory whose reads take bytes from memory if they are there. So the code that reads files also converts
// weights that a stream has read to the device's order.
#ifndef SETUN_PLACEMENT_READ_VIEW_H
#define SETUN_PLACEMENT_READ_VIEW_H

#include "format/directory.h"
#include "source/stream.h"

typedef struct st_read_view {
  st_directory directory; // the opened one, except for its files
  // The ranges in memory: range i is at pointers[i]. The caller sets them before reading, and sets the count to 0 when
  // they are no longer valid.
  const st_stream_range *ranges;
  const uint8_t *const *pointers;
  size_t n_ranges;
  struct st_view_part *parts; // [directory.n_parts]
  st_file_source *sources;
} st_read_view;

// The view must not move, and `directory` must outlive it. SETUN_ERROR_UNSUPPORTED where a file is not on disk. Closed
// with st_read_view_close, also after a failure; a zeroed one may be closed.
setun_status st_read_view_open(st_read_view *view, const st_directory *directory, setun_error *err);
void st_read_view_close(st_read_view *view);

// An error if a file was written to since it was opened: its bytes are then unusable.
setun_status st_read_view_check(const st_read_view *view, setun_error *err);

#endif
