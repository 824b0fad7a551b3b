// The daemon and its callbacks.
#define _POSIX_C_SOURCE 200809L
#include "http.h"

#include "checks.h"
#include "json_out.h"
#include "models.h"
#include "routes.h"
#include "workers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECTIONS_MOST = 4096, IDLE_SECONDS = 120, HEADER_BYTES = 32 << 10 };

static connection *connection_of(struct MHD_Connection *c) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? info->socket_context : NULL;
}

// A MHD_NotifyConnectionCallback.
static void on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
  server *s = cls;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    *socket_context = info ? connections_add(s->connections, info->connect_fd, c) : NULL;
    if (!s->has_http_thread) s->http_thread = pthread_self();
    s->has_http_thread = true;
  } else {
    connections_remove(s->connections, *socket_context);
    *socket_context = NULL;
  }
}

// A MHD_RequestCompletedCallback.
static void on_completed(void *cls, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code) {
  server *s = cls;
  exchange *x = *state;
  (void)code;
  if (!x) return;
  connection_replied(s->connections, connection_of(c));
  exchange_over(x);
  *state = NULL;
}

// Paths are decoded only by routes that need it: decoding makes %2F and / the same.
static size_t keep_escapes(void *cls, struct MHD_Connection *c, char *text) {
  (void)cls;
  (void)c;
  return strlen(text);
}

static void refuse(exchange *x, const refusal *r) {
  problem p = {0};
  fail(&p, r->status, r->type, NULL, "%s", r->why);
  p.code = r->code;
  reply_problem(x, &p);
}

// A preflight request, or a request for a path's methods.
static void answer_options(exchange *x, const char *allowed) {
  st_buffer none = {0};
  exchange_header(x, "Allow", allowed);
  if (x->origin[0]) {
    exchange_header(x, "Access-Control-Allow-Methods", allowed);
    exchange_header(x, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key");
    exchange_header(x, "Access-Control-Max-Age", "600");
  }
  exchange_reply(x, MHD_HTTP_NO_CONTENT, NULL, &none);
}

static void answer_missing(exchange *x, const char *method, const char *allowed) {
  problem p = {0};
  if (allowed[0] && !strcmp(method, "OPTIONS")) {
    answer_options(x, allowed);
    return;
  }
  if (allowed[0]) {
    exchange_header(x, "Allow", allowed);
    fail(&p, MHD_HTTP_METHOD_NOT_ALLOWED, "invalid_request_error", NULL, "expected the method %s", allowed);
  } else {
    fail(&p, MHD_HTTP_NOT_FOUND, "not_found_error", NULL, "not found");
  }
  reply_problem(x, &p);
}

// Checks as soon as the headers are received; a refusal is then sent before the body arrives.
static void check(server *s, exchange *x, struct MHD_Connection *c, const char *path, const char *method,
                  const char *version) {
  char allowed[64];
  uint64_t length;
  const server_options *o = &s->options;
  refusal r = check_headers(c, version, o->body_limit, &length);
  if (!r.status) r = check_host(c, o);
  if (!r.status) r = check_origin(c, o, x->origin);
  if (r.status) {
    refuse(x, &r);
    return;
  }
  x->route = find_route(method, path, x->rest, &x->rest_length, allowed);
  if (!x->route) {
    answer_missing(x, method, allowed);
    return;
  }
  if (!(x->route->flags & ROUTE_PUBLIC)) r = check_key(c, o);
  if (r.status) refuse(x, &r);
  const char *model = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "model");
  size_t n;
  if (model && *model && !decode_part(model, x->model, &n)) strcpy(x->model, "?"); // not a model's name
}

static enum MHD_Result take_body(server *s, exchange *x, const char *bytes, size_t *n) {
  size_t most = s->options.body_limit;
  // A body of unknown length is still read for a while, so that its sender can see the reply.
  if (x->too_large) {
    if (x->rest_length > most) return MHD_NO;
    x->rest_length += *n;
  } else if (x->body.length + *n > most || !st_buffer_append(&x->body, bytes, *n)) {
    st_buffer_free(&x->body);
    x->too_large = true;
    x->rest_length = 0;
  }
  *n = 0;
  return MHD_YES;
}

void http_handle(server *s, exchange *x) {
  problem p = {0};
  int phase = atomic_load(&s->phase);
  if (x->route->flags & ROUTE_EARLY || (phase == SERVER_READY && x->route->flags & ROUTE_COMMON)) {
    x->route->handle(s, x);
    return;
  }
  if (phase == SERVER_READY) {
    server *with = models_take(s->models, x, &p);
    if (with)
      x->route->handle(with, x);
    else if (p.status)
      reply_problem(x, &p);
    return; // otherwise it waits for its model
  }
  fail(&p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL,
       phase == SERVER_LOADING ? "Loading model" : "the server is shutting down");
  p.retry_after = 1;
  reply_problem(x, &p);
}

// The request is complete.
static void dispatch(server *s, exchange *x, struct MHD_Connection *c) {
  problem p = {0};
  connection_received(s->connections, connection_of(c), x->body.length);
  if (x->too_large) {
    fail(&p, MHD_HTTP_CONTENT_TOO_LARGE, "invalid_request_error", NULL, "the body has more than %llu bytes",
         (unsigned long long)s->options.body_limit);
    reply_problem(x, &p);
  } else if (x->route->flags & ROUTE_DIRECT) {
    http_handle(s, x);
  } else {
    workers_add(s->workers, x);
  }
}

// A MHD_AccessHandlerCallback: called with the headers, then with each part of the body, then without any; and again
// after a connection was resumed.
static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *bytes, size_t *n, void **state) {
  server *s = cls;
  exchange *x = *state;
  if (!x) {
    *state = x = exchange_new(c);
    if (!x) return MHD_NO;
    connection_began(s->connections, connection_of(c), x);
    check(s, x, c, path, method, version);
    return x->phase == EXCHANGE_READY ? exchange_send(x) : MHD_YES;
  }
  if (*n) return x->phase == EXCHANGE_RECEIVING ? take_body(s, x, bytes, n) : MHD_NO;
  if (x->phase == EXCHANGE_RECEIVING) {
    x->phase = EXCHANGE_WORKING;
    dispatch(s, x, c);
  }
  return exchange_send(x);
}

// ---- the daemon ----

static setun_status fail_start(setun_error *error, setun_status code, const server_options *o, const char *why) {
  if (error) {
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s port %u: %s", o->host, (unsigned)o->port, why);
  }
  return code;
}

static void write_address(server *s, const struct sockaddr *a) {
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
  char host[INET6_ADDRSTRLEN] = "";
  bool six = a->sa_family == AF_INET6;
  const void *bytes = six ? (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr
                          : (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
  inet_ntop(a->sa_family, bytes, host, sizeof host);
  snprintf(s->address, sizeof s->address, six ? "http://[%s]:%u" : "http://%s:%u", host,
           info ? (unsigned)info->port : (unsigned)s->options.port);
}

// The libmicrohttpd's URI log callback: a request's first line arrived.
static void *on_line(void *cls, const char *uri, struct MHD_Connection *c) {
  server *s = cls;
  (void)uri;
  connection_named(s->connections, connection_of(c));
  return NULL;
}

// What libmicrohttpd refuses by itself: its status, what its page mentions, the part of the request, and what to say.
static const struct own_refusal {
  unsigned status;
  const char *mentions;
  unsigned parts;
  const char *why;
} own_refusals[] = {
    {400, "Content-Length", PART_HEAD, "Content-Length: expected a number of bytes below 2^63"},
    {413, "Content-Length", PART_HEAD, "Content-Length: expected a number of bytes below 2^63"},
    {400, "chunked", PART_BODY, "the chunked body is malformed"},
    {413, "chunk", PART_BODY, "the size of a chunk is too large"},
    {400, "", PART_LINE | PART_HEAD | PART_BODY, "the first line or a header of the request is malformed"},
    {414, "", PART_LINE, "the first line of the request is too long"},
    {431, "", PART_HEAD | PART_BODY, "the headers of the request are too long"},
    {505, "", PART_LINE, "expected HTTP/1.1"},
};

static void refuse_instead(server *s, unsigned status, const char *page) {
  char body[256], reply[512];
  size_t i = 0, n = sizeof own_refusals / sizeof *own_refusals;
  while (i < n && (own_refusals[i].status != status || !strstr(page, own_refusals[i].mentions))) i++;
  if (i == n) return;
  if (status == 413 && own_refusals[i].parts == PART_HEAD) status = 400; // as for other numbers that are none
  int length =
      snprintf(body, sizeof body,
               "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}",
               own_refusals[i].why);
  length =
      snprintf(reply, sizeof reply,
               "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
               status, MHD_get_reason_phrase_for(status), length, body);
  connections_refuse(s->connections, own_refusals[i].parts, reply, (size_t)length);
}

// libmicrohttpd 0.9.75 refuses malformed requests with pages of HTML, some with their head sent twice. It logs before
// it does so: the reply is sent here, and its own fails. Other threads' messages are of other matters.
static void on_log(void *cls, const char *format, va_list args) {
  static const char refusal_of[] = "Error processing request (HTTP response code is %u ('%s'))";
  server *s = cls;
  if (!s->has_http_thread || !pthread_equal(s->http_thread, pthread_self())) return;
  if (strncmp(format, refusal_of, sizeof refusal_of - 1)) return;
  unsigned status = va_arg(args, unsigned);
  refuse_instead(s, status, va_arg(args, const char *));
}

static struct MHD_Daemon *start_daemon(server *s, const struct addrinfo *a) {
  unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  if (a->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
  return MHD_start_daemon(flags, s->options.port, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
                          MHD_OPTION_URI_LOG_CALLBACK, on_line, s, MHD_OPTION_SOCK_ADDR, a->ai_addr,
                          MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                          MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 0,
                          MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT,
                          (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
                          MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024u, MHD_OPTION_END);
}

setun_status http_start(server *s, setun_error *error) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  const server_options *o = &s->options;
  char port[8];
  snprintf(port, sizeof port, "%u", (unsigned)o->port);
  int status = getaddrinfo(o->host, port, &hints, &found);
  if (status) return fail_start(error, SETUN_ERROR_ARGUMENT, o, gai_strerror(status));
  errno = 0;
  s->daemon = start_daemon(s, found);
  if (s->daemon) write_address(s, found->ai_addr);
  freeaddrinfo(found);
  return s->daemon ? SETUN_OK : fail_start(error, SETUN_ERROR_IO, o, errno ? strerror(errno) : "cannot listen on it");
}

void http_quiesce(server *s) {
  int fd = MHD_quiesce_daemon(s->daemon);
  if (fd >= 0) shutdown(fd, SHUT_RDWR);
}

void http_stop(server *s) {
  if (!s->daemon) return;
  connections_close(s->connections);
  MHD_stop_daemon(s->daemon);
  s->daemon = NULL;
}
