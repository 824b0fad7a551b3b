#!/usr/bin/env python3
"""`setun pull`, `list`, `remove`, and MODEL by name, with a hub on this machine that answers like the real one,
with every fault that may happen on the way."""
import hashlib
import http.server
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

from support import COMMAND, TALES, Case, main, setun

SECRET = "hf_very-secret"
BIG = os.urandom(300000)


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """The hub, and the host that it keeps large files at. `acts` are what happens to the next requests for a file: "cut N"
    (N bytes, then the connection breaks), "stall N" (then nothing more), "status N", "short" (a length that is too small),
    "long", "more" (bytes beyond it), "whole" (without regard to Range), "wrong", "etag X", "to URL"."""

    def __init__(self):
        self.files, self.tree, self.acts, self.seen, self.page, self.gate = {}, {}, [], [], 1000, threading.Event()
        self.retry_after = None
        self.servers = [self.serve(False), self.serve(True)]
        self.url = f"http://127.0.0.1:{self.servers[0].server_port}"
        self.other = f"http://localhost:{self.servers[1].server_port}"

    def serve(self, is_other):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body together

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.seen.append((is_other, self.path, dict(self.headers)))
                try:
                    hub.answer(self, is_other)
                except (ConnectionError, BrokenPipeError):
                    self.close_connection = True

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *args: None  # a client that leaves
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def close(self):
        self.gate.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, repository, **files):
        self.files.setdefault(repository, {}).update({name: data for name, data in files.items()})

    def answer(self, r, is_other):
        path, _, query = r.path.partition("?")
        parts = path.strip("/").split("/")
        if not is_other and parts[:2] == ["api", "models"]:
            return self.answer_list(r, "/".join(parts[2:4]), urllib.parse.parse_qs(query))
        repository, name = "/".join(parts[:2]), urllib.parse.unquote("/".join(parts[4:]))
        data = self.files.get(repository, {}).get(name)
        if data is None:
            return self.reply(r, 404, b"")
        act, _, value = self.acts.pop(0).partition(" ") if self.acts else ("", "", "")
        large = len(data) >= 1000
        if act == "to":
            return self.reply(r, 302, b"", {"Location": value})
        if act == "status":
            return self.reply(r, int(value), b"<html>no</html>", {"X-Error-Message": "because\x07"})
        if large and not is_other:
            self.acts[:0] = [f"{act} {value}"] if act else []
            return self.reply(r, 302, b"", {"Location": f"{self.other}{r.path}",
                                            "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"'})
        self.answer_file(r, data, act, value)

    def answer_list(self, r, repository, query):
        if repository not in self.files and repository not in self.tree:
            return self.reply(r, 401, b"", {"X-Error-Message": "Repository not found"})
        entries = self.tree.get(repository) or [{"type": "directory", "path": "x", "oid": "0"}] + [
            {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data),
             **({"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}} if len(data) >= 1000 else {})}
            for name, data in self.files[repository].items()]
        at = int(query.get("cursor", ["0"])[0])
        more = {}
        if at + self.page < len(entries):
            more["Link"] = f'<{self.url}{r.path.partition("?")[0]}?recursive=true&cursor={at + self.page}>; rel="next"'
        self.reply(r, 200, json.dumps(entries[at:at + self.page]).encode(), more)

    def answer_file(self, r, data, act, value):
        etag = f'"{value}"' if act == "etag" else f'"{hashlib.md5(data).hexdigest()}"'
        found = re.fullmatch(r"bytes=(\d+)-", r.headers.get("Range", ""))
        at = int(found[1]) if found and act != "whole" and r.headers.get("If-Range", etag) == etag else 0
        status, headers = 200, {"ETag": etag}
        if at:
            status, headers["Content-Range"] = 206, f"bytes {at}-{len(data) - 1}/{len(data)}"
        body = data[at:] if act != "wrong" else bytes(len(data) - at)
        length = len(body) + {"short": -10, "long": 10}.get(act, 0)
        if act == "more":
            r.close_connection = True
            length, body = None, body + b"more"
        count = int(value) if act in ("cut", "stall") else len(body)
        self.reply(r, status, body[:count], headers, length)
        if act in ("cut", "stall", "long"):
            if act == "stall":
                self.gate.wait(60)
            r.close_connection = True

    def reply(self, r, status, body, headers=None, length=-1):
        r.send_response(status)
        headers = dict(headers or {})
        if status == 429 and self.retry_after:
            headers["Retry-After"] = self.retry_after
        for name, value in headers.items():
            r.send_header(name, value)
        if length is None:
            r.send_header("Connection", "close")
        else:
            r.send_header("Content-Length", str(len(body) if length < 0 else length))
        r.end_headers()
        r.wfile.write(body)
        r.wfile.flush()

    def requests(self, path, is_other=None):
        return [h for o, p, h in self.seen if path in p and is_other in (None, o)]


class PullCase(Case):
    @classmethod
    def setUpClass(cls):
        if setun("help", "pull").returncode:
            raise unittest.SkipTest("this build has no `pull` (SETUN_PULL is OFF)")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name
        self.models = os.path.join(self.home, "setun", "models")
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.environment = {"PATH": os.environ["PATH"], "XDG_DATA_HOME": self.home, "HF_ENDPOINT": self.hub.url}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def pull(self, *args, status=0, mentions=(), **more):
        more.setdefault("env", self.environment)
        r = setun("pull", *args, **more)
        text = r.stderr.decode()
        self.assertEqual(r.returncode, status, text)
        for word in mentions:
            self.assertIn(str(word), text)
        self.assertNotIn(SECRET, text)
        return r.stdout.decode().rstrip("\n"), text

    def tree(self):
        """All files below the store, except locks."""
        return sorted(os.path.relpath(os.path.join(folder, name), self.models) for folder, _, names in os.walk(self.models)
                      for name in names if name != ".lock")

    def content(self, *path):
        with open(os.path.join(self.models, *path), "rb") as file:
            return file.read()


class ChoiceTest(PullCase):
    def test_the_only_file(self):
        self.hub.add("org/one", **{"a-Q4_0.gguf": BIG, "README.md": b"text", "mmproj-a.gguf": b"x"})
        path, _ = self.pull("org/one")
        self.assertEqual(path, os.path.join(self.models, "org/one/a-Q4_0.gguf"))
        self.assertEqual(self.tree(), ["org/one/a-Q4_0.gguf"])
        self.assertEqual(self.content("org/one/a-Q4_0.gguf"), BIG)
        _, text = self.pull("org/one", mentions=["exists already"])
        self.assertEqual(len(self.hub.requests("/resolve/")), 2)  # the hub, and where it led: once
        self.assertNotIn("\r", text)  # progress is for terminals

    def test_names(self):
        parts = {f"big/m-Q8_0-0000{i}-of-00003.gguf": b"part%d" % i for i in (1, 2, 3)}
        self.hub.add("org/many", **{"m-Q4_K_M.gguf": b"4", "m-UD-Q4_K_M.gguf": b"ud", "m.f16.gguf": b"16", **parts,
                                    "m-Q2_K-00001-of-00002.gguf": b"half", "config.json": b"{}",
                                    "model.safetensors": b"s"})
        self.hub.page = 3  # the list comes in pages
        _, text = self.pull("org/many", status=1, mentions=["expected one model, found 4", "setun pull org/many:Q4_K_M "])
        self.assertNotIn("Q2_K", text)  # of which a part is missing
        self.assertNotIn("safetensors", text)
        for word, path in (("Q4_K_M", "m-Q4_K_M.gguf"), ("q4_k_m", "m-Q4_K_M.gguf"), ("UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
                           ("m.f16.gguf", "m.f16.gguf"), ("F16", "m.f16.gguf"), ("safetensors", ""),
                           ("Q8_0", "big/m-Q8_0-00001-of-00003.gguf")):
            self.assertEqual(self.pull(f"org/many:{word}")[0].rstrip("/"),
                             os.path.join(self.models, "org/many", path).rstrip("/"), word)
        for part, data in parts.items():
            self.assertEqual(self.content("org/many", part), data)
        self.pull("org/many:Q5_K", status=1, mentions=["org/many:f16", "org/many:safetensors"])
        for page in (f"{self.hub.url}/org/many/blob/dev/m.f16.gguf", f"{self.hub.url}/org/many/resolve/dev/m.f16.gguf",
                     "hf.co/org/many:F16", "https://hf.co/org/many:F16"):
            self.pull(page, mentions=["exists already"])
        self.assertTrue(self.hub.requests("/tree/dev"))
        for word in ("org", "org/../x", "org/a/b", "/etc/passwd", "../x", "org/x:../y", "org/x y", "org/.x",
                     "https://example.com/org/many", ""):
            self.pull(word, status=2)

    def test_directory(self):
        files = {}
        for name in os.listdir(TALES):
            with open(os.path.join(TALES, name), "rb") as file:
                files[name] = file.read()
        self.hub.add("org/tales", **files, **{"pytorch_model.bin": b"x", "onnx/model.onnx": b"x"})
        self.pull("org/tales")
        self.assertLessEqual({"org/tales/config.json", "org/tales/model.safetensors"}, set(self.tree()))
        self.assertNotIn("pytorch_model.bin", " ".join(self.tree()))
        self.models_by_name()

    def models_by_name(self):
        env = self.environment
        args = ("-p", "Once", "-n", "8", "--temp", "0")
        expected = self.good("run", TALES, *args)
        self.assertEqual(self.good("run", "org/tales", *args, env=env), expected)
        self.assertEqual(self.good("run", *args, "-m", "org/tales:safetensors", env=env), expected)
        self.assertEqual(self.good("run", TALES, "--draft", "org/tales", *args, env=env), expected)
        for command in (("inspect",), ("tokenize", "-p", "Once")):
            self.good(command[0], "org/tales", *command[1:], env=env)
        # A path wins.
        here = os.path.join(self.home, "org")
        os.mkdir(here)
        shutil.copytree(TALES, os.path.join(here, "tales"))
        shutil.rmtree(os.path.join(self.models, "org"))
        self.assertEqual(self.good("run", "org/tales", *args, env=env, cwd=self.home), expected)
        text = self.fails(1, "run", "org/tales", "-p", "x", env=env)
        self.assertIn("'setun pull org/tales' fetches it", text)
        self.fails(1, "run", "nowhere/x.gguf", "-p", "x", env=env, mentions=["No such file"])


class StoreTest(PullCase):
    def test_list_and_remove(self):
        with open(os.path.join(TALES, "config.json"), "rb") as file:
            config = file.read()
        self.hub.add("org/two", **{"a-Q4_0.gguf": b"not GGUF", "a-Q8_0.gguf": BIG})
        env = self.environment
        self.assertEqual(self.good("list", "--json", env=env), b"[]\n")
        self.pull("org/two:Q4_0")
        self.assertEqual([m["name"] for m in json.loads(self.good("list", "--json", env=env))], ["org/two"])
        self.pull("org/two:Q8_0")
        self.good("convert", TALES, "--to", "tq2_0", "-o", os.path.join(self.models, "own.gguf"))
        shutil.copytree(TALES, os.path.join(self.models, "tales"))
        found = {m["name"]: m for m in json.loads(self.good("list", "--json", env=env))}
        self.assertEqual(sorted(found), ["org/two:Q4_0", "org/two:Q8_0", "own", "tales"])
        self.assertEqual((found["org/two:Q8_0"]["bytes"], found["org/two:Q8_0"]["family"]), (len(BIG), None))
        own = found["own"]
        self.assertEqual((own["container"], own["format"], own["bytes"]),
                         ("gguf", "tq2_0", os.path.getsize(own["path"])))
        self.assertEqual(found["tales"]["container"], "huggingface")
        self.assertEqual(json.loads(config)["model_type"].split("-")[0], found["tales"]["family"].split("-")[0].lower())
        table = self.good("list", env=env).decode()
        self.assertEqual(len(table.splitlines()), 5)
        self.fails(1, "run", "org/two", "-p", "x", env=env, mentions=["org/two:Q4_0, org/two:Q8_0"])
        r = setun("remove", "org/two", env=env)
        self.assertEqual((r.returncode, r.stdout), (1, b""))
        self.assertIn(b"--all", r.stderr)
        foreign = os.path.join(self.models, "org/two/notes.txt")
        with open(foreign, "w", encoding="ascii") as file:
            file.write("mine")
        self.good("remove", "org/two:q4_0", env=env)
        self.good("remove", "own", env=env)
        self.good("remove", "org/two", env=env)
        self.assertEqual([name for name in self.tree() if not name.startswith("tales/")], ["org/two/notes.txt"])
        os.remove(foreign)
        self.hub.acts = ["cut 1000", "cut 0"]
        self.pull("org/two:Q8_0", "--retries", "0", status=1)
        self.good("remove", "org/two", env=env)
        self.assertFalse(os.path.exists(os.path.join(self.models, "org")))
        for name in ("org/two", "org/two:Q4_0", "../x", "", "/etc"):
            self.assertIn(setun("remove", name, env=env).returncode, (1, 2), name)

    def test_folders(self):
        self.hub.add("org/one", **{"a.gguf": b"1"})
        other = os.path.join(self.home, "other")
        path, _ = self.pull("org/one", "--models", other)
        self.assertEqual(path, os.path.join(other, "org/one/a.gguf"))
        self.assertEqual(len(json.loads(self.good("list", "--models", other, "--json"))), 1)
        self.good("remove", "org/one", "--models", other)
        nowhere = {k: v for k, v in self.environment.items() if k != "XDG_DATA_HOME"}
        self.pull("org/one", env=nowhere, status=1, mentions=["XDG_DATA_HOME"])
        path, _ = self.pull("org/one", env={**nowhere, "HOME": self.home})
        self.assertEqual(path, os.path.join(self.home, ".local/share/setun/models/org/one/a.gguf"))


class BrokenTest(PullCase):
    def setUp(self):
        super().setUp()
        self.hub.add("org/m", **{"a.gguf": BIG})

    def partials(self):
        return [name for name in self.tree() if name.endswith(".partial")]

    def test_cut_connections(self):
        self.hub.acts = ["cut 100000", "cut 50000", "cut 0"]
        self.pull("org/m", mentions=["trying again"])
        self.assertEqual(self.content("org/m/a.gguf"), BIG)
        self.assertEqual(self.partials(), [])
        ranges = [(h.get("Range"), bool(h.get("If-Range"))) for h in self.hub.requests("/a.gguf", True)]
        self.assertEqual([r for r in ranges if r[0]][-1][1], True)
        starts = [int(r[0][6:-1]) for r in ranges if r[0]]
        self.assertEqual(starts, sorted(starts))
        self.assertTrue(all(n <= 150000 for n in starts))

    def test_another_run_goes_on(self):
        self.hub.acts = ["cut 200000", "cut 0"]
        self.pull("org/m", "--retries", "0", status=1)
        (partial,) = self.partials()
        kept = len(self.content(partial))
        self.assertGreater(kept, 0)
        self.hub.seen.clear()
        self.pull("org/m", mentions=["received already"])
        self.assertEqual(self.hub.requests("/a.gguf", True)[0]["Range"], f"bytes={kept}-")
        self.assertEqual(self.content("org/m/a.gguf"), BIG)

    def test_server_without_ranges(self):
        self.hub.acts = ["cut 200000", "cut 0"]
        self.pull("org/m", "--retries", "0", status=1)
        self.hub.acts = ["whole"]
        self.pull("org/m")
        self.assertEqual(self.content("org/m/a.gguf"), BIG)

    def test_another_file_meanwhile(self):
        self.hub.acts = ["cut 200000", "cut 0"]
        self.pull("org/m", "--retries", "0", status=1)
        new = BIG[::-1]
        self.hub.add("org/m", **{"a.gguf": new})
        self.pull("org/m")  # another checksum: nothing of the old file is used
        self.assertEqual((self.content("org/m/a.gguf"), self.tree()), (new, ["org/m/a.gguf"]))
        self.assertNotIn("Range", self.hub.requests("/a.gguf", True)[-1])
        # Another ETag between two attempts: the server begins again, and so does the file.
        self.hub.add("org/m", **{"b.gguf": BIG})
        self.hub.acts = ["cut 200000", "etag other"]
        self.pull("org/m:b.gguf")
        self.assertEqual(self.content("org/m/b.gguf"), BIG)
        # The hub's list and its files disagree.
        self.hub.tree["org/m"] = [{"type": "file", "path": "a.gguf", "size": len(BIG), "oid": "0" * 40,
                                   "lfs": {"oid": "1" * 64, "size": len(BIG)}}]
        self.pull("org/m:a.gguf", status=1, mentions=["differs from its list", "1" * 64])
        self.assertEqual(self.content("org/m/a.gguf"), new)

    def test_wrong_bytes(self):
        self.hub.acts = ["wrong"]
        self.pull("org/m", status=1, mentions=["expected checksum", hashlib.sha256(BIG).hexdigest(),
                                               hashlib.sha256(bytes(len(BIG))).hexdigest()])
        self.assertEqual(self.tree(), [])
        # In the existing part: all of it is fetched again.
        self.hub.acts = ["cut 200000", "cut 0"]
        self.pull("org/m", "--retries", "0", status=1)
        (partial,) = self.partials()
        with open(os.path.join(self.models, partial), "r+b") as file:
            file.write(b"damage")
        self.pull("org/m", mentions=["receiving all of it again"])
        self.assertEqual(self.content("org/m/a.gguf"), BIG)
        # A complete file stays until the other one is complete too.
        self.hub.add("org/m", **{"a.gguf": BIG[1:]})
        self.hub.acts = ["wrong"]
        self.pull("org/m", status=1)
        self.assertEqual((self.content("org/m/a.gguf"), self.tree()), (BIG, ["org/m/a.gguf"]))
        self.pull("org/m")
        self.assertEqual(self.content("org/m/a.gguf"), BIG[1:])

    def test_small_files_are_checked_too(self):
        self.hub.add("org/s", **{"s.gguf": b"small"})
        self.hub.acts = ["wrong"]
        self.pull("org/s", status=1, mentions=["expected checksum " + git_sha1(b"small")])
        self.pull("org/s")
        self.assertEqual(self.content("org/s/s.gguf"), b"small")
        self.hub.add("org/e", **{"e.gguf": b""})
        self.pull("org/e")
        self.assertEqual(self.content("org/e/e.gguf"), b"")

    def test_lies_about_length(self):
        for act, words in (("short", "expected the 300000 bytes of the hub's list, found a file of 299990"),
                           ("long", "found a file of 300010"), ("more", "more than the 300000 bytes")):
            self.hub.acts = [act]
            self.pull("org/m", status=1, mentions=[words])
            self.assertNotIn("org/m/a.gguf", self.tree())
        self.pull("org/m")
        self.assertEqual(self.content("org/m/a.gguf"), BIG)

    def test_a_hub_that_does_not_answer(self):
        with socket.socket() as s:  # bound and not listening: connections are refused
            s.bind(("127.0.0.1", 0))
            hub = f"http://127.0.0.1:{s.getsockname()[1]}"
            text = self.pull("org/m", "--hub", hub, "--retries", 1, status=1, mentions=[f"org/m: {hub}: ", "trying again"])[1]
        self.assertIn(f"org/m: 2 attempts without progress from {hub}: ", text)

    def test_statuses(self):
        self.pull("org/none", status=1, mentions=["401", "HF_TOKEN", "Repository not found"])
        for status, words in ((401, "HF_TOKEN"), (403, "conditions"), (404, "not found on the hub"), (410, "status 410: because?")):
            self.hub.acts = [f"status {status}"]
            self.pull("org/m", status=1, mentions=[words])
        self.hub.acts = ["status 503"]
        self.pull("org/m", mentions=["trying again"])
        os.remove(os.path.join(self.models, "org/m/a.gguf"))
        self.hub.retry_after = "1"
        self.hub.acts = ["status 429"]
        begin = time.monotonic()
        self.pull("org/m")
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        os.remove(os.path.join(self.models, "org/m/a.gguf"))
        self.hub.retry_after = "3600"
        self.hub.acts = ["status 429"]
        self.pull("org/m", status=1, mentions=["3600 seconds"])

    def test_redirects(self):
        for place, words in (("file:///etc/passwd", "that is not HTTP"), ("ftp://127.0.0.1/x", "that is not HTTP"),
                             ("http://user:word@127.0.0.1/x", "that is not HTTP")):
            self.hub.acts = [f"to {place}"]
            self.pull("org/m", status=1, mentions=[words])
        self.hub.acts = [f"to {self.hub.url}/org/m/resolve/main/a.gguf"] * 20
        self.pull("org/m", status=1, mentions=["redirects more than"])
        self.hub.acts = []
        self.hub.page, self.hub.files["org/m"] = 1, {"a.gguf": b"a", "b.gguf": b"b"}
        real, self.hub.url = self.hub.url, self.hub.other
        self.pull("org/m", status=1, mentions=["not one of its own pages"])
        self.hub.url = real

    def test_malformed_lists(self):
        for entries, words in (("no list", "expected an array"), ([{"type": "file", "size": 1}], "expected a type"),
                               ([{"type": "file", "path": "a.gguf", "size": -1, "oid": "0" * 40}], "size"),
                               ([{"type": "file", "path": "a.gguf", "size": 1, "oid": "x"}], "checksum"),
                               ([{"type": "file", "path": "a.gguf", "size": 1e300, "oid": "0" * 40}], "size")):
            self.hub.tree["org/m"] = entries
            self.pull("org/m", status=1, mentions=[words])

    def test_names_from_the_network(self):
        evil = ["../x.gguf", "/tmp/x.gguf", "a/../../x.gguf", ".x.gguf", "a\nb.gguf", "a\\b.gguf", "-x.gguf", "a//b.gguf",
                "x\u202egguf.gguf", "a b.gguf", "c:x.gguf", "a" * 300 + ".gguf", "a/b/c/d/e.gguf", "x\0.gguf", "."]
        self.hub.tree["org/m"] = [{"type": "file", "path": name, "size": 1, "oid": git_sha1(b"x")} for name in evil]
        self.pull("org/m", status=1, mentions=[f"found neither among {len(evil)} files", "names that are not accepted"])
        self.assertFalse(os.path.exists(self.models))
        self.assertEqual(os.listdir(self.home), [])

    def test_room(self):
        self.hub.tree["org/m"] = [{"type": "file", "path": "a.gguf", "size": 1 << 50, "oid": "0" * 40,
                                   "lfs": {"oid": "1" * 64, "size": 1 << 50}}]
        self.pull("org/m", status=1, mentions=["expected room for 1.0 PiB"])
        self.assertEqual(self.hub.requests("/resolve/"), [])
        del self.hub.tree["org/m"]
        self.pull("org/m", status=1, mentions=["File too large"],
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        self.assertEqual(len(self.content(self.partials()[0])), 100000)
        self.pull("org/m")
        self.assertEqual(self.content("org/m/a.gguf"), BIG)

    def test_interrupted(self):
        self.hub.acts = ["stall 200000"]
        p = subprocess.Popen([COMMAND, "pull", "org/m"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (self.partials() and len(self.content(self.partials()[0])) >= 200000):
            time.sleep(0.02)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=20)
        self.assertEqual((p.returncode, out), (130, b""))
        self.assertIn(b"the same command continues from there", err)
        self.pull("org/m")
        self.assertEqual(self.hub.requests("/a.gguf", True)[-1]["Range"], "bytes=200000-")
        self.assertEqual(self.content("org/m/a.gguf"), BIG)

    def test_two_at_once(self):
        self.hub.acts = ["stall 200000"]
        command = [COMMAND, "pull", "org/m"]
        both = [subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2)]
        time.sleep(1)
        self.hub.gate.set()  # the connection breaks, and the rest comes
        texts = [p.communicate(timeout=30)[1].decode() for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], texts)
        self.assertIn("waiting for another process", "".join(texts))
        self.assertEqual(sum("exists already" in text for text in texts), 1)
        self.assertEqual((self.content("org/m/a.gguf"), self.tree()), (BIG, ["org/m/a.gguf"]))


class TokenTest(PullCase):
    def test_goes_to_the_hub_alone(self):
        self.hub.add("org/m", **{"a.gguf": BIG})
        self.pull("org/m", env={**self.environment, "HF_TOKEN": SECRET})
        hub, other = self.hub.requests("", False), self.hub.requests("", True)
        self.assertEqual([h.get("Authorization") for h in hub], [f"Bearer {SECRET}"] * 2)
        self.assertEqual([h.get("Authorization") for h in other], [None])
        path = os.path.join(self.home, "token")
        with open(path, "w", encoding="ascii") as file:
            file.write(SECRET + "\n")
        self.hub.seen.clear()
        self.pull("org/m", env={**self.environment, "HF_TOKEN_PATH": path})
        self.assertEqual(self.hub.requests("")[0].get("Authorization"), f"Bearer {SECRET}")
        self.hub.seen.clear()
        self.pull("org/m", status=1, env={**self.environment, "HF_TOKEN": "a\r\nX: y"})
        self.assertEqual(self.hub.seen, [])
        self.pull("org/none", status=1, env={**self.environment, "HF_TOKEN": SECRET}, mentions=["does not accept the token"])

    def test_not_where_others_could_read_it(self):
        """By http to a host that is not this one, here reached through a proxy."""
        env = {**self.environment, "HF_TOKEN": SECRET, "http_proxy": self.hub.url}
        self.pull("org/m", "--hub", "http://hub.example", "--retries", "0", status=1, env=env)
        seen = self.hub.requests("http://hub.example")
        self.assertTrue(seen)
        self.assertEqual([h.get("Authorization") for h in seen], [None] * len(seen))

    def test_addresses_of_hubs(self):
        for url in ("ftp://127.0.0.1", "file:///etc", "nonsense", "http://", "http://user@127.0.0.1"):
            self.pull("org/m", "--hub", url, status=1, mentions=["expected an address"])


if __name__ == "__main__":
    main()
