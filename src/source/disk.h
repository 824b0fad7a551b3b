// The disk's own speed: the best that streaming can reach on this machine now.
#ifndef SETUN_SOURCE_DISK_H
#define SETUN_SOURCE_DISK_H

#include "source/stream.h"

// Reads about `total_bytes` of the file sequentially, wrapping around at its end, as the options say, into `ring_bytes`
// of memory (buffers that fit into a cache would be unrealistically fast). The bytes are not used. A file that was
// never read before, or a busy machine, results in a lower figure. *bytes_per_s: speed of reading from the disk, after
// the buffers have been filled once. SETUN_ERROR_ARGUMENT for an empty file.
setun_status st_disk_measure(const st_file *file, uint64_t ring_bytes, uint64_t total_bytes,
                             const st_stream_options *options, double *bytes_per_s, setun_error *err);

#endif
