#!/usr/bin/env python3
"""`setun serve --models`: models by name, loaded when they are asked for, and unloaded where another one needs the room."""
import atexit
import functools
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import unittest
import unittest.mock

from serving import Server, ServerCase, has_server
from support import TALES, Case, main, setun

TEXT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


@functools.cache
def store():
    """Three models: org/a is the tales model, org/b:Q another container of it, and tiny a synthetic one; and an invalid one."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    shutil.copytree(TALES, os.path.join(folder, "org", "a"))
    os.mkdir(os.path.join(folder, "org", "b"))
    for args in (("convert", TALES, "--to", "tq2_0", "-o", os.path.join(folder, "org", "b", "tales-TQ2_0.gguf")),
                 ("bench", "--synthetic", "tiny", "-p", "1", "-n", "1", "-r", "1", "--save", os.path.join(folder, "tiny.gguf"))):
        result = setun(*args)
        if result.returncode:
            raise AssertionError(result.stderr.decode())
    with open(os.path.join(folder, "bad.gguf"), "wb") as file:
        file.write(b"GGUF")
    return folder


class ModelsCase(ServerCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        if not has_server():
            raise unittest.SkipTest("this build has no `serve` (SETUN_SERVER is OFF)")
        cls.folder = store()
        cls.server = Server("--models", cls.folder, *cls.options, model=None)

    def ask(self, model, **more):
        return self.server.post("/v1/completions", {"model": model, **TEXT, **more})

    def loaded(self):
        return [m["id"] for m in self.server.get("/v1/models").json["data"] if m["status"]["value"] == "loaded"]


class NamesTest(ModelsCase):
    options = ("--alias", "gpt-4o=org/a", "--alias", "small=org/a", "--alias", "x=tiny", "-n", "8")

    def test_names(self):
        models = {m["id"]: m for m in self.server.get("/v1/models").json["data"]}
        self.assertEqual(sorted(models), ["bad", "org/a", "org/b", "tiny"])
        self.assertEqual(models["org/a"]["aliases"], ["gpt-4o", "small"])
        self.assertEqual(self.server.get("/v1/models/org%2Fb").json["id"], "org/b")
        self.assertEqual(self.server.get("/v1/models/gpt-4o").json["id"], "org/a")
        for r in (self.ask("nothing"), self.server.get("/v1/models/nothing"), self.ask("../../etc/passwd"),
                  self.server.get("/props?model=nothing"), self.server.get("/props?model=%00")):
            self.refused(r, 404, type="invalid_request_error")
            self.assertEqual((r.error["code"], r.error["param"]), ("model_not_found", "model"))
        self.refused(self.ask(7), 400, "expected a string")
        self.refused(self.server.post("/v1/completions", "{"), 400)

    def test_answers(self):
        expected = setun("run", TALES, "-p", TEXT["prompt"], "-n", "8", "--temp", "0", "--no-echo").stdout.decode()
        for name in ("org/a", "org/b", "gpt-4o", "org/a"):
            r = self.ask(name)
            self.assertEqual((r.status, r.json["choices"][0]["text"].strip()), (200, expected.strip()), name)
            self.assertEqual(r.json["model"], "org/b" if name == "org/b" else "org/a")
        self.assertEqual(self.loaded(), ["org/a", "org/b"])
        # Without a name: the one that was last asked for. By the address, where the body has none.
        self.assertEqual(self.server.post("/v1/completions", TEXT).json["model"], "org/a")
        self.assertEqual(self.server.post("/v1/completions?model=org/b", TEXT).json["model"], "org/b")
        self.assertEqual(self.server.post("/v1/completions?model=org%2Fb", {**TEXT, "model": "small"}).json["model"], "org/a")
        r = self.server.post("/tokenize?model=tiny", {"content": "a"})
        self.assertEqual(r.status, 200, r.body)
        self.assertIn("tiny", self.loaded())
        r = self.ask("bad")
        self.refused(r, 500, "bad", "could not be loaded: bad.gguf: ")
        self.assertEqual(self.ask("org/a").status, 200)

    def test_of_each(self):
        for model in ("org/a", "tiny"):
            props = self.server.get(f"/props?model={model}").json
            self.assertEqual(props["model_alias"], model)
            self.assertEqual(self.server.get(f"/slots?model={model}").json[0]["n_ctx"],
                             props["default_generation_settings"]["n_ctx"])
            shown = self.server.post("/api/show", {"name": model}).json
            self.assertIn("completion", shown["capabilities"])
        self.assertNotEqual(self.server.get("/props?model=tiny").json["default_generation_settings"]["n_ctx"],
                            self.server.get("/props?model=org/a").json["default_generation_settings"]["n_ctx"])
        tags = {m["name"]: m for m in self.server.get("/api/tags").json["models"]}
        self.assertEqual(sorted(tags), ["bad", "org/a", "org/b", "tiny"])
        metrics = self.server.get("/metrics").body.decode()
        self.assertIn('llamacpp:prompt_tokens_total{model="org/a"}', metrics)
        self.assertIn('llamacpp:prompt_tokens_total{model="tiny"}', metrics)
        self.assertEqual(metrics.count("# TYPE llamacpp:prompt_tokens_total"), 1)
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})

    def test_at_once(self):
        """Many clients request models that are not loaded yet, and some leave."""
        found = []
        for _ in range(4):
            with self.server.socket() as s:
                body = json.dumps({"model": "tiny", **TEXT}).encode()
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        threads = [threading.Thread(target=lambda name=name: found.append((name, self.ask(name).status)))
                   for name in ["org/a", "org/b", "tiny"] * 8]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([status for _, status in found], [200] * 24)


class RoomTest(ModelsCase):
    """Caches of 64 sequences: the budget does for one model, and not for two."""
    room = 142 << 20  # in addition to the process's memory without a model, which is larger under sanitizers

    @classmethod
    def setUpClass(cls):
        if not has_server():
            raise unittest.SkipTest("this build has no `serve` (SETUN_SERVER is OFF)")
        empty = Server("--models", store(), model=None)
        cls.budget = empty.memory() + cls.room
        empty.stop()
        cls.options = ("--parallel", "64", "--memory", cls.budget, "--threads", "1", "--ctx", "256")
        with unittest.mock.patch.dict(os.environ, {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0"
                                                   ":thread_local_quarantine_size_kb=0"}):  # freed memory is returned
            super().setUpClass()

    def test_one_at_a_time(self):
        expected = self.ask("org/a").json["choices"][0]["text"]
        self.assertEqual(self.loaded(), ["org/a"])
        self.assertEqual(self.ask("org/b").json["choices"][0]["text"], expected)
        self.assertEqual(self.loaded(), ["org/b"])
        # Running answers are finished first, and further requests for that model wait behind the one that is loaded next.
        events, found = [], []
        with self.server.socket() as s:
            body = json.dumps({"model": "org/b", **TEXT, "max_tokens": 240, "ignore_eos": True, "stream": True}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            first = s.recv(1000)
            threads = [threading.Thread(target=lambda name=name: found.append(self.ask(name)))
                       for name in ("org/a", "org/b", "org/a", "org/b")]
            for t in threads:
                t.start()
                time.sleep(0.02)
            s.settimeout(30)
            while b"[DONE]" not in first[-100:]:
                part = s.recv(65536)
                if not part:
                    break
                first += part
                events.append(part)
        self.assertIn(b"[DONE]", first)
        self.assertNotIn(b'"error"', first)
        for t in threads:
            t.join()
        self.assertEqual([(r.status, r.json["choices"][0]["text"]) for r in found], [(200, expected)] * 4)
        self.assertEqual(len(self.loaded()), 1)
        if not os.environ.get("SETUN_SANITIZE"):
            self.assertLess(self.server.memory(), self.budget)


class EndTest(Case):
    @classmethod
    def setUpClass(cls):
        if not has_server():
            raise unittest.SkipTest("this build has no `serve` (SETUN_SERVER is OFF)")
        cls.folder = store()

    def test_what_does_not_fit_at_all(self):
        server = Server("--models", self.folder, "--parallel", "64", "--memory", "60M", model=None)
        r = server.post("/v1/completions", {"model": "org/a", **TEXT})
        self.assertEqual((r.status, r.error["type"]), (500, "server_error"))
        self.assertRegex(r.error["message"], r"org/a could not be loaded: a: expected at least \d+M of memory .*found 60.0M")
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_usage(self):
        empty = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, empty)
        for args in (["--models", self.folder, TALES], [], ["--models", self.folder, "--template", __file__],
                     ["--models", self.folder, "--lora", TALES], [TALES, "--alias", "a", "--alias", "b"]):
            self.fails(2, "serve", *args)
        self.fails(1, "serve", "--models", empty, mentions=["found none"])
        self.fails(1, "serve", "--models", self.folder, "--alias", "x=nothing", mentions=["NAME=MODEL"])

    def test_ends_while_it_loads(self):
        server = Server("--models", self.folder, model=None)
        with socket.create_connection((server.host, server.port)) as s:
            body = json.dumps({"model": "org/a", **TEXT}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            status = server.stop(signal.SIGTERM)[0]
        self.assertEqual(status, 0)


if __name__ == "__main__":
    main()
