// How fast the disk itself is: what streaming can reach at best on this machine, now.
#ifndef SETUN_SOURCE_DISK_H
#define SETUN_SOURCE_DISK_H

#include "source/stream.h"

// Reads about `total_bytes` of the file one after the other, from its start again where it ends, in the way that the
// options say, into as much memory as `ring_bytes` (buffers that fit a cache are faster than real ones). Nothing is
// done with the bytes. A file that was never read before, or a busy machine, gives a lower figure. *bytes_per_s: read
// from the disk, once the buffers have been filled for the first time. SETUN_ERROR_ARGUMENT for an empty file.
setun_status st_disk_measure(const st_file *file, uint64_t ring_bytes, uint64_t total_bytes,
                             const st_stream_options *options, double *bytes_per_s, setun_error *err);

#endif
