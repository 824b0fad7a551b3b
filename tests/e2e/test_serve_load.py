#!/usr/bin/env python3
"""`setun serve` under load: 64 clients for some seconds (TEST_SECONDS), with leavers, slow readers and malformed requests among them. No
wrong byte, nothing of another client, every place free afterwards, memory bounded; and 1,000 connections at once."""
import json
import os
import random
import resource
import threading
import time

from serving import ServerCase, has_server
from support import SEED, TALES, TEST_SECONDS, main, setun

CLIENTS = 64
MALFORMED = (b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{{{{{",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")


class LoadTest(ServerCase):
    options = ("--parallel", 8, "--queue", CLIENTS)

    def send(self, body):
        data = json.dumps(body).encode()
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return s

    def leave(self, r, prompt):
        with self.send({"prompt": prompt, "max_tokens": 200, "stream": r.random() < 0.5}):
            time.sleep(r.random() * 0.05)

    def disturb(self, r, _):
        with self.server.socket() as s:
            s.sendall(r.choice(MALFORMED))
            time.sleep(r.random() * 0.02)

    def read_slowly(self, r, prompt):
        with self.send({"prompt": prompt, "max_tokens": r.randrange(1, 40), "temperature": 0, "stream": True}) as s:
            got = b""
            while part := s.recv(300):
                got += part
                time.sleep(0.002)
        assert b"[DONE]" in got or b" 503 " in got[:20], got

    def ask(self, r, prompt):
        body = {"prompt": prompt, "max_tokens": r.randrange(1, 40), "temperature": 0, "stream": r.random() < 0.5}
        reply = self.server.post("/v1/completions", body)
        if reply.status == 503:
            time.sleep(0.02)
            return
        assert reply.status == 200, reply.body
        text = "".join(e["choices"][0]["text"] for e in reply.events if e != "[DONE]") if body["stream"] else \
            reply.json["choices"][0]["text"]
        assert self.want[prompt].startswith(text), (prompt, text)
        self.answers += 1

    def client(self, seed, end):
        r = random.Random(seed)
        try:
            while time.monotonic() < end:
                what = r.choices((self.leave, self.disturb, self.read_slowly, self.ask), (1, 1, 1, 7))[0]
                what(r, r.choice(list(self.want)))
        except Exception as e:  # of a thread: told to the test
            self.faults.append(repr(e))

    def test_many_clients(self):
        prompts = ["Once there was a " + word for word in "cat dog boy king tree fish girl bird moon house river stone".split()]
        self.want = {p: setun("run", TALES, "-p", p, "-n", 40, "--temp", 0, "--no-echo").stdout.decode()[:-1] for p in prompts}
        self.faults, self.answers = [], 0
        end = time.monotonic() + TEST_SECONDS
        threads = [threading.Thread(target=self.client, args=(f"{SEED} {i}", end)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        time.sleep(TEST_SECONDS / 3)
        early = self.server.memory()
        for t in threads:
            t.join()
        self.assertEqual(self.faults, [])
        self.assertGreater(self.answers, CLIENTS)
        deadline = time.monotonic() + 60
        while any(s["is_processing"] for s in self.server.get("/slots").json):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        if not os.environ.get("SETUN_SANITIZE"):  # which keeps what was freed, to catch its use
            self.assertLess(self.server.memory() - early, 64 << 20)

    def test_a_thousand_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        n = min(1000, (hard if hard != resource.RLIM_INFINITY else 4096) - 100)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 100), hard))
        before = self.server.memory()
        open_ones = [self.server.socket() for _ in range(n)]
        for s in open_ones:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(self.server.get("/health").status, 200)
        for s in open_ones:
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"))
        self.assertLess(self.server.memory() - before, 128 << 20)
        for s in open_ones:
            s.close()


if __name__ == "__main__":
    if not has_server():
        print("skipped: this build has no `serve`")
        raise SystemExit(77)
    main()
