// Checksums of files as the hub states them, computed by Nettle.
#ifndef SETUN_APP_DIGEST_H
#define SETUN_APP_DIGEST_H

#include <nettle/sha1.h>
#include <nettle/sha2.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_TEXT = 2 * SHA256_DIGEST_SIZE + 1 };

typedef struct digest {
  struct sha256_ctx sha256; // for 64 hexadecimal digits
  struct sha1_ctx git;      // for 40: of a git blob, which includes its size
  bool is_git;
} digest;

// Whether a text is such a checksum: 64 or 40 lower-case hexadecimal digits.
bool is_checksum(const char *text);
// Starts the checksum of a file of this size, for comparison with `expected`.
void digest_begin(digest *d, const char *expected, uint64_t size);
void digest_add(digest *d, const void *bytes, size_t n);
// The checksum of the added bytes, as text.
void digest_end(digest *d, char text[DIGEST_TEXT]);

#endif
