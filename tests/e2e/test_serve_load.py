#!/usr/bin/env python3
"""`setun serve` under load: 64 clients for some seconds (TEST_SECONDS), with leavers, slow readers and malformed requests among them. No
wrong byte, nothing of another client, every place free afterwards, memory bounded; and 1,000 connections, and 1,000 streams, at once."""
import os
import re
import tempfile
import time

from load import CLIENTS, LoadCase, allow_files
from serving import long_model, skip_without_server
from support import TALES, main

MANY = 1000


class LoadTest(LoadCase):
    options = ("--parallel", 8, "--queue", CLIENTS)
    prompts = ["Once there was a " + word for word in "cat dog boy king tree fish girl bird moon house river stone".split()]

    def test_many_clients(self):
        self.check_load(TALES)

    def test_a_thousand_connections(self):
        n = allow_files(MANY + 100) - 100
        before = self.server.memory()
        open_ones = [self.server.socket() for _ in range(n)]
        for s in open_ones:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(self.server.get("/health").status, 200)
        for s in open_ones:
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"))
        if not os.environ.get("SETUN_SANITIZE"):  # whose own memory counts too
            self.assertLess(self.server.memory() - before, 128 << 20)
        for s in open_ones:
            s.close()


class IdleTest(LoadCase):
    """Streams that have begun and wait for a place: nothing but pings comes."""
    options = ("--parallel", 1, "--queue", MANY + 50)

    @classmethod
    def setUpClass(cls):
        cls.files = allow_files(MANY + 200) - 200
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = long_model(cls.folder.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def count(self, name):
        return int(re.search(rb"^%s\S* (\d+)" % name, self.server.get("/metrics").body, re.M)[1])

    def test_a_thousand_idle_streams(self):
        busy = self.send({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "n": 20})
        while not self.server.get("/slots").json[0]["is_processing"]:
            time.sleep(0.01)
        before = self.server.memory()
        n = min(MANY, self.files)
        streams = [self.send({"prompt": "Once", "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True}) for _ in range(n)]
        for s in streams:
            s.settimeout(60)
            got = b""
            while b": ping\n\n" not in got:
                part = s.recv(4096)
                self.assertTrue(part, got)
                got += part
            self.assertTrue(got.startswith(b"HTTP/1.1 200"), got)
            self.assertNotIn(b"data:", got)
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertGreaterEqual(self.count(b"llamacpp:requests_deferred"), n)
        if not os.environ.get("SETUN_SANITIZE"):
            self.assertLess(self.server.memory() - before, n * (64 << 10))
        for s in [busy, *streams[:-10]]:
            s.close()
        for s in streams[-10:]:
            got = b""
            while part := s.recv(4096):
                got += part
            self.assertIn(b"[DONE]", got)
            s.close()
        self.wait_idle()
        self.assertEqual(self.count(b"llamacpp:requests_deferred"), 0)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}).status, 200)


if __name__ == "__main__":
    skip_without_server()
    main()
