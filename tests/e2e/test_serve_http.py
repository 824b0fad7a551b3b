#!/usr/bin/env python3
"""`setun serve`: what it listens on, how it ends, and what it makes of requests that are malformed, too large, too slow,
or not meant for it. Names in brackets are the advisories that a test answers."""
import json
import os
import re
import signal
import socket
import tempfile
import threading
import time

from serving import Server, ServerCase, skip_without_server
from support import TALES, Case, main, setun


def request(line, *headers, body=b""):
    return "\r\n".join([line, *headers, "", ""]).encode() + body


class HttpTest(ServerCase):
    options = ("--body-limit", "64K")

    def test_health_and_models(self):
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        models = self.server.get("/v1/models").json
        self.assertEqual(models["object"], "list")
        self.assertEqual([(m["id"], m["object"]) for m in models["data"]], [("setun-tales-7m", "model")])
        self.assertIsInstance(models["data"][0]["created"], int)
        self.assertEqual(self.server.get("/v1/models/setun-tales-7m").json["id"], "setun-tales-7m")
        self.refused(self.server.get("/v1/models/org%2Fm"), 404)
        self.refused(self.server.get("/v1/models/%00"), 404)
        self.refused(self.server.get("/v1/models/..%2F..%2Fetc%2Fpasswd"), 404)

    def test_methods(self):
        r = self.server.request("TRACE", "/health")
        self.refused(r, 405)
        self.assertEqual(r.headers["Allow"], "GET, HEAD, OPTIONS")
        self.assertEqual(self.server.request("HEAD", "/health").status, 200)
        r = self.server.request("OPTIONS", "/health")
        self.assertEqual((r.status, r.headers["Allow"]), (204, "GET, HEAD, OPTIONS"))
        self.refused(self.server.get("/nowhere"), 404)
        self.refused(self.server.get("/health/"), 404)

    def test_keep_alive(self):
        c = self.server.connection()
        for _ in range(5):
            self.assertEqual(self.server.get("/health", connection=c).status, 200)
        self.assertEqual(self.server.request("HEAD", "/health", connection=c).body, b"")
        self.assertEqual(self.server.get("/health", connection=c).status, 200)
        two = request("GET /health HTTP/1.1", "Host: localhost") * 2
        self.assertEqual(self.server.raw(two).count(b"HTTP/1.1 200"), 2)

    def test_headers_that_may_be_read_in_two_ways(self):
        line, host = "POST /v1/models HTTP/1.1", "Host: localhost"
        for headers in (["Content-Length: 1", "Transfer-Encoding: chunked"], ["Content-Length: 1", "Content-Length: 1"],
                        ["Host: localhost"], ["Content-Length: -1"], ["Content-Length: +1"], ["Content-Length: 1x"],
                        ["Content-Length: 0x1"], ["Origin: http://a", "Origin: http://b"], ["A b: c"]):
            self.assertIn(self.server.raw_status(request(line, host, *headers, body=b"x")), (400, 501), headers)
        self.assertEqual(self.server.raw_status(request(line, host, "Transfer-Encoding: gzip")), 501)
        self.assertEqual(self.server.raw_status(request(line, host, "Content-Encoding: gzip", "Content-Length: 1", body=b"x")), 415)
        self.assertEqual(self.server.raw_status(request("GET /health HTTP/1.1")), 400)  # no Host
        self.assertEqual(self.server.raw_status(request("GET /health HTTP/1.0")), 200)
        self.assertEqual(self.server.raw_status(request("POST /v1/models HTTP/1.0", "Transfer-Encoding: chunked", body=b"0\r\n\r\n")), 400)
        close = "Connection: close"
        for target, status in (("http://localhost/health", 200), ("http://other/health", 404), ("http://localhost", 404), ("http://localhostx/health", 404)):
            self.assertEqual(self.server.raw_status(request(f"GET {target} HTTP/1.1", host, close)), status, target)

    def test_what_libmicrohttpd_would_answer_itself(self):
        """One reply with a body of JSON and its exact length, after which the connection is closed, or none."""
        line, host = "POST /v1/models HTTP/1.1", "Host: localhost"
        waiting = [self.server.socket() for _ in range(3)]  # whose headers are not complete
        for s in waiting:
            s.sendall(b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1")
        for headers in (["Content-Length: -1"], ["Content-Length: 1e3"], [f"Content-Length: {2**64}"], [f"Content-Length: {10**30}"]):
            got = self.server.raw(request(line, host, *headers, body=b"x"))
            head, _, body = got.partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 400 "), got)
            self.assertIn(b"Connection: close", head)
            self.assertEqual(len(body), int(re.search(rb"Content-Length: (\d+)", head)[1]), got)
            self.assertIn("Content-Length", json.loads(body)["error"]["message"])
        got = self.server.raw(request("GET /health HTTP/1.1"))
        self.assertEqual((got.count(b"HTTP/1.1 "), b"Host: expected" in got), (1, True), got)
        c = self.server.connection()  # on a connection that was used before
        self.assertEqual(self.server.get("/health", connection=c).status, 200)
        c.sock.sendall(request(line, host, "Content-Length: -1"))
        self.assertEqual(c.sock.recv(65536).count(b"HTTP/1.1 400 "), 1)
        for s in waiting:
            s.sendall(b"\r\n\r\nx")
            self.assertIn(b"405", s.recv(65536)[:20])
            s.close()

    def test_malformed_requests_get_an_error_of_json(self):
        line, host, chunks = "POST /v1/completions HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked"
        unused, used = self.server.socket(), self.server.connection()  # other clients
        self.server.request("POST", "/v1/models", {}, connection=used)
        self.server.get("/health", connection=used)
        for status, data in ((400, request(line, host, chunks, body=b"x\r\n")),
                             (400, request(line, host, chunks, body=b"1\r\nabc")),
                             (413, request(line, host, chunks, body=b"f" * 18 + b"\r\n")),
                             (400, request(line, host, "without a colon")),
                             (400, request(line, "without a colon", host)),
                             (400, request("GET /health HTTP/x.1", host)),
                             (431, request(line, host, "X: " + "x" * 40000)),
                             (414, request("GET /" + "x" * 40000 + " HTTP/1.1", host)),
                             (505, request("GET /health HTTP/0.9", host)), (505, request("GET /health HTTP/3.0", host))):
            self.is_one_error(self.server.raw(data), status)
        self.assertEqual(self.server.get("/health", connection=used).status, 200)
        unused.sendall(request("GET /health HTTP/1.1", host))
        self.assertIn(b"HTTP/1.1 200", unused.recv(65536))
        unused.close()

    def reply_to_the_end(self, s):
        """All bytes until the server closes the connection in order: a reset is a failure."""
        got = b""
        while part := s.recv(65536):
            got += part
        return got

    def is_one_error(self, got, status):
        head, _, body = got.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 %d " % status), (status, got))
        self.assertEqual(got.count(b"HTTP/1.1 "), 1, got)
        self.assertIn(b"Connection: close", head)
        self.assertEqual(len(body), int(re.search(rb"Content-Length: (\d+)", head)[1]), got)
        self.assertEqual(json.loads(body)["error"]["type"], "invalid_request_error")

    def test_many_malformed_requests_at_once(self):
        """Each client gets the error of its own request, and clients between them their answers."""
        line, host, chunks = "POST /v1/models HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked"
        get = "GET /health HTTP/1.1"
        kinds = [(400, request(get, host, "no colon")), (505, request("GET /health HTTP/7.0", host)),
                 (431, request(get, host, "X: " + "x" * 40000)), (414, request("GET /" + "x" * 40000 + " HTTP/1.1", host)),
                 (400, request(line, host, "Content-Length: 1x")), (400, request("POST /v1/completions HTTP/1.1", host, chunks, body=b"1\r\nab\r\n")),
                 (413, request("POST /v1/completions HTTP/1.1", host, chunks, body=b"f" * 18 + b"\r\n")), (200, request(get, host))]
        used = [self.server.connection() for _ in range(25)]  # half of the connections had a request before
        for c in used:
            self.assertEqual(self.server.get("/health", connection=c).status, 200)
        sockets = [c.sock for c in used] + [self.server.socket() for _ in range(25)]
        sent = [(s, *kinds[i % len(kinds)]) for i, s in enumerate(sockets)]
        for s, _, data in sent:
            s.sendall(data[:-5])
        for s, _, data in sent:  # the last bytes of all requests arrive together
            s.sendall(data[-5:])
        for s, status, _ in sent:
            if status == 200:  # and one that is malformed follows
                s.sendall(request(get, host, "without a colon"))
            got = self.reply_to_the_end(s)
            if status == 200:
                self.assertTrue(got.startswith(b"HTTP/1.1 200 "), got)
                status, got = 400, got[got.index(b"HTTP/1.1 400 "):]
            self.is_one_error(got, status)
            s.close()

    def test_refusals_are_not_lost_in_a_reset(self):
        """Clients that first send all of a request that is refused before its end."""
        long, line, host = "x" * 300000, "POST /v1/completions HTTP/1.1", "Host: localhost"
        for status, data in ((431, request(line, host, "X: " + long)), (414, b"GET /" + long.encode()),
                             (400, b"\x16\x03\x01 \r\n" + long.encode()),
                             (413, request(line, host, "Content-Length: 300000", body=long.encode()))):
            with self.server.socket() as s:
                s.sendall(data)
                self.is_one_error(self.reply_to_the_end(s), status)

    def test_sizes(self):  # CVE-2024-12537, CVE-2025-48956, CVE-2025-52887
        line, host = "POST /v1/models HTTP/1.1", "Host: localhost"
        for length in (65537, 2**31, 2**63, 2**64, 10**30):
            status = self.server.raw_status(request(line, host, f"Content-Length: {length}", "Expect: 100-continue"))
            self.assertIn(status, (400, 413), length)
        self.assertEqual(self.server.raw_status(request("GET /health HTTP/1.1", host, "X: " + "x" * 40000)), 431)
        before = self.server.memory()
        for _ in range(20):
            many = request("GET /health HTTP/1.1", host, *[f"X{i}: y" for i in range(2000)])
            self.assertIn(self.server.raw_status(many), (413, 431))
        self.assertIn(self.server.raw_status(request("GET /" + "x" * 40000 + " HTTP/1.1", host)), (414, 431))
        self.assertLess(self.server.memory() - before, 8 << 20)

    def test_foreign_hosts(self):  # CVE-2024-28224
        for host in ("localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST:8080", "192.168.1.2"):
            self.assertEqual(self.server.get("/health", headers={"Host": host}).status, 200, host)
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80"):
            self.refused(self.server.get("/health", headers={"Host": host}), 403, "Host")
        for host in ("[::1", "localhost:x", "", "a@localhost"):
            self.assertIn(self.server.get("/health", headers={"Host": host}).status, (400, 403), host)

    def test_origins(self):
        own = f"http://127.0.0.1:{self.server.port}"
        r = self.server.get("/health", headers={"Origin": own})
        self.assertEqual((r.status, r.headers["Access-Control-Allow-Origin"]), (200, None))
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "file://"):
            r = self.server.get("/health", headers={"Origin": origin})
            self.refused(r, 403, "Origin")
            self.assertIsNone(r.headers["Access-Control-Allow-Origin"])

    def test_a_client_that_says_nothing_keeps_nobody_waiting(self):
        idle = [self.server.socket() for _ in range(50)]
        half = [self.server.socket() for _ in range(50)]
        for s in half:
            s.sendall(b"POST /v1/models HTTP/1.1\r\nHost: local")
        self.assertEqual(self.server.get("/health").status, 200)
        for s in idle + half:
            s.close()


class KeyTest(Case):
    def test_keys(self):  # CVE-2025-59425 is about the time that the comparison takes; see checks.c
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# a comment\n\nsecond key\r\n  third  \n")
            server = Server("--api-key", "first", "--api-key-file", path, "--allow-origin", "http://page.example",
                            "--allow-host", "Name.example")
            silent = server.socket()
            silent.sendall(b"\x00\x01\r\n\r\n")  # libmicrohttpd takes this for empty lines
            begin = time.monotonic()
            try:
                for key in ("first", "second key", "third"):
                    for headers in ({"Authorization": "Bearer " + key}, {"x-api-key": key}):
                        self.assertNotEqual(server.get("/props", headers=headers).status, 401, headers)
                for key in ("firs", "first ", "First", "", "# a comment", "x" * 1000):
                    r = server.get("/props", headers={"Authorization": "Bearer " + key})
                    self.assertIn(r.status, (401, 404), key)
                self.assertEqual(server.get("/health").status, 200)
                r = server.get("/v1/models", headers={"Origin": "http://page.example", "Host": "name.example"})
                self.assertEqual(r.headers["Access-Control-Allow-Origin"], "http://page.example")
                self.assertIsNone(r.headers["Access-Control-Allow-Credentials"])
                self.assertEqual(server.get("/health", headers={"Origin": "http://other.example"}).status, 403)
                self.assertEqual(silent.recv(65536), b"")  # closed after 10 s, not 60
                self.assertLess(time.monotonic() - begin, 50)
            finally:
                server.stop()
        self.fails(1, "serve", TALES, "--api-key-file", "/nowhere", mentions=["/nowhere"])


class LifeTest(Case):
    def test_ends_in_order(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            server = Server()
            idle = server.socket()
            status, _, err = server.stop(sig)
            self.assertEqual(status, 0, err)
            idle.close()

    def test_a_port_that_is_taken(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            self.fails(1, "serve", TALES, "--port", s.getsockname()[1], mentions=[s.getsockname()[1]])
        first = Server()  # two servers of this kind do not share a port either, of which one would take requests of the other
        self.fails(1, "serve", TALES, "--port", first.port, mentions=[first.port])
        self.assertEqual(first.get("/health", headers={"Connection": "keep-alive"}).status, 200)
        first.stop()
        again = Server("--port", first.port)  # the last port counts; one that was just in use is free
        self.assertEqual(again.port, first.port)
        again.stop()
        self.fails(1, "serve", TALES, "--port", 0, "--host", "nowhere.invalid", mentions=["nowhere.invalid"])

    def test_a_model_that_is_none(self):
        result = setun("serve", "/nowhere", "--port", 0)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/nowhere", result.stderr)
        self.assertEqual(result.stdout, b"")  # no address is printed

    def test_options_are_checked(self):
        for args in (["--port", 65536], ["--parallel", 0], ["--logit-bias", "1+1"], ["--api-key", ""]):
            self.assertEqual(setun("serve", TALES, *args).returncode, 2, args)


if __name__ == "__main__":
    skip_without_server()
    main()
