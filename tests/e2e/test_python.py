#!/usr/bin/env python3
"""The Python package of python/ with the built shared library: against transformers' ids and numbers, and the command."""
import ctypes
import importlib.util
import json
import os
import re
import sys
import unittest

from support import BUILD, GOLDEN, ROOT, TALES, Case, argmax, golden, main, public_header, read_safetensors, real_model, rows

SANITIZED = os.environ.get("SETUN_SANITIZE")
NO_NUMPY = importlib.util.find_spec("numpy") is None
if not SANITIZED:
    if not os.environ.get("SETUN_INSTALLED"):  # tools/check_python.sh tests an installed wheel
        os.environ.setdefault("SETUN_LIBRARY", os.path.join(BUILD, "libsetun.dylib" if sys.platform == "darwin" else "libsetun.so"))
        sys.path.insert(0, os.path.join(ROOT, "python"))
    import setun


@unittest.skipIf(SANITIZED, "Python would have to be built with the sanitizers")
class PythonTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = setun.Model(TALES)

    def test_info_and_errors(self):
        self.assertEqual((self.model.info["n_vocab"], self.model.info["container"]), (4096, "huggingface"))
        with self.assertRaises(setun.SetunError) as caught:
            setun.Model("no-such-model")
        self.assertEqual(caught.exception.status, "io")
        self.assertIn("no-such-model", str(caught.exception))

    def test_structs_are_those_of_the_header(self):
        """Members and their order; the header has no other way to tell."""
        header = public_header(os.path.join(ROOT, "include"))
        known = 0
        for name, kind in vars(setun._library).items():
            if not isinstance(kind, type) or not issubclass(kind, ctypes.Structure) or name in ("Structure", "Error"):
                continue
            struct = "setun_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", header, re.DOTALL)
            self.assertIsNotNone(body, struct)
            members = [re.search(r"(\w+)(\[\d+\])?\s*$", part).group(1)
                       for line in body.group(1).split(";") if line.strip() for part in line.split(",")]
            found = [field[0] for field in kind._fields_]
            self.assertEqual(found, members[:len(found)], struct)
            known += 1
        self.assertGreater(known, 6)

    def test_ids_are_those_of_transformers(self):
        for prompt in golden("tales", "golden.json")["prompts"]:
            self.assertEqual(self.model.tokenize(prompt["text"], bos=True), prompt["ids"])
            self.assertEqual(self.model.detokenize(prompt["ids"]), prompt["text"])

    @unittest.skipIf(NO_NUMPY, "NumPy is not installed")
    def test_embed_is_what_the_command_gives(self):
        path = os.path.join(GOLDEN, "hf", "bitnet-embed-qwen3-wide")
        model, texts = setun.Model(path), ["one", "two and three", "four"]
        vectors = model.embed(texts)
        self.assertEqual((vectors.shape, str(vectors.dtype)), ((3, 128), "float32"))
        self.assertEqual(vectors.tobytes(), self.good("embed", path, "--raw", *texts))
        self.assertEqual(model.embed("four").tobytes(), vectors[2].tobytes())
        self.assertEqual(model.embed([model.tokenize("one", bos=True, eos=True)]).tobytes(), vectors[:1].tobytes())
        mean = model.embed(texts, pooling="mean", normalize=False)
        self.assertEqual(mean.tobytes(), self.good("embed", path, "--raw", "--pooling", "mean", "--no-normalize", *texts))
        self.assertEqual(model.embed([]).shape, (0, 128))
        tokens = model.embed(texts, pooling="none")
        self.assertEqual(b"".join(t.tobytes() for t in tokens), self.good("embed", path, "--raw", "--pooling", "none", *texts))
        self.assertEqual(model.embed(texts[0], pooling="none").tobytes(), tokens[0].tobytes())
        for options, word in (({"pooling": "max"}, "pooling"), ({"prompt": "query"}, "prompt"), ({"dimensions": 7}, "n_dimensions")):
            with self.assertRaisesRegex(setun.SetunError, word):
                model.embed(texts, **options)

    def test_generate_is_what_the_command_prints(self):
        for options, args in (({"temperature": 0}, ["--temp", "0"]), ({"seed": 7}, ["--seed", "7"])):
            pieces = list(self.model.generate("Once upon a time", max_tokens=40, **options))
            self.assertGreater(len(pieces), 10)
            want = self.good("run", TALES, "-p", "Once upon a time", "-n", 40, "--no-echo", *args).decode()
            self.assertEqual("".join(pieces).rstrip("\n"), want.rstrip("\n"))
        text = "".join(self.model.generate("Once upon a time", max_tokens=40, temperature=0))
        word = text.split()[5]
        self.assertEqual("".join(self.model.generate("Once upon a time", max_tokens=40, temperature=0, stop=[word])),
                         text[:text.index(word)])
        self.assertEqual("".join(self.model.generate("Once upon a time", max_tokens=40, temperature=0, stop=word)),
                         text[:text.index(word)], "one text, not its letters")
        with self.assertRaisesRegex(ValueError, "max_tokens.*-5"):
            self.model.generate("a", max_tokens=-5)
        with self.assertRaises(TypeError):
            self.model.generate("a", no_such_option=1)

    def test_constraints(self):
        schema = {"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "minimum": 1}},
                  "required": ["name", "age"], "additionalProperties": False}
        made = setun.Constraint(self.model, json_schema=schema, ordered=True)
        for seed in range(3):
            text = "".join(self.model.generate("Once upon a time", constraint=made, temperature=2, seed=seed, max_tokens=200))
            value = json.loads(text)
            self.assertIn(value["name"], ("Tom", "Lily"))
            self.assertGreaterEqual(value["age"], 1)
        text = "".join(self.model.generate("Once", constraint=setun.Constraint(self.model, gbnf='root ::= "a"{3} [xy]')))
        self.assertRegex(text, "^aaa[xy]$")
        matcher = setun.Constraint(self.model, expression="(cat|dog) food").matcher()
        self.assertFalse(matcher.may_end)
        for token in self.model.tokenize("cat"):
            matcher.accept(token)
        self.assertEqual(self.model.detokenize(matcher.forced()), " food"[:len(self.model.detokenize(matcher.forced()))])
        matcher.rollback(len(self.model.tokenize("cat")))
        with self.assertRaises(setun.SetunError):
            matcher.accept(self.model.tokenize("bird")[0])
        with self.assertRaisesRegex(ValueError, "found 2"):
            setun.Constraint(self.model, gbnf="a", lark="b")
        with self.assertRaises(setun.SetunError) as caught:
            setun.Constraint(self.model, json_schema={"pattern": "(a"})
        self.assertIn("/pattern", str(caught.exception))

    @unittest.skipIf(NO_NUMPY, "NumPy is not installed")
    def test_masks(self):
        matcher = setun.Constraint(self.model, expression="[0-9]{2,3}").matcher()
        mask = matcher.mask()
        allowed = [i for i in range(len(mask)) if matcher.allows(i)]
        self.assertEqual(allowed, mask.nonzero()[0].tolist())
        self.assertIn(self.model.tokenize("1")[-1], allowed)
        self.assertNotIn(self.model.tokenize("a")[-1], allowed)

    def test_an_iterator_that_is_left(self):
        session = self.model.session()
        session.eval(self.model.tokenize("Once upon a time", bos=True))
        before, pieces = session.position, session.generate(temperature=0)
        first = next(pieces)
        pieces.close()
        self.assertIn(session.position, (before + 1, before + 2, before + 3))
        self.assertTrue("".join(self.model.generate("Once upon a time", max_tokens=9, temperature=0)).startswith(first))
        with self.assertRaises(setun.SetunError) as caught:  # no logits
            list(self.model.session().generate())
        self.assertEqual(caught.exception.status, "state")

    def test_chat_is_what_the_command_renders(self):
        path = real_model("SmolLM2-135M-Instruct.Q4_1.gguf")
        model = setun.Model(path)
        messages = [{"role": "system", "content": "Be brief. <|im_end|>"}, {"role": "user", "content": "Name a colour."}]
        conversation = json.dumps({"messages": messages, "add_generation_prompt": True}).encode()
        want = json.loads(self.good("render", path, "--ids", "--context", "-", stdin=conversation))
        self.assertEqual(model.chat_ids(messages), want)
        self.assertGreater(len("".join(model.chat(messages, max_tokens=8, temperature=0))), 3)

    @unittest.skipIf(NO_NUMPY, "numpy is not installed")
    def test_adapters_come_and_go(self):
        """Against merged weights of an independent NumPy model, as test_lora.py."""
        tensors = read_safetensors(os.path.join(GOLDEN, "numpy", "adapters.safetensors"))
        ids = list(tensors["llama3.input_ids"][1])
        first, second = (os.path.join(GOLDEN, "numpy", "adapter-" + name) for name in ("first", "second"))
        model = setun.Model(os.path.join(GOLDEN, "hf", "llama3"), precise=True, adapter_rank=5, adapter_bytes=1 << 20)
        session = model.session(kv="f32")
        for adapters, name in (({first: 0.75}, "logits_first"), ({first: 0.75, second: -0.5}, "logits_both"),
                               ({first: 0.75}, "logits_first")):
            session.use_adapters(model.load_adapters(adapters))
            session.truncate(0)
            session.eval(ids)
            want = rows(tensors["llama3." + name])[-1]
            self.assertLess(max(abs(a - b) for a, b in zip(session.logits, want)), 1e-4)
        with self.assertRaises(setun.SetunError) as caught:
            setun.Model(os.path.join(GOLDEN, "hf", "llama3")).load_adapters({first: 1})
        self.assertEqual(caught.exception.status, "limit")

    def test_sessions_in_memory(self):
        ids = self.model.tokenize("The fox ran to the", bos=True)
        one, two = self.model.session(n_ctx=64), self.model.session(n_ctx=64)
        one.eval(ids)
        two.load(one.save())
        self.assertEqual((two.tokens, two.position, two.n_ctx), (ids, len(ids), 64))
        for session in (one, two):
            session.eval([ids[1]])
        self.assertEqual("".join(one.generate(max_tokens=9, seed=1)), "".join(two.generate(max_tokens=9, seed=1)))
        with self.assertRaises(setun.SetunError) as caught:
            one.eval([1] * 64)
        self.assertEqual(caught.exception.status, "limit")
        with self.assertRaises(setun.SetunError):
            two.load(b"no session")
        with self.assertRaises(setun.SetunError) as caught:
            self.model.session(kv="f9")
        self.assertEqual((caught.exception.status, "f16" in str(caught.exception)), ("argument", True))

    @unittest.skipIf(NO_NUMPY, "numpy is not installed")
    def test_logits_and_hidden_states(self):
        tensors = read_safetensors(os.path.join(GOLDEN, "tales", "golden.safetensors"))
        ids, wanted = list(tensors["input_ids"][1]), dict(zip(tensors["positions"][1], rows(tensors["logits"])))
        session = setun.Model(TALES, precise=True).session(n_ctx=len(ids))
        position = min(p for p in wanted if p > 0)
        session.eval(ids[:position + 1])
        logits = session.logits
        self.assertEqual((logits.shape, logits.flags.owndata, logits.flags.writeable), ((4096,), False, False))
        address = ctypes.cast(setun.lib.setun_session_logits(session._handle), ctypes.c_void_p).value
        self.assertEqual(logits.ctypes.data, address)
        self.assertLess(abs(logits - wanted[position]).mean(), 0.06)  # the bound of test_tales.py
        self.assertEqual(int(logits.argmax()), argmax(wanted[position]))
        other = self.model.session()
        self.assertEqual(other.hidden(ids[:5], 1).shape, (5, self.model.info["n_embd"]))
        with self.assertRaises(setun.SetunError):
            other.hidden(ids[:5], 999)


if __name__ == "__main__":
    main()
