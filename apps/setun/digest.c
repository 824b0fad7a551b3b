// SHA-256 of a file, or SHA-1 of a git blob.
#include "digest.h"

#include <nettle/version.h>

#include <stdio.h>
#include <string.h>

bool is_checksum(const char *text) {
  size_t n = strspn(text, "0123456789abcdef");
  return !text[n] && (n == 2 * SHA256_DIGEST_SIZE || n == 2 * SHA1_DIGEST_SIZE);
}

void digest_begin(digest *d, const char *expected, uint64_t size) {
  char header[32];
  d->is_git = strlen(expected) == 2 * SHA1_DIGEST_SIZE;
  sha256_init(&d->sha256);
  sha1_init(&d->git);
  // "blob SIZE" and a 0 byte come before the content (git's object format).
  int n = snprintf(header, sizeof header, "blob %llu", (unsigned long long)size);
  if (d->is_git) sha1_update(&d->git, (size_t)n + 1, (const uint8_t *)header);
}

void digest_add(digest *d, const void *bytes, size_t n) {
  if (d->is_git)
    sha1_update(&d->git, n, bytes);
  else
    sha256_update(&d->sha256, n, bytes);
}

void digest_end(digest *d, char text[DIGEST_TEXT]) {
  uint8_t bytes[SHA256_DIGEST_SIZE];
  size_t n = d->is_git ? SHA1_DIGEST_SIZE : SHA256_DIGEST_SIZE;
#if NETTLE_VERSION_MAJOR >= 4
  if (d->is_git)
    sha1_digest(&d->git, bytes);
  else
    sha256_digest(&d->sha256, bytes);
#else
  if (d->is_git)
    sha1_digest(&d->git, n, bytes);
  else
    sha256_digest(&d->sha256, n, bytes);
#endif
  for (size_t i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}
