// The listening socket, the daemons of connections, and their callbacks.
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
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = 32 << 10, BACKLOG = 1024 };

static connection *connection_of(struct MHD_Connection *c) {
  return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

// A MHD_NotifyConnectionCallback.
static void on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
  connection *one = cls;
  *socket_context = one;
  if (code == MHD_CONNECTION_NOTIFY_STARTED)
    connection_opened(one, c);
  else
    connection_closed(one);
}

// A MHD_RequestCompletedCallback.
static void on_completed(void *cls, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code) {
  exchange *x = *state;
  (void)c;
  (void)code;
  if (!x) return;
  connection_replied(cls);
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

// The path of the absolute form (http://HOST/PATH), which servers must accept; its host must be that of the header.
static const char *path_of(struct MHD_Connection *c, const char *target) {
  const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
  size_t n = host ? strlen(host) : 0;
  bool absolute = n && !strncasecmp(target, "http://", 7) && !strncasecmp(target + 7, host, n) && target[7 + n] == '/';
  return absolute ? target + 7 + n : target;
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
  x->route = find_route(method, path_of(c, path), x->rest, &x->rest_length, allowed);
  if (!x->route) {
    answer_missing(x, method, allowed);
    return;
  }
  if (!(x->route->flags & ROUTE_PUBLIC)) r = check_key(c, o);
  if (r.status) refuse(x, &r);
  const char *model = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "model");
  size_t n;
  if (model && *model && !decode_part(model, x->model, &n)) strcpy(x->model, "?"); // not the name of a model
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
  connection_received(connection_of(c));
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
    *state = x = exchange_new(c, connection_of(c));
    if (!x) return MHD_NO;
    connection_began(connection_of(c), x);
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

// ---- what libmicrohttpd refuses ----

// Its status, what its page mentions, the status to send instead, and what to say.
static const struct own_refusal {
  unsigned status;
  const char *mentions;
  unsigned sent;
  const char *why;
} own_refusals[] = {
    {400, "Content-Length", 400, "Content-Length: expected a number of bytes below 2^63"},
    {413, "Content-Length", 400, "Content-Length: expected a number of bytes below 2^63"},
    {400, "chunked", 400, "the chunked body is malformed"},
    {413, "chunk", 413, "the size of a chunk is too large"},
    {400, "", 400, "the first line or a header of the request is malformed"},
    {414, "", 414, "the first line of the request is too long"},
    {431, "", 431, "the headers of the request are too long"},
    {505, "", 505, "expected HTTP/1.1"},
    {0, "", 500, "the request cannot be processed"}, // any other
};

static void refuse_instead(connection *one, unsigned status, const char *page) {
  char body[256], reply[512];
  const struct own_refusal *r = own_refusals;
  while (r->status && (r->status != status || !strstr(page, r->mentions))) r++;
  int length = snprintf(
      body, sizeof body,
      "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}", r->why);
  length =
      snprintf(reply, sizeof reply,
               "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
               r->sent, MHD_get_reason_phrase_for(r->sent), length, body);
  connection_refuse(one, reply, (size_t)length);
}

// libmicrohttpd 0.9.75 refuses malformed requests with pages of HTML, some with their head sent twice. It logs before
// it does so: the reply is sent here, and its own fails.
static void on_log(void *cls, const char *format, va_list args) {
  static const char refusal_of[] = "Error processing request (HTTP response code is %u ('%s'))";
  if (strncmp(format, refusal_of, sizeof refusal_of - 1)) return;
  unsigned status = va_arg(args, unsigned);
  refuse_instead(cls, status, va_arg(args, const char *));
}

// ---- listening ----

// The libmicrohttpd's URI log callback: a request's first line arrived.
static void *on_line(void *cls, const char *uri, struct MHD_Connection *c) {
  (void)uri;
  (void)c;
  connection_named(cls);
  return NULL;
}

// A daemon_fn.
static struct MHD_Daemon *open_daemon(void *user, connection *one) {
  server *s = user;
  unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, one,
                          MHD_OPTION_URI_LOG_CALLBACK, on_line, one, MHD_OPTION_NOTIFY_COMPLETED, on_completed, one,
                          MHD_OPTION_NOTIFY_CONNECTION, on_connection, one, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
                          NULL, MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_CONNECTION_LIMIT, 1u,
                          MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_END);
}

static setun_status fail_start(setun_error *error, setun_status code, const server_options *o, const char *why) {
  if (error) {
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s port %u: %s", o->host, (unsigned)o->port, why);
  }
  return code;
}

static void write_address(server *s, int fd) {
  struct sockaddr_storage a = {0};
  socklen_t length = sizeof a;
  char host[INET6_ADDRSTRLEN] = "";
  getsockname(fd, (struct sockaddr *)(void *)&a, &length);
  const struct sockaddr_in *four = (const void *)&a;
  const struct sockaddr_in6 *six = (const void *)&a;
  bool is_six = a.ss_family == AF_INET6;
  inet_ntop(a.ss_family, is_six ? (const void *)&six->sin6_addr : &four->sin_addr, host, sizeof host);
  snprintf(s->address, sizeof s->address, is_six ? "http://[%s]:%u" : "http://%s:%u", host,
           (unsigned)ntohs(is_six ? six->sin6_port : four->sin_port));
}

// -1: errno says why.
static int listen_on(const struct addrinfo *a) {
  const int yes = 1;
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG)) return fd;
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

// A connection takes two descriptors: as many are permitted as may be.
static void raise_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

setun_status http_start(server *s, setun_error *error) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  const server_options *o = &s->options;
  char port[8];
  snprintf(port, sizeof port, "%u", (unsigned)o->port);
  int status = getaddrinfo(o->host, port, &hints, &found);
  if (status) return fail_start(error, SETUN_ERROR_ARGUMENT, o, gai_strerror(status));
  int fd = listen_on(found), why = errno;
  freeaddrinfo(found);
  if (fd < 0) return fail_start(error, SETUN_ERROR_IO, o, strerror(why));
  write_address(s, fd);
  raise_descriptors();
  s->connections = connections_new(fd, open_daemon, s);
  return s->connections ? SETUN_OK : fail_start(error, SETUN_ERROR_MEMORY, o, "out of memory for connections");
}
