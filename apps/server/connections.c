// Watching connections: clients that disconnect, deadlines from a request's first byte to its last, and pings of
// streams.
#define _GNU_SOURCE // POLLRDHUP
#define _POSIX_C_SOURCE 200809L
#include "connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef POLLRDHUP
#define POLLRDHUP 0
#endif

// Seconds. A connection that was used may be idle for as long as a request's headers may take to arrive. A new one must
// soon send a request's first line: libmicrohttpd skips lines that are empty or begin with a zero byte without a word.
static const double line_limit = 10, headers_limit = 60, body_limit = 120, ping_after = 5;
enum { WATCH_MILLISECONDS = 1000, DRAIN_MOST = 64 << 10 };

struct connection {
  connection *next, *previous;
  int fd;
  uint64_t id;     // unique
  double deadline; // time of shutdown; 0: never
  exchange *x;     // NULL: between requests
  struct MHD_Connection *handle;
  unsigned part;     // the part of a request that arrives: a PART_*; 0: none
  uint64_t consumed; // bytes of the requests before, or fewer
  bool working;      // waiting for a reply: the client's disconnection is watched
};

struct connections {
  pthread_mutex_t lock; // taken before an exchange's lock if both are taken
  pthread_t watcher;
  connection *first;
  size_t count; // list of all connections
  uint64_t last_id;
  int wake[2]; // a pipe that wakes the watcher
  bool closing, stop;
};

static void wake(connections *c) {
  ssize_t n = write(c->wake[1], "", 1); // a full pipe wakes as well
  (void)n;
}

connection *connections_add(connections *c, int fd, struct MHD_Connection *handle) {
  connection *one = calloc(1, sizeof *one);
  pthread_mutex_lock(&c->lock);
  if (one) {
    *one = (connection){.next = c->first, .fd = fd, .id = ++c->last_id, .deadline = now_seconds() + line_limit};
    one->handle = handle;
    one->part = PART_LINE;
    if (c->first) c->first->previous = one;
    c->first = one;
    c->count++;
  }
  if (!one || c->closing) shutdown(fd, SHUT_RDWR);
  pthread_mutex_unlock(&c->lock);
  return one;
}

void connections_remove(connections *c, connection *one) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  if (one->next) one->next->previous = one->previous;
  *(one->previous ? &one->previous->next : &c->first) = one->next;
  c->count--;
  pthread_mutex_unlock(&c->lock);
  free(one);
}

void connection_began(connections *c, connection *one, exchange *x) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  const union MHD_ConnectionInfo *head = MHD_get_connection_info(one->handle, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  one->consumed += head ? head->header_size : 0;
  one->x = x;
  one->part = PART_BODY;
  one->deadline = now_seconds() + body_limit;
  pthread_mutex_unlock(&c->lock);
}

void connection_received(connections *c, connection *one, uint64_t body) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  one->consumed += body;
  one->part = 0;
  one->deadline = 0;
  one->working = true;
  pthread_mutex_unlock(&c->lock);
  wake(c);
}

void connection_replied(connections *c, connection *one) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  one->x = NULL;
  one->working = false;
  one->part = PART_LINE;
  one->deadline = now_seconds() + headers_limit;
  pthread_mutex_unlock(&c->lock);
}

void connection_named(connections *c, connection *one) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  one->part = PART_HEAD;
  one->deadline = now_seconds() + headers_limit;
  pthread_mutex_unlock(&c->lock);
}

// False: all bytes that arrived belong to earlier requests.
static bool may_have_more(const connection *one) {
#if defined __linux__ && defined __GLIBC__
  struct {
    struct tcp_info info; // the part that glibc knows of
    uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
  } tcp = {0};
  socklen_t n = sizeof tcp;
  _Static_assert(sizeof tcp == 136, "as in Linux's interface");
  if (!getsockopt(one->fd, IPPROTO_TCP, TCP_INFO, &tcp, &n) && n == sizeof tcp) // an end counts as one byte
    return tcp.bytes_received - (tcp.info.tcpi_state == TCP_CLOSE_WAIT) > one->consumed;
#endif
  return true;
}

// The connection of which libmicrohttpd refuses one of these parts of a request: it does not say which. NULL: it is not
// certain.
static connection *refused_one(const connections *c, unsigned parts) {
  connection *found = NULL;
  size_t n = 0;
  for (connection *one = c->first; one; one = one->next) {
    if (MHD_get_connection_info(one->handle, MHD_CONNECTION_INFO_HTTP_STATUS)) continue; // replying
    // All headers are there and not passed on: no other connection is handled between the two.
    if (one->part == PART_HEAD && MHD_get_connection_info(one->handle, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE))
      return one;
    if (!(one->part & parts) || (one->part == PART_LINE && !may_have_more(one))) continue;
    found = one;
    n++;
  }
  return n == 1 ? found : NULL;
}

// Bytes left unread would make the system reset the connection, perhaps before the client has read the reply.
static void drain(int fd) {
  char bytes[4096];
  size_t all = 0;
  for (ssize_t n; all < DRAIN_MOST && (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) all += (size_t)n;
}

void connections_refuse(connections *c, unsigned parts, const char *reply, size_t n) {
  pthread_mutex_lock(&c->lock);
  connection *one = refused_one(c, parts);
  if (one) {
    one->part = 0;
    ssize_t sent = send(one->fd, reply, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent; // otherwise the connection is closed without a reply
    drain(one->fd);
    shutdown(one->fd, SHUT_WR);
  }
  pthread_mutex_unlock(&c->lock);
}

// ---- the watcher ----

// The watcher waits for the pipe, and for connections whose replies are being computed.
typedef struct watch {
  struct pollfd *fds;
  uint64_t *ids;
  size_t count, capacity;
} watch;

static bool make_room(watch *w, size_t n) {
  if (n <= w->capacity) return true;
  struct pollfd *fds = realloc(w->fds, 2 * n * sizeof *fds);
  if (fds) w->fds = fds;
  uint64_t *ids = realloc(w->ids, 2 * n * sizeof *ids);
  if (ids) w->ids = ids;
  if (!fds || !ids) return false;
  w->capacity = 2 * n;
  return true;
}

static void leave(connection *one) {
  one->working = false;
  shutdown(one->fd, SHUT_RDWR);
  if (one->x) exchange_abandon(one->x);
}

// Lists what to wait for; also ends late requests and pings quiet streams. False: the watcher must stop.
static bool list(connections *c, watch *w) {
  double now = now_seconds();
  pthread_mutex_lock(&c->lock);
  bool room = make_room(w, c->count + 1), go_on = !c->stop;
  w->count = 0;
  if (w->capacity) w->fds[w->count++] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
  for (connection *one = c->first; one; one = one->next) {
    if (one->deadline && now > one->deadline) {
      one->deadline = 0;
      leave(one);
    }
    if (!one->working) continue;
    if (one->x) exchange_ping(one->x, now - ping_after);
    if (!room) continue;
    w->ids[w->count] = one->id;
    w->fds[w->count++] = (struct pollfd){.fd = one->fd, .events = POLLRDHUP};
  }
  pthread_mutex_unlock(&c->lock);
  return go_on;
}

// Handles disconnected clients. A connection may have ended since, and its descriptor reused, so ids are compared.
static void look(connections *c, const watch *w) {
  pthread_mutex_lock(&c->lock);
  connection *one = c->first;
  // Both are in the same order, apart from additions in front and removals.
  for (size_t i = 1; i < w->count; i++) {
    if (!w->fds[i].revents) continue;
    while (one && one->id > w->ids[i]) one = one->next;
    if (one && one->id == w->ids[i] && one->working) leave(one);
  }
  pthread_mutex_unlock(&c->lock);
}

static void *watch_all(void *cls) {
  connections *c = cls;
  watch w = {0};
  char drained[64];
  while (list(c, &w)) {
    if (poll(w.fds, (nfds_t)w.count, WATCH_MILLISECONDS) <= 0) continue;
    if (w.count && w.fds[0].revents) {
      while (read(c->wake[0], drained, sizeof drained) > 0) continue;
    }
    look(c, &w);
  }
  free(w.fds);
  free(w.ids);
  return NULL;
}

connections *connections_new(void) {
  connections *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  if (pipe(c->wake)) {
    free(c);
    return NULL;
  }
  for (int i = 0; i < 2; i++) {
    fcntl(c->wake[i], F_SETFL, O_NONBLOCK);
    fcntl(c->wake[i], F_SETFD, FD_CLOEXEC);
  }
  pthread_mutex_init(&c->lock, NULL);
  if (!pthread_create(&c->watcher, NULL, watch_all, c)) return c;
  close(c->wake[0]);
  close(c->wake[1]);
  pthread_mutex_destroy(&c->lock);
  free(c);
  return NULL;
}

void connections_free(connections *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_mutex_unlock(&c->lock);
  wake(c);
  pthread_join(c->watcher, NULL);
  close(c->wake[0]);
  close(c->wake[1]);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void connections_close(connections *c) {
  pthread_mutex_lock(&c->lock);
  c->closing = true;
  for (connection *one = c->first; one; one = one->next) leave(one);
  pthread_mutex_unlock(&c->lock);
}

size_t connections_replying(connections *c) {
  size_t n = 0;
  pthread_mutex_lock(&c->lock);
  for (connection *one = c->first; one; one = one->next) n += one->working && one->x;
  pthread_mutex_unlock(&c->lock);
  return n;
}
