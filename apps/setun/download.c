// Files are received next to their final places, checked, and renamed.
#define _POSIX_C_SOURCE 200809L
#include "download.h"

#include "digest.h"
#include "folder_lock.h"
#include "interrupt.h"
#include "output.h"
#include "state.h"
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct item {
  const model_file *file;
  char *place, *partial; // the paths of the file, and of its received part
  uint64_t at;           // bytes of the part
  bool there;            // the file is complete already
  // While it is received:
  int fd;
  digest digest;
  uint64_t skip; // bytes received again, to be skipped
} item;

struct download {
  const hub *hub;
  const char *repository, *revision, *folder;
  folder_lock lock;
  item *items;
  size_t count;
  // Shown on a terminal:
  uint64_t done, all; // bytes of earlier files, and of all files to receive
  double start, last;
  uint64_t begun; // bytes present at the start
  bool shown;
};

download *download_open(const hub *h, const char *repository, const char *revision, const char *folder) {
  download *d = calloc(1, sizeof *d);
  if (!d) {
    failure("out of memory for a download");
    return NULL;
  }
  *d = (download){.hub = h, .repository = repository, .revision = revision, .folder = folder};
  if (lock_folder(folder, &d->lock)) return d;
  download_free(d);
  return NULL;
}

void download_free(download *d) {
  if (!d) return;
  for (size_t i = 0; i < d->count; i++) {
    free(d->items[i].place);
    free(d->items[i].partial);
  }
  free(d->items);
  unlock_folder(&d->lock, false);
  free(d);
}

// ---- progress ----

static void clear_line(download *d) {
  if (d->shown) fprintf(stderr, "\r%*s\r", 60, "");
  d->shown = false;
}

// "43%  1.2 GiB of 2.8 GiB, 35.0 MiB/s".
static void show(download *d, uint64_t at) {
  char have[32], all[32], rate[32];
  double now = seconds_now(), passed = now - d->start;
  if (now - d->last < 0.2 || passed < 0.5 || !isatty(STDERR_FILENO) || !d->all) return;
  uint64_t total = d->done + at;
  uint64_t speed = total > d->begun ? (uint64_t)((double)(total - d->begun) / passed) : 0;
  char line[96];
  snprintf(line, sizeof line, "%3.0f%%  %s of %s, %s/s", 100 * (double)total / (double)d->all,
           format_bytes(total, have), format_bytes(d->all, all), format_bytes(speed, rate));
  fprintf(stderr, "\r%-60.60s", line);
  fflush(stderr);
  d->shown = true;
  d->last = now;
}

// ---- existing files ----

static bool fail_file(const char *path, const char *what) {
  failure("%s: cannot be %s: %s", path, what, reason_of(errno));
  return false;
}

// Adds the first n bytes of a file to a checksum. False after a report or a signal.
static bool digest_file(download *d, int fd, const char *path, uint64_t n, digest *sum) {
  enum { PIECE = 1 << 20 };
  char *piece = malloc(PIECE);
  bool fine = piece || !failure("out of memory for %d bytes", PIECE);
  for (uint64_t at = 0; fine && at < n;) {
    ssize_t got = pread(fd, piece, n - at < PIECE ? (size_t)(n - at) : PIECE, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO;
    fine = got > 0 ? !interrupt_status() : fail_file(path, "read");
    if (!fine) break;
    digest_add(sum, piece, (size_t)got);
    at += (uint64_t)got;
    show(d, at);
  }
  free(piece);
  return fine;
}

// Whether the file is in its place, complete and with this checksum.
static bool look_at_place(download *d, item *i) {
  struct stat st;
  char found[DIGEST_TEXT];
  digest sum;
  int fd = open(i->place, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || fail_file(i->place, "read");
  bool fine = true;
  if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == i->file->size) {
    digest_begin(&sum, i->file->checksum, i->file->size);
    d->all = i->file->size;
    d->start = seconds_now();
    fine = digest_file(d, fd, i->place, i->file->size, &sum);
    clear_line(d);
    digest_end(&sum, found);
    i->there = fine && strcmp(found, i->file->checksum) == 0;
  }
  close(fd);
  return fine;
}

// The path of the received part: hidden, so that it differs from all of the hub's names, and specific to a checksum.
static char *partial_path(const char *place, const char *checksum) {
  const char *slash = strrchr(place, '/'), *name = slash ? slash + 1 : place;
  size_t size = strlen(place) + sizeof "..partial" + 17;
  char *path = malloc(size);
  if (path)
    snprintf(path, size, "%.*s.%s.%.16s.partial", (int)(name - place), place, name, checksum);
  else
    failure("out of memory for a path");
  return path;
}

bool download_add(download *d, const model_file *file) {
  struct stat st;
  item *grown = realloc(d->items, (d->count + 1) * sizeof *grown);
  if (!grown) return !failure("out of memory for the names of %zu files", d->count);
  d->items = grown;
  item *i = &grown[d->count++];
  *i = (item){.file = file, .place = join_path(d->folder, file->path), .fd = -1};
  if (!i->place || !(i->partial = partial_path(i->place, file->checksum))) return false;
  if (!make_folders(i->place, 0777)) return fail_file(i->place, "made");
  if (!look_at_place(d, i)) return false;
  if (i->there) {
    note("%s exists already, with the hub's checksum", i->place);
  } else if (!lstat(i->partial, &st) && S_ISREG(st.st_mode)) {
    i->at = (uint64_t)st.st_size;
  }
  return true;
}

// ---- receiving ----

// Starts the file again.
static bool start_over(item *i) {
  i->at = i->skip = 0;
  digest_begin(&i->digest, i->file->checksum, i->file->size);
  return ftruncate(i->fd, 0) == 0 || fail_file(i->partial, "written");
}

typedef struct receiving {
  download *d;
  item *i;
} receiving;

static bool begin(transfer *t, const reply *r) {
  item *i = ((receiving *)t->user)->i;
  const char *expected = i->file->checksum;
  if (is_checksum(r->checksum) && strlen(r->checksum) == strlen(expected) && strcmp(r->checksum, expected)) {
    return !failure(
        "%s: the hub's file differs from its list: expected checksum %s, found %s; please run the command again",
        t->name, expected, r->checksum);
  }
  if (r->total != UINT64_MAX && r->total != i->file->size) {
    return !failure("%s: expected the %llu bytes of the hub's list, found a file of %llu", t->name,
                    (unsigned long long)i->file->size, (unsigned long long)r->total);
  }
  if (r->status == 206 && r->from != t->at) {
    return !failure("%s: expected the bytes from %llu on, found other bytes", t->name, (unsigned long long)t->at);
  }
  i->skip = 0;
  if (r->status == 200 && t->at) {
    bool other = *t->etag && strcmp(t->etag, r->etag);
    if (other && !start_over(i)) return false;
    i->skip = i->at; // a server that sends the whole file again
  }
  t->at = i->at;
  snprintf(t->etag, sizeof t->etag, "%s", r->etag);
  return true;
}

static bool write_bytes(transfer *t, const char *bytes, size_t n) {
  item *i = ((receiving *)t->user)->i;
  size_t passed = i->skip < n ? (size_t)i->skip : n;
  i->skip -= passed;
  bytes += passed;
  n -= passed;
  if (n > i->file->size - i->at) {
    return !failure("%s: the hub sends more than the %llu bytes in its list", t->name,
                    (unsigned long long)i->file->size);
  }
  digest_add(&i->digest, bytes, n);
  while (n) {
    ssize_t put = pwrite(i->fd, bytes, n, (off_t)i->at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return fail_file(i->partial, "written");
    bytes += put;
    n -= (size_t)put;
    i->at += (uint64_t)put;
  }
  t->at = i->at;
  return true;
}

static bool is_whole(const transfer *t) {
  const item *i = ((const receiving *)t->user)->i;
  return i->at == i->file->size;
}

static void show_transfer(transfer *t) {
  receiving *q = t->user;
  show(q->d, q->i->at);
}

// Receives the missing part of the file into the open one. False after a report or a signal.
static bool receive_rest(download *d, item *i) {
  receiving q = {d, i};
  reply r;
  if (i->at == i->file->size) return true;
  char *url = hub_url(d->hub, d->repository, d->revision, i->file->path);
  transfer t = {.url = url,
                .name = i->file->path,
                .at = i->at,
                .begin = begin,
                .write = write_bytes,
                .whole = is_whole,
                .show = show_transfer,
                .user = &q};
  bool fine = url && client_get(d->hub->client, &t, &r);
  clear_line(d);
  free(url);
  return fine;
}

// Receives a file and compares its checksum. The existing part may be damaged: the file is then received again.
static bool receive(download *d, item *i) {
  char found[DIGEST_TEXT];
  for (;;) {
    bool resumed = i->at > 0;
    digest_begin(&i->digest, i->file->checksum, i->file->size);
    if (i->at > i->file->size && !start_over(i)) return false;
    if (!digest_file(d, i->fd, i->partial, i->at, &i->digest) || !receive_rest(d, i)) return false;
    digest_end(&i->digest, found);
    if (strcmp(found, i->file->checksum) == 0) return fsync(i->fd) == 0 || fail_file(i->partial, "written");
    if (!resumed) break;
    note("%s: the checksum of the file received in parts is wrong; receiving all of it again", i->file->path);
    if (!start_over(i)) return false;
  }
  unlink(i->partial);
  return !failure("%s: expected checksum %s, found %s", i->file->path, i->file->checksum, found);
}

// Removes received parts of earlier versions: the same name with another checksum.
static void remove_others(const item *i) {
  const char *slash = strrchr(i->partial, '/'), *own = slash + 1;
  size_t shared = strlen(own) - strlen("0123456789abcdef.partial");
  char *folder = strndup(i->partial, (size_t)(slash - i->partial));
  DIR *entries = folder ? opendir(folder) : NULL;
  for (struct dirent *e; entries && (e = readdir(entries));) {
    if (strlen(e->d_name) != strlen(own) || strncmp(e->d_name, own, shared) || !strcmp(e->d_name, own)) continue;
    if (strcmp(e->d_name + strlen(own) - 8, ".partial")) continue;
    char *path = join_path(folder, e->d_name);
    if (path) unlink(path);
    free(path);
  }
  if (entries) closedir(entries);
  free(folder);
}

static bool has_room(const download *d, uint64_t missing) {
  struct statvfs fs;
  char wanted[32], there[32];
  if (statvfs(d->folder, &fs)) return true; // writing says what is wrong
  uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
  if (missing <= room) return true;
  failure("%s: expected room for %s, found %s", d->folder, format_bytes(missing, wanted), format_bytes(room, there));
  return false;
}

bool download_receive(download *d) {
  uint64_t missing = 0;
  d->all = d->begun = d->done = 0;
  for (size_t k = 0; k < d->count; k++) {
    const item *i = &d->items[k];
    if (i->there) continue;
    remove_others(i);
    uint64_t at = i->at < i->file->size ? i->at : i->file->size;
    missing += i->file->size - at;
    d->begun += at;
    d->all += i->file->size;
  }
  if (!has_room(d, missing)) return false;
  d->start = seconds_now();
  for (size_t k = 0; k < d->count; k++) {
    item *i = &d->items[k];
    char size[32], before[32];
    if (i->there) continue;
    note(i->at ? "%s (%s), %s received already" : "%s (%s)", i->file->path, format_bytes(i->file->size, size),
         format_bytes(i->at, before));
    i->fd = open(i->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (i->fd < 0) return fail_file(i->partial, "written");
    bool fine = receive(d, i);
    if (close(i->fd) && fine) fine = fail_file(i->partial, "written");
    i->fd = -1;
    if (!fine) return false;
    d->done += i->file->size;
  }
  return true;
}

// ---- places ----

static void sync_folder(const char *folder) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return; // the files themselves are on disk
  fsync(fd);
  close(fd);
}

bool download_finish(download *d, const model_file *last) {
  for (int turn = 0; turn < 2; turn++) {
    for (size_t k = 0; k < d->count; k++) {
      item *i = &d->items[k];
      if (i->there || (i->file == last) != turn) continue;
      if (rename(i->partial, i->place)) return fail_file(i->place, "written");
    }
    sync_folder(d->folder);
  }
  return true;
}
