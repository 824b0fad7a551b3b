#!/usr/bin/env python3
"""`setun serve` and what broke other servers: advisories of published ones, a test for each that no other test answers. Those in
test_serve_http.py: CVE-2024-12537, CVE-2024-28224, CVE-2025-48956, CVE-2025-52887, CVE-2025-59425; in test_serve_text.py:
CVE-2025-46570, CVE-2025-48944, CVE-2026-21869, llama.cpp issues 25283 and 26600."""
import os
import shutil
import tempfile
import time

from serving import Server, ServerCase, skip_without_server
from support import ROOT, TALES, Case, main

BAD_FILES = os.path.join(ROOT, "tests", "badfiles", "files")


class TemplateTest(ServerCase):
    """CVE-2024-34359: llama-cpp-python ran a model's chat template with all that Python has. The message says which attack it is."""
    attacks = {
        "globals": "{{ cycler.__init__.__globals__.os.popen('touch %s').read() }}",
        "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() | map(attribute='__name__') | list }}",
        "attribute": "{{ messages | attr('__class__') }}{{ [].__class__.__base__ }}",
        "self": "{{ self.__init__.__globals__['__builtins__']['open']('%s', 'w') }}",
        "lipsum": "{{ lipsum.__globals__['os'].system('touch %s') }}",
        "include": "{%% include '/etc/passwd' %%}",
        "format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "loop": "{%% for i in range(1000000000) %%}{%% for k in range(1000000000) %%}{%% endfor %%}{%% endfor %%}",
        "range": "{{ range(100000000000) | list | length }}",
        "bomb": "{{ ('a' * 100000000) * 100000 }}",
        "grow": "{%% set ns = namespace(x='aaaaaaaaaa') %%}{%% for i in range(60) %%}{%% set ns.x = ns.x ~ ns.x %%}{%% endfor %%}{{ ns.x | length }}",
        "macro": "{%% macro m(x) %%}{{ m(x) }}{%% endmacro %%}{{ m(1) }}",
        "pad": "{{ '%%1000000000s' | format('a') }}{{ 'a'.ljust(10000000000) }}{{ 'a' | center(10000000000) }}",
    }

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.touched = os.path.join(cls.folder.name, "touched")
        cls.paths = {}
        for name, text in cls.attacks.items():
            cls.paths[name] = os.path.join(cls.folder.name, name + ".jinja")
            with open(cls.paths[name], "w", encoding="utf-8") as file:
                file.write(text % ((cls.touched,) if "%s" in text else ()))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_hostile_templates(self):
        for name, path in self.paths.items():
            with self.subTest(attack=name):
                try:
                    server = Server("--template", path)
                except (AssertionError, OSError):
                    continue  # it is not taken at all: the server ended, with a message
                try:
                    begin, before = time.monotonic(), server.memory()
                    r = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
                    self.assertLess(time.monotonic() - begin, 30)
                    self.assertLess(server.memory() - before, 600 << 20)
                    if r.status == 200:
                        self.assertNotIn(b"Popen", server.post("/apply-template", {"messages": [{"role": "user", "content": "a"}]}).body)
                    else:
                        self.refused(r, 400)
                    self.assertEqual(server.get("/health").status, 200)
                finally:
                    self.assertEqual(server.stop()[0], 0)
        self.assertFalse(os.path.exists(self.touched))

    def test_templates_of_requests(self):
        """A request cannot supply its own template, nor reach the server's through its variables."""
        evil = self.attacks["globals"] % self.touched
        for more in ({"chat_template": evil}, {"template": evil}, {"chat_template_kwargs": {"chat_template": evil}},
                     {"chat_template_kwargs": {"messages": evil, "x": evil}}):
            r = self.server.post("/apply-template", {"messages": [{"role": "user", "content": evil}], **more})
            self.assertIn(r.status, (200, 400))
        self.assertFalse(os.path.exists(self.touched))


class GrammarTest(ServerCase):
    def test_bad_constraints_are_refused(self):
        """llama.cpp issue 19051: an answer to a grammar that could not be read was served without it."""
        for body in ({"grammar": "root ::= ("}, {"grammar": "root ::= nowhere"}, {"grammar": "a ::= \"b\""}, {"grammar": "root ::= root"},
                     {"grammar": 5}, {"json_schema": 5}, {"json_schema": {"type": "nothing"}}, {"json_schema": {"$ref": "http://127.0.0.1:1/x"}},
                     {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}},
                     {"response_format": {"type": "grammar"}}, {"response_format": 5}):
            for stream in (False, True):
                r = self.server.post("/v1/completions", {"prompt": "Once", "max_tokens": 4, "stream": stream, **body})
                self.refused(r, 400)


class TokenizerTest(ServerCase):
    def test_texts_with_more_tokens_than_bytes_or_fewer(self):
        """GHSA-7rxv-5jhh-j6xx: llama.cpp's tokenizer counted tokens in a signed number and wrote beyond its buffer."""
        texts = ["", " ", "\0", "\0" * 5000, "a" * 300000, "\U0001F600" * 20000, "\uFDFA" * 5000, " " * 100001, "\n" * 70000,
                 "\u0301" * 9000, "<s>" * 30000, "<unk></s>" * 9000, "\u200B\uFEFF" * 4000, "".join(map(chr, range(1, 0xD800))),
                 "x\u202e" * 3000, "1" * 200001]
        for text in texts:
            for special in (True, False):
                r = self.server.post("/tokenize", {"content": text, "parse_special": special, "add_special": True})
                self.assertEqual(r.status, 200, r.body[:200])
                ids = r.json["tokens"]
                self.assertEqual(len(ids), r.json["count"])
                self.assertLessEqual(len(ids), 4 * len(text.encode()) + 2)
            self.assertEqual(self.server.post("/detokenize", {"tokens": ids}).status, 200)
            self.assertIn(self.server.post("/v1/completions", {"prompt": text, "max_tokens": 1}).status, (200, 400))
            self.assertIn(self.server.post("/infill", {"input_prefix": text, "input_suffix": text}).status, (400, 501))
        self.assertEqual(self.server.get("/health").status, 200)


class FilesTest(Case):
    def test_hostile_files(self):
        """CVE-2026-27940, CVE-2026-7482: sizes of a GGUF file that wrap around were believed."""
        with tempfile.TemporaryDirectory() as folder:
            bad = sorted(name for name in os.listdir(BAD_FILES) if name.endswith(".gguf") and not name.startswith("good-"))
            for name in bad:
                shutil.copy(os.path.join(BAD_FILES, name), folder)
            shutil.copytree(TALES, os.path.join(folder, "tales"))
            server = Server("--models", folder, model=None)
            try:
                models = [m["id"] for m in server.get("/v1/models").json["data"]]
                self.assertGreater(len(models), 50)
                for model in models:
                    r = server.post("/v1/completions", {"model": model, "prompt": "Once", "max_tokens": 1})
                    if model == "tales":
                        self.assertEqual(r.status, 200)
                        continue
                    self.assertEqual((r.status, r.error["type"]), (500, "server_error"), model)
                    self.assertIn(model, r.error["message"])
                self.assertEqual(server.post("/v1/completions", {"model": "tales", "prompt": "Once", "max_tokens": 1}).status, 200)
            finally:
                self.assertEqual(server.stop()[0], 0)

    def test_nothing_is_uploaded(self):
        """No request makes, changes or names a file."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(TALES, os.path.join(folder, "tales"))
            server = Server("--models", folder, model=None)
            try:
                before = sorted(os.walk(folder))
                for method in ("POST", "PUT", "PATCH", "DELETE"):
                    for path in ("/api/create", "/api/push", "/api/pull", "/api/blobs/sha256:0", "/api/delete", "/api/copy", "/v1/files",
                                 "/v1/models", "/models", "/models/load", "/models/unload", "/lora-adapters", "/slots", "/slots/0?action=save",
                                 "/props", "/upload", "/page/../tales/config.json", "/page/..%2Ftales"):
                        r = server.request(method, path, {"model": "tales", "name": "x", "filename": "../x", "path": folder})
                        self.assertIn(r.status, (404, 405), (method, path))
                for model in (folder, folder + "/tales", "../tales", "tales/config.json", "tales/", "./tales", "/etc/passwd", "tales\0"):
                    r = server.post("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})
                    self.assertEqual(r.status, 404, model)
                self.assertEqual(sorted(os.walk(folder)), before)
            finally:
                self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    skip_without_server()
    main()
