// The thread that serves all connections: it accepts them, runs their daemons, and watches for clients that disconnect,
// deadlines from a request's first byte to its last, and streams that need pings.
#define _GNU_SOURCE // accept4
#define _POSIX_C_SOURCE 200809L
#include "connections.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MOST = 4096, EVENTS_MOST = 64, ACCEPTS_MOST = 64, LOOK_MILLISECONDS = 1000 };

// Seconds. A connection that was used may be idle for as long as a request's headers may take to arrive. A new one must
// soon send a request's first line: libmicrohttpd silently skips lines that are empty or begin with a zero byte.
static const double line_limit = 10, headers_limit = 60, body_limit = 120, ping_after = 5, linger_limit = 5;

// What the thread waits for.
typedef struct source {
  enum { SOURCE_LISTENER, SOURCE_WAKE, SOURCE_DAEMON, SOURCE_CLIENT } kind;
  connection *one;
} source;

struct connection {
  connections *all;
  connection *next, *previous;
  connection *next_ready;
  struct MHD_Daemon *daemon; // NULL: libmicrohttpd has closed it
  struct MHD_Connection *handle;
  int fd; // the client; without a daemon a duplicate, or -1
  source input, client;
  double deadline; // time of shutdown; 0: never
  exchange *x;     // NULL: between requests
  bool working;    // waiting for a reply, or sending it: the client's disconnection is watched
  bool closed;
  bool ready; // to be run; with the lock
};

struct connections {
  daemon_fn *open;
  void *user;
  pthread_t thread;
  int events, wake, listener; // epoll, eventfd, the listening socket or -1
  source for_wake, for_listener;
  bool listening;
  connection *first, *over; // all; those to be freed when neither an event nor a list can mention them
  size_t count;
  atomic_size_t replying;
  atomic_bool quiesced, stop;
  pthread_mutex_t lock; // protects `ready`; taken after an exchange's lock if both are taken
  connection *ready;    // connections to be run: resumed ones, and those with input left
};

static bool watch(connections *c, int fd, uint32_t events, source *s) {
  struct epoll_event e = {.events = events, .data.ptr = s};
  return !epoll_ctl(c->events, EPOLL_CTL_ADD, fd, &e);
}

static void unwatch(connections *c, int fd) {
  epoll_ctl(c->events, EPOLL_CTL_DEL, fd, NULL);
}

void connections_wake(connections *c) {
  const uint64_t one = 1;
  if (!c) return;
  ssize_t n = write(c->wake, &one, sizeof one); // a full counter wakes as well
  (void)n;
}

connections *connection_ready(connection *one) {
  connections *c = one->all;
  pthread_mutex_lock(&c->lock);
  bool first = !c->ready && !one->ready;
  if (!one->ready) {
    one->next_ready = c->ready;
    c->ready = one;
  }
  one->ready = true;
  pthread_mutex_unlock(&c->lock);
  return first ? c : NULL;
}

static bool is_ready(connection *one) {
  pthread_mutex_lock(&one->all->lock);
  bool ready = one->ready;
  pthread_mutex_unlock(&one->all->lock);
  return ready;
}

// ---- the progress of a request ----

void connection_opened(connection *one, struct MHD_Connection *handle) {
  one->handle = handle;
}

// The client's socket outlives the daemon, see linger.
void connection_closed(connection *one) {
  one->closed = true;
  one->fd = fcntl(one->fd, F_DUPFD_CLOEXEC, 0);
}

void connection_named(connection *one) {
  one->deadline = now_seconds() + headers_limit;
}

void connection_began(connection *one, exchange *x) {
  one->x = x;
  one->deadline = now_seconds() + body_limit;
}

void connection_received(connection *one) {
  one->deadline = 0;
  one->working = true;
  atomic_fetch_add(&one->all->replying, 1);
  watch(one->all, one->fd, EPOLLRDHUP, &one->client);
}

static void stop_working(connection *one) {
  if (!one->working) return;
  one->working = false;
  atomic_fetch_sub(&one->all->replying, 1);
  unwatch(one->all, one->fd);
}

void connection_replied(connection *one) {
  stop_working(one);
  one->x = NULL;
  one->deadline = now_seconds() + headers_limit;
}

void connection_refuse(connection *one, const char *reply, size_t n) {
  if (MHD_get_connection_info(one->handle, MHD_CONNECTION_INFO_HTTP_STATUS)) return; // replying already
  ssize_t sent = send(one->fd, reply, n, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)sent; // otherwise the connection is closed without a reply
  shutdown(one->fd, SHUT_WR);
}

// The client has disconnected, or must be.
static void leave(connection *one) {
  exchange *x = one->x;
  stop_working(one);
  shutdown(one->fd, SHUT_RDWR);
  if (x) exchange_abandon(x);
}

// ---- the end of a connection ----

static void remove_one(connection *one) {
  connections *c = one->all;
  if (one->fd >= 0) close(one->fd);
  if (one->next) one->next->previous = one->previous;
  *(one->previous ? &one->previous->next : &c->first) = one->next;
  c->count--;
  one->fd = -1;
  one->next = c->over;
  c->over = one;
}

// Reads what the client still sends, in parts so that others have their turn. False: it has closed the connection.
static bool discard(connection *one) {
  char bytes[16 << 10];
  for (int i = 0; i < 4; i++) {
    ssize_t n = recv(one->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
  }
  return true;
}

// Input left unread would make the system reset the connection, perhaps before the client has read the reply, so it is
// read for a while.
static void linger(connection *one) {
  MHD_stop_daemon(one->daemon);
  one->daemon = NULL;
  if (one->fd >= 0) {
    one->deadline = now_seconds() + linger_limit;
    shutdown(one->fd, SHUT_WR);
    if (discard(one) && watch(one->all, one->fd, EPOLLIN, &one->client)) return;
  }
  remove_one(one);
}

static void run(connection *one) {
  MHD_UNSIGNED_LONG_LONG wait;
  if (!one->daemon) return;
  MHD_run(one->daemon);
  if (one->closed) {
    linger(one);
  } else if (!one->handle) { // libmicrohttpd did not accept it, and has closed the socket
    MHD_stop_daemon(one->daemon);
    one->daemon = NULL;
    one->fd = -1;
    remove_one(one);
  } else if (MHD_get_timeout(one->daemon, &wait) == MHD_YES && !wait) {
    connection_ready(one); // after others had their turn
  }
}

// ---- accepting ----

static bool add(connections *c, int fd, const struct sockaddr *address, socklen_t length) {
  connection *one = calloc(1, sizeof *one);
  struct MHD_Daemon *daemon = one ? c->open(c->user, one) : NULL;
  const union MHD_DaemonInfo *info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
  if (!info || !watch(c, info->epoll_fd, EPOLLIN, &one->input)) {
    if (daemon) MHD_stop_daemon(daemon);
    free(one);
    close(fd);
    return false;
  }
  *one = (connection){.all = c, .next = c->first, .daemon = daemon, .fd = fd, .deadline = now_seconds() + line_limit};
  one->input = (source){SOURCE_DAEMON, one};
  one->client = (source){SOURCE_CLIENT, one};
  if (c->first) c->first->previous = one;
  c->first = one;
  c->count++;
  MHD_add_connection(daemon, fd, address, length); // if it fails, there will be no handle
  run(one);
  return true;
}

static void listen_again(connections *c) {
  if (c->listening || c->listener < 0 || c->count >= CONNECTIONS_MOST) return;
  c->listening = watch(c, c->listener, EPOLLIN, &c->for_listener);
}

// Without memory or descriptors the next client waits until a connection ends, or for the next look.
static void accept_some(connections *c) {
  bool room = true;
  for (int i = 0; i < ACCEPTS_MOST && room; i++) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = accept4(c->listener, (struct sockaddr *)(void *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
    room =
        fd >= 0 && add(c, fd, (const struct sockaddr *)(const void *)&address, length) && c->count < CONNECTIONS_MOST;
  }
  if (room) return;
  unwatch(c, c->listener);
  c->listening = false;
}

static void stop_listening(connections *c) {
  if (c->listener >= 0) close(c->listener);
  c->listener = -1;
  c->listening = false;
}

// ---- the thread ----

static void handle(connections *c, const source *s) {
  connection *one = s->one;
  uint64_t count;
  if (s->kind == SOURCE_WAKE) {
    ssize_t n = read(c->wake, &count, sizeof count);
    (void)n;
    if (atomic_load(&c->quiesced)) stop_listening(c);
  } else if (s->kind == SOURCE_LISTENER) {
    if (c->listener >= 0) accept_some(c);
  } else if (s->kind == SOURCE_DAEMON) {
    run(one);
  } else if (one->working) {
    leave(one);
  } else if (!one->daemon && one->fd >= 0 && !discard(one)) {
    remove_one(one);
  }
}

static bool any_ready(connections *c) {
  pthread_mutex_lock(&c->lock);
  bool any = c->ready != NULL;
  pthread_mutex_unlock(&c->lock);
  return any;
}

static void run_ready(connections *c) {
  pthread_mutex_lock(&c->lock);
  connection *one = c->ready;
  c->ready = NULL;
  while (one) {
    connection *next = one->next_ready;
    one->ready = false;
    pthread_mutex_unlock(&c->lock);
    run(one);
    pthread_mutex_lock(&c->lock);
    one = next;
  }
  pthread_mutex_unlock(&c->lock);
}

// Ends late requests, and pings quiet streams.
static void look(connections *c, double now) {
  for (connection *one = c->first, *next; one; one = next) {
    next = one->next;
    bool late = one->deadline && now > one->deadline;
    if (late && !one->daemon) {
      remove_one(one);
    } else if (late) {
      one->deadline = 0;
      leave(one);
    } else if (one->working) {
      exchange_ping(one->x, now - ping_after);
    }
  }
}

static void free_over(connections *c) {
  for (connection **at = &c->over; *at;) {
    connection *one = *at;
    if (is_ready(one)) {
      at = &one->next;
    } else {
      *at = one->next;
      free(one);
    }
  }
}

static void close_all(connections *c) {
  stop_listening(c);
  for (connection *one = c->first, *next; one; one = next) {
    next = one->next;
    if (!one->daemon) continue;
    leave(one);
    run(one); // a suspended connection must be resumed before its daemon stops
    if (!one->daemon) continue;
    MHD_stop_daemon(one->daemon);
    one->daemon = NULL;
    if (!one->closed) one->fd = -1;
  }
  while (c->first) remove_one(c->first);
  run_ready(c); // empties the list
  free_over(c);
}

static void *serve(void *cls) {
  connections *c = cls;
  struct epoll_event events[EVENTS_MOST];
  for (double next_look = 0; !atomic_load(&c->stop);) {
    int n = epoll_wait(c->events, events, EVENTS_MOST, any_ready(c) ? 0 : LOOK_MILLISECONDS);
    for (int i = 0; i < n; i++) handle(c, events[i].data.ptr);
    run_ready(c);
    double now = now_seconds();
    bool due = now >= next_look;
    if (due) look(c, now);
    if (due) next_look = now + LOOK_MILLISECONDS * 1e-3;
    if (due || c->over) listen_again(c);
    free_over(c);
  }
  close_all(c);
  return NULL;
}

// ---- the beginning and the end ----

static void free_all(connections *c) {
  stop_listening(c);
  if (c->events >= 0) close(c->events);
  if (c->wake >= 0) close(c->wake);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

connections *connections_new(int listener, daemon_fn *open, void *user) {
  connections *c = calloc(1, sizeof *c);
  if (!c) {
    close(listener);
    return NULL;
  }
  *c = (connections){.open = open, .user = user, .listener = listener};
  pthread_mutex_init(&c->lock, NULL);
  c->events = epoll_create1(EPOLL_CLOEXEC);
  c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  c->for_wake.kind = SOURCE_WAKE;
  c->for_listener.kind = SOURCE_LISTENER;
  listen_again(c);
  if (c->wake >= 0 && c->listening && watch(c, c->wake, EPOLLIN, &c->for_wake) &&
      !pthread_create(&c->thread, NULL, serve, c))
    return c;
  free_all(c);
  return NULL;
}

void connections_quiesce(connections *c) {
  atomic_store(&c->quiesced, true);
  connections_wake(c);
}

size_t connections_replying(const connections *c) {
  return c ? atomic_load(&c->replying) : 0;
}

void connections_stop(connections *c) {
  if (!c) return;
  atomic_store(&c->stop, true);
  connections_wake(c);
  pthread_join(c->thread, NULL);
}

void connections_free(connections *c) {
  if (c) free_all(c);
}
