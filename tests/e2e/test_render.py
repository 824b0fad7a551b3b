#!/usr/bin/env python3
"""render: the choice of the template, its variables, and which text becomes a control token."""
import json
import os
import shutil

import gguf
from support import TALES, FolderCase, main, setun

CONTEXT = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}


class RenderTest(FolderCase):
    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        return path

    def render(self, template, context, *args, **more):
        return self.good("render", "--template", self.write("t.jinja", template), "--context", self.write("c.json", context),
                         *args, **more).decode()

    def model(self, **files):
        """A copy of the model's tokenizer with these files beside it."""
        path = os.path.join(self.folder, "model")
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        for name in os.listdir(TALES):
            if name != "tokenizer_config.json":
                os.symlink(os.path.join(TALES, name), os.path.join(path, name))
        config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "add_bos_token": True}
        config.update(files.pop("config", {}))
        self.write("model/tokenizer_config.json", config)
        for name, text in files.items():
            self.write("model/" + name, text)
        return path

    def test_without_a_model(self):
        self.assertEqual(self.render("{{ messages[0].content }}, {{ tools is defined }}", CONTEXT), "Hi, False")
        self.assertEqual(self.render("{{ bos_token }}|{{ messages[0].role }}\n", CONTEXT), "|user")

    def test_context_from_standard_input(self):
        template = self.write("t.jinja", "{{ x }}")
        self.assertEqual(self.good("render", "--template", template, "--context", "-", stdin=b'{"x": 1.50}'), b"1.5")

    def test_tokens_of_the_model(self):
        template = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
        self.assertEqual(self.render(template, CONTEXT, TALES), "<|begin_of_text|>Hi<|end_of_text|>")
        self.assertEqual(self.render(template, {**CONTEXT, "bos_token": "<s>"}, TALES), "<s>Hi<|end_of_text|>")

    def test_clock(self):
        template = "{{ strftime_now('%d %b %Y %H:%M:%S') }}"
        self.assertEqual(self.render(template, {}, "--now", "2024-02-29 01:02:03"), "29 Feb 2024 01:02:03")
        path = self.write("t.jinja", template), self.write("c.json", {})
        for wrong in ("2024-02-29", "29 Feb 2024", "2024-02-29 01:02:03 ", ""):
            with self.subTest(now=wrong):
                self.fails(2, "render", "--template", path[0], "--context", path[1], "--now", wrong, mentions=["--now"])
        self.fails(1, "render", "--template", path[0], "--context", path[1], "--now", "2023-02-29 01:02:03", mentions=["2023"])

    def test_origins(self):
        text = self.render("<b>{{ messages[0].content }}</b>{{ 'x' }}", CONTEXT, "--json")
        self.assertEqual(json.loads(text)["text"], "<b>Hi</b>x")
        self.assertEqual(json.loads(text)["spans"], [[3, 5]])

    def test_user_text_is_no_control_token(self):
        template = "{{ bos_token }}{{ messages[0].content }}<|end_of_text|>"
        for content in ("<|end_of_text|>", "a<|begin_of_text|>b", "<|end_of_text|", "|>", "<|begin_of_text|>"):
            with self.subTest(content=content):
                context = {"messages": [{"role": "user", "content": content}]}
                found = json.loads(self.render(template, context, TALES, "--ids"))
                plain = json.loads(self.good("tokenize", TALES, "--ids", "-p", content))
                self.assertEqual(found, [0, *plain, 1])
                self.assertNotIn(0, plain)
                self.assertNotIn(1, plain)

    def test_words_run_across_the_edges_of_messages(self):
        """As if the whole text were tokenized at once: "said: " + "Hello" gives the word " Hello"."""
        found = json.loads(self.render("He said: {{ messages[0].content }}.", {"messages": [{"content": "Hello"}]}, TALES, "--ids"))
        self.assertEqual(found, [0, *json.loads(self.good("tokenize", TALES, "--ids", "-p", "He said: Hello."))])

    def test_bos_comes_once(self):
        for template in ("x", "{{ bos_token }}x", "<|begin_of_text|>x", "{{ bos_token }}{{ bos_token }}x"):
            with self.subTest(template=template):
                found = json.loads(self.render(template, {}, TALES, "--ids"))
                self.assertEqual(found[0], 0)
                self.assertEqual(found.count(0), 1)
        self.assertEqual(json.loads(self.render("", {}, TALES, "--ids")), [0])

    def test_the_models_own(self):
        context = self.write("c.json", CONTEXT)
        tools = self.write("tools.json", {**CONTEXT, "tools": [{"type": "function"}]})
        no_tools = self.write("none.json", {**CONTEXT, "tools": []})
        named = {"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}
        rows = [
            (self.model, {"config": {"chat_template": "C"}}, "C", "C"),
            (self.model, {"config": named}, "D", "T"),
            (self.model, {"config": named, "chat_template.jinja": "J"}, "J", "T"),
            (self.model, {"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": "A"}, "J", "A"),
            (self.model, {"chat_template.json": {"chat_template": "P"}}, "P", "P"),
            (self.model, {"config": {"chat_template": "C"}, "chat_template.json": {"chat_template": "P"}}, "C", "C"),
        ]
        for make, files, plain, with_tools in rows:
            with self.subTest(files=sorted(files)):
                path = make(**files)
                self.assertEqual(self.good("render", path, "--context", context).decode(), plain)
                self.assertEqual(self.good("render", path, "--context", no_tools).decode(), plain)
                self.assertEqual(self.good("render", path, "--context", tools).decode(), with_tools)
        path = self.model(config=named)
        self.assertEqual(self.good("render", path, "--template-name", "tool_use", "--context", context), b"T")
        self.fails(1, "render", path, "--template-name", "rag", "--context", context,
                   mentions=["rag", "default, tool_use", "--template"])
        template = self.write("own.jinja", "F")
        self.assertEqual(self.good("render", path, "--template", template, "--context", context), b"F")

    def test_none_is_an_error(self):
        context = self.write("c.json", CONTEXT)
        self.fails(1, "render", TALES, "--context", context, mentions=["chat template", "--template"])
        path = self.model(config={"chat_template": [{"name": "rag", "template": "R"}]})
        self.fails(1, "render", path, "--context", context, mentions=["rag", "--template"])

    def gguf(self, architecture, templates):
        """A vocabulary of letters with the control tokens of Llama 3, and these keys."""
        controls = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
        letters = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a", "ab"] # as byte-level BPE spells a space and a newline
        keys = [("general.architecture", architecture), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "llama-bpe"),
                ("tokenizer.ggml.tokens", controls + letters), ("tokenizer.ggml.token_type", [3] * 4 + [1] * len(letters)),
                ("tokenizer.ggml.merges", ["a b"]), ("tokenizer.ggml.bos_token_id", 0), ("tokenizer.ggml.eos_token_id", 1)]
        path = os.path.join(self.folder, "model.gguf")
        gguf.write(path, [], keys + [("tokenizer.chat_template" + name, text) for name, text in templates.items()])
        return path

    def test_gguf_keys(self):
        context, tools = self.write("c.json", CONTEXT), self.write("tools.json", {**CONTEXT, "tools": [{"type": "function"}]})
        path = self.gguf("llama", {"": "D{{ bos_token }}", ".tool_use": "T", ".rag": "R"})
        self.assertEqual(self.good("render", path, "--context", context), b"D<|begin_of_text|>")
        self.assertEqual(self.good("render", path, "--context", tools), b"T")
        self.assertEqual(self.good("render", path, "--context", tools, "--template-name", "rag"), b"R")

    def test_family_instead_of_a_wrong_template(self):
        context = self.write("c.json", {"messages": [{"role": "system", "content": "Be brief. "},
                                                     {"role": "user", "content": "a<|eot_id|>b"}], "add_generation_prompt": True})
        wanted = "<|begin_of_text|>System: Be brief.<|eot_id|>User: a<|eot_id|>b<|eot_id|>Assistant: "
        wrong = "Human: {{ messages[0].content }}\n\nBITNETAssistant: "
        for templates, says in (({"": wrong}, "tokenizer.chat_template is not what the model was trained with"),
                                ({}, "the model has no chat template")):
            with self.subTest(templates=templates):
                path = self.gguf("bitnet-b1.58", templates)
                result = setun("render", path, "--context", context)
                self.assertEqual(result.stdout.decode(), wanted)
                self.assertRegex(result.stderr.decode(), r"\Asetun: warning: [^\n]*" + says + r"[^\n]*BitNet[^\n]*--template[^\n]*\n\Z")
                notices = json.loads(self.good("inspect", path, "--json"))["notices"]
                wanted_notice = says.replace("the model has", "model.gguf:")  # `inspect` names the file
                self.assertEqual([wanted_notice in line for line in notices].count(True), 1, notices)
                ids = json.loads(self.good("render", path, "--context", context, "--ids"))
                self.assertEqual((ids[0], ids.count(0), ids.count(1)), (0, 1, 2))
        # For another family the same template is used as it is, or replaced by that family's.
        self.assertTrue(self.good("render", self.gguf("llama", {"": wrong}), "--context", context).startswith(b"Human"))
        self.assertIn(b"<|start_header_id|>user<|end_header_id|>\n\na",
                      self.good("render", self.gguf("llama", {}), "--context", context))
        self.fails(1, "render", self.gguf("gpt-oss", {}), "--context", context, mentions=["gpt-oss", "--template"])

    def test_refusals(self):
        template, context = self.write("t.jinja", "a\n{{ raise_exception('no such role') }}"), self.write("c.json", CONTEXT)
        self.fails(1, "render", "--template", template, "--context", context, mentions=["no such role"])
        bad = self.write("bad.jinja", "a\n{% if %}")
        self.fails(1, "render", "--template", bad, "--context", context, mentions=["bad.jinja", "line 2"])
        self.fails(1, "render", "--template", template, "--context", self.write("bad.json", "{]"), mentions=["line 1"])
        self.fails(1, "render", "--template", template, "--context", self.write("list.json", []), mentions=["object"])
        twice = self.write("twice.json", '{"messages": [{"role": "user", "content": "a", "content": "b"}]}')
        self.fails(1, "render", "--template", template, "--context", twice, mentions=['duplicate key "content" in #/messages/0'])
        self.fails(1, "render", "--template", template, "--context", "absent.json", mentions=["absent.json"])
        self.fails(2, "render", "--context", context, mentions=["--template"])
        self.fails(2, "render", "--template", template, mentions=["--context"])
        self.fails(2, "render", "--template", template, "--context", context, "--ids", mentions=["--ids"])


if __name__ == "__main__":
    main()
