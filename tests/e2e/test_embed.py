#!/usr/bin/env python3
"""`setun embed`: vectors against the golden ones and an independent NumPy computation; what the files say about them is used
or refused; a batch equals one at a time."""
import array
import json
import math
import os
import shutil
import tempfile
import unittest

import gguf
from support import GOLDEN, Case, main, read_safetensors, rows, setun

try:
    import numpy as np
except ImportError:
    np = None

HF = os.path.join(GOLDEN, "hf")
QWEN, GEMMA = os.path.join(HF, "bitnet-embed-qwen3-wide"), os.path.join(HF, "bitnet-embed-gemma3")
QWEN_GGUF = os.path.join(GOLDEN, "gguf", "bitnet-embed-qwen3-wide.gguf")
PLAIN = os.path.join(HF, "gemma3-plain")  # float32, of which the bidirectional model is made
WINDOW, WIDE, OUT = 16, 96, 48             # of that model: as in its files, and the dense modules' widths
TEXTS = ["The license of this program", "a", "you may copy the work in any medium", "b c", "of the", "x" * 55,
         "and the other one; it is in the same order", "7", "one\ntwo", "The end."] * 2
IDS = [[5, 9, 200, 31, 7, 77, 260, 19, 4, 55, 301, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 99, 100,
        101, 102, 33, 44, 55, 66], [3], [280, 281, 282, 283, 8]]


def cosine(a, b):
    dot = math.fsum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


def write_json(value, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(value, file)


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_safetensors(path, tensors):
    """Name: (shape, floats)."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        content = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def module(index, path, kind):
    return {"idx": index, "name": str(index), "path": path, "type": "sentence_transformers.models." + kind}


def dense_weights(seed, out, width):
    """Numbers that need no random generator: all distinct, of both signs."""
    return [math.sin(1.7 * seed + 0.37 * i + 0.011 * i * i) / 8 for i in range(out * width)]


def write_around(folder):
    """A small EmbeddingGemma: attention in both directions, mean pooling, two dense modules, prompts."""
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("golden*"))
    config = read_json(folder, "config.json")
    config.update(use_bidirectional_attention=True, sliding_window=WINDOW, architectures=["Gemma3TextModel"])
    write_json(config, folder, "config.json")
    write_json([module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"), module(2, "2_Dense", "Dense"),
                module(3, "3_Dense", "Dense"), module(4, "4_Normalize", "Normalize")], folder, "modules.json")
    write_json({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False,
                "include_prompt": True}, folder, "1_Pooling", "config.json")
    for i, (out, width) in enumerate(((WIDE, 64), (OUT, WIDE))):
        place = os.path.join(folder, f"{i + 2}_Dense")
        write_json({"in_features": width, "out_features": out, "bias": i == 1,
                    "activation_function": "torch.nn.modules.linear.Identity"}, place, "config.json")
        tensors = {"linear.weight": ([out, width], dense_weights(i, out, width))}
        if i == 1:
            tensors["linear.bias"] = ([out], dense_weights(5, out, 1))
        write_safetensors(os.path.join(place, "model.safetensors"), tensors)
    write_json({"max_seq_length": 60, "do_lower_case": False}, folder, "sentence_bert_config.json")
    write_json({"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
               folder, "config_sentence_transformers.json")


def states_of(ids):
    """The states of Gemma 3 whose tokens also see later ones, after the final norm; float64 throughout."""
    config = read_json(PLAIN, "config.json")
    w = {name: np.array(values, dtype=np.float64).reshape(shape)
         for name, (shape, values) in read_safetensors(os.path.join(PLAIN, "model.safetensors")).items()}
    heads, kv_heads, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    n = len(ids)
    reach = WINDOW // 2 + 1

    def rms(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * (1 + w[name + ".weight"])

    def rotate(x, theta):
        angle = np.arange(n)[:, None] / theta ** (2 * np.arange(size // 2) / size)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :size // 2], x[..., size // 2:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    x = w["model.embed_tokens.weight"][ids] * math.sqrt(config["hidden_size"])
    for i in range(config["num_hidden_layers"]):
        p, at = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        full = (i + 1) % config["sliding_window_pattern"] == 0
        theta = config["rope_theta"] if full else config["rope_local_base_freq"]
        h = rms(x, p + "input_layernorm")
        q = rotate(rms((h @ w[at + "q_proj.weight"].T).reshape(n, heads, size), at + "q_norm"), theta)
        k = rotate(rms((h @ w[at + "k_proj.weight"].T).reshape(n, kv_heads, size), at + "k_norm"), theta)
        v = (h @ w[at + "v_proj.weight"].T).reshape(n, kv_heads, size)
        k, v = (np.repeat(m, heads // kv_heads, axis=1) for m in (k, v))
        score = np.einsum("ihd,jhd->hij", q, k) * config["query_pre_attn_scalar"] ** -0.5
        distance = np.abs(np.arange(n)[:, None] - np.arange(n))
        if not full:
            score = np.where(distance < reach, score, -np.inf)
        score = np.exp(score - score.max(-1, keepdims=True))
        out = np.einsum("hij,jhd->ihd", score / score.sum(-1, keepdims=True), v).reshape(n, -1)
        x = x + rms(out @ w[at + "o_proj.weight"].T, p + "post_attention_layernorm")
        h = rms(x, p + "pre_feedforward_layernorm")
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        x = x + rms((gate * up) @ w[p + "mlp.down_proj.weight"].T, p + "post_feedforward_layernorm")
    return rms(x, "model.norm")


def around_of(ids, normalize=True):
    mean = states_of(ids).mean(0)
    first = np.array(dense_weights(0, WIDE, 64)).reshape(WIDE, 64)
    second, bias = np.array(dense_weights(1, OUT, WIDE)).reshape(OUT, WIDE), np.array(dense_weights(5, OUT, 1))
    out = second @ (first @ mean) + bias
    return out / np.linalg.norm(out) if normalize else out


class EmbedTest(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.around = os.path.join(cls.folder, "around")
        write_around(cls.around)

    def embed(self, *args, **more):
        return json.loads(self.good("embed", *args, **more))

    def copy(self, source, name):
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path, ignore=shutil.ignore_patterns("golden*"))
        return path

    def test_golden(self):
        for folder, model in ((QWEN, QWEN), (QWEN, QWEN_GGUF), (GEMMA, GEMMA)):
            golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
            ids = ["--ids=" + ",".join(map(str, golden[f"embed{i}_ids"][1])) for i in range(3)]
            for options, name in (([], "embed{}"), (["--pooling", "last"], "embed{}"), (["--pooling", "mean"], "embed{}_mean")):
                for i, vector in enumerate(self.embed(model, *ids, "--precise", *options)):
                    self.assertGreater(cosine(vector, golden[name.format(i)][1]), 0.999, (model, options))
                    self.assertAlmostEqual(math.hypot(*vector), 1, places=5)

    @unittest.skipUnless(np, "NumPy is not installed")
    def test_both_directions_and_dense(self):
        ids = [x for i in IDS for x in ("--ids", ",".join(map(str, i)))]
        for got, want in zip(self.embed(self.around, *ids, "--precise"), IDS, strict=True):
            self.assertEqual(len(got), OUT)
            self.assertLess(np.abs(np.array(got) - around_of(want)).max(), 2e-6)
        got = self.embed(self.around, "--no-normalize", "--precise", *ids[:2])[0]
        self.assertLess(np.abs(np.array(got) - around_of(IDS[0], False)).max(), 1e-5)
        for pooling, index in (("last", -1), ("cls", 0)):
            path = self.copy(self.around, "without-dense")
            write_json([module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling")], path, "modules.json")
            got = self.embed(path, "--no-normalize", "--precise", "--pooling", pooling, *ids[:2])[0]
            self.assertLess(np.abs(np.array(got) - states_of(IDS[0])[index]).max(), 2e-5)
        got = self.embed(path, "--no-normalize", "--precise", "--pooling", "none", *ids)
        self.assertEqual([len(vectors) for vectors in got], [len(i) for i in IDS])
        for vectors, want in zip(got, IDS, strict=True):
            self.assertLess(np.abs(np.array(vectors) - states_of(want)).max(), 2e-5)

    def test_a_batch_equals_one_at_a_time(self):
        """Bit-identical for any batch, number of threads, and passes."""
        for model in (QWEN, self.around):
            for pooling in ("mean", "last", "cls", "none"):
                run = ("embed", model, "--pooling", pooling, "--raw", "--prompt-name", "none")
                alone = b"".join(self.good(*run, text) for text in TEXTS[:10]) * 2
                for options in (("--parallel", 1), ("--parallel", 7, "-t", 2), ("--parallel", 64, "-t", 3)):
                    self.assertEqual(self.good(*run, *TEXTS, *options), alone, (model, pooling, options))
                if model == QWEN:  # a text is cut into passes of so many tokens
                    self.assertEqual(self.good(*run, *TEXTS, "-b", 16), alone)

    def test_inputs(self):
        path = os.path.join(self.folder, "texts")
        with open(path, "w", encoding="utf-8") as file:
            file.write("one\n\ntwo\r\nthree")
        want = self.good("embed", QWEN, "one", "two", "three")
        self.assertEqual(self.good("embed", QWEN, "--lines", "-f", path), want)
        self.assertEqual(self.good("embed", QWEN, "--lines", stdin=b"one\ntwo\nthree\n"), want)
        self.assertEqual(self.good("embed", QWEN, "-p", "one", "-p", "two", "-p", "three"), want)
        self.assertEqual(self.good("embed", QWEN, stdin=b"one"), self.good("embed", QWEN, "one"))
        self.assertEqual(self.good("embed", QWEN, "-e", "a\\nb"), self.good("embed", QWEN, "a\nb"))
        # the tokenizer's own end, once
        ids = json.loads(self.good("tokenize", QWEN, "--ids", stdin=b"one")) + [2]
        self.assertEqual(self.good("embed", QWEN, "--ids", ids), self.good("embed", QWEN, "one"))
        self.assertEqual(self.good("embed", QWEN, "--special", "one</s>"), self.good("embed", QWEN, "one"))

    def test_outputs(self):
        path = os.path.join(self.folder, "out")
        vectors = self.embed(QWEN, *TEXTS[:3])
        raw = array.array("f", self.good("embed", QWEN, *TEXTS[:3], "--raw"))
        self.assertEqual(raw, array.array("f", [x for v in vectors for x in v]))
        self.good("embed", QWEN, *TEXTS[:3], "-o", path)
        self.assertEqual([list(r) for r in rows(read_safetensors(path)["embeddings"])], [list(raw[i:i + 128]) for i in (0, 128, 256)])
        self.good("embed", QWEN, *TEXTS[:3], "-o", path, "--json")
        self.assertEqual(read_json(path), vectors)
        self.good("embed", QWEN, *TEXTS[:3], "-o", path, "--raw")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), raw.tobytes())
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out.")], [])

    def test_outputs_of_all_tokens(self):
        path = os.path.join(self.folder, "out")
        run = ("embed", QWEN, *TEXTS[:3], "--pooling", "none")
        texts = json.loads(self.good(*run))
        raw = array.array("f", self.good(*run, "--raw"))
        self.assertEqual(raw, array.array("f", [x for vectors in texts for v in vectors for x in v]))
        self.assertEqual([len(v) for v in texts], [len(json.loads(self.good("tokenize", QWEN, "--ids", "-p", t))) + 1 for t in TEXTS[:3]])
        self.good(*run, "-o", path)
        file = read_safetensors(path)
        self.assertEqual(list(file["tokens"][1]), [len(v) for v in texts])
        self.assertEqual([x for r in rows(file["embeddings"]) for x in r], list(raw))
        # attention is causal: a token's vector is that of the text up to it
        ids = json.loads(self.good("tokenize", QWEN, "--ids", "-p", TEXTS[0]))
        self.assertEqual(self.embed(QWEN, "--ids", ",".join(map(str, ids))), texts[0][-2:-1])

    def test_prompts(self):
        said = setun("embed", self.around, "a")
        self.assertIn(b"this model has prompts, and none is used: query, document", said.stderr)
        query = self.good("embed", self.around, "a", "--prompt-name", "query")
        self.assertEqual(query, self.good("embed", self.around, "query: a", "--prompt-name", "none"))
        self.assertEqual(self.good("embed", self.around, "a", "--prompt-name", "document"), said.stdout)
        self.fails(2, "embed", self.around, "a", "--prompt-name", "other", mentions=["query, document", "other"])
        path = self.copy(self.around, "chosen")
        config = read_json(path, "config_sentence_transformers.json")
        write_json(dict(config, default_prompt_name="query"), path, "config_sentence_transformers.json")
        said = setun("embed", path, "a")
        self.assertIn(b"the model's prompt 'query'", said.stderr)
        self.assertEqual(said.stdout, query)
        write_json(dict(config, default_prompt_name="x"), path, "config_sentence_transformers.json")
        self.fails(1, "embed", path, "a", mentions=["default_prompt_name", "x"])
        write_json({"pooling_mode_mean_tokens": True, "include_prompt": False}, path, "1_Pooling", "config.json")
        write_json(config, path, "config_sentence_transformers.json")
        self.fails(1, "embed", path, "a", "--prompt-name", "query", mentions=["include_prompt"])
        self.good("embed", path, "a", "--prompt-name", "none")

    def test_limits(self):
        self.fails(1, "embed", QWEN, "a", "x " * 600, mentions=["text 1", "at most 512 tokens"])
        self.fails(1, "embed", self.around, "--ids", ",".join(["5"] * 61), mentions=["text 0", "at most 60 tokens", "max_seq_length"])
        self.fails(1, "embed", self.around, "-b", 16, "--ids", ",".join(["5"] * 17), mentions=["text 0", "at most 16 tokens", "n_batch"])
        self.fails(1, "embed", QWEN, "--ids", "5,400", mentions=["400"])
        self.fails(2, "embed", QWEN, "--ids", "", mentions=["--ids"])
        self.fails(2, "embed", QWEN, "a", "--json", "--raw", mentions=["--json"])
        self.fails(1, "embed", QWEN, "a", "--dimensions", 64, mentions=["n_dimensions", 128, 64])
        path = self.copy(QWEN, "nested")
        write_json(dict(read_json(path, "config.json"), matryoshka_dimensions=[32, 64]), path, "config.json")
        whole, part = self.embed(path, "a")[0], self.embed(path, "a", "--dimensions", 64)[0]
        self.fails(1, "embed", path, "a", "--dimensions", 33, mentions=["n_dimensions", "32, 64, 128", "33"])
        for bad in ([0], [129], ["32"], 32, [1.5], [1] * 33):
            write_json(dict(read_json(path, "config.json"), matryoshka_dimensions=bad), path, "config.json")
            self.fails(1, "embed", path, "a", mentions=["matryoshka_dimensions"])
        length = math.hypot(*whole[:64])
        self.assertLess(max(abs(x / length - y) for x, y in zip(whole, part, strict=False)), 1e-6)

    def test_lengths_of_vectors(self):
        """As in sentence-transformers: without a Normalize module vectors are not divided by their length, and truncate_dim
        ends them after that."""
        text = ("a", "--prompt-name", "none")
        path, whole = self.copy(self.around, "lengths"), self.embed(self.around, *text)[0]
        config = read_json(path, "config_sentence_transformers.json")
        write_json(dict(config, truncate_dim=7), path, "config_sentence_transformers.json")
        self.assertEqual(self.embed(path, *text), [whole[:7]])
        self.assertEqual(self.embed(path, *text, "--dimensions", 7), [whole[:7]])
        length = math.hypot(*whole[:7])
        again = self.embed(path, *text, "--normalize")[0]
        self.assertLess(max(abs(x / length - y) for x, y in zip(whole[:7], again, strict=True)), 1e-6)
        self.fails(1, "embed", path, *text, "--dimensions", 8, mentions=["n_dimensions", 7, 8])
        self.fails(1, "convert", path, "-o", path + ".gguf", "--to", "f32", mentions=["truncated length", 7])
        for value, found in ((0, 0), ("7", "string")):
            write_json(dict(config, truncate_dim=value), path, "config_sentence_transformers.json")
            self.fails(1, "embed", path, *text, mentions=["truncate_dim", found])
        write_json(dict(config, truncate_dim=OUT + 1, other=1), path, "config_sentence_transformers.json")
        said = setun("embed", path, *text)
        self.assertEqual(json.loads(said.stdout), [whole])
        self.assertEqual(said.stderr.count(b"config_sentence_transformers.json: other: not read"), 1)
        write_json(read_json(path, "modules.json")[:-1], path, "modules.json")
        raw = self.embed(path, *text)[0]
        self.assertGreater(abs(math.hypot(*raw) - 1), 0.01)
        self.assertEqual([raw], self.embed(self.around, *text, "--no-normalize"))
        self.assertEqual(self.embed(path, *text, "--normalize"), [whole])
        self.fails(2, "embed", path, *text, "--normalize", "--no-normalize", mentions=["--no-normalize"])

    def test_both_directions_make_no_text(self):
        logits = ("-p", "a", "-o", os.path.join(self.folder, "logits"))
        self.fails(1, "logits", self.around, *logits, mentions=["use_bidirectional_attention", "setun embed"])
        path = os.path.join(self.folder, "around.gguf")
        gguf.edit(os.path.join(GOLDEN, "gguf", "llama3.gguf"), path, {"llama.attention.causal": False})
        self.fails(1, "logits", path, *logits, mentions=["attention.causal"])
        a, b = (self.embed(path, "--ids", ids, "--pooling", "cls")[0] for ids in ("5,6,7", "5,9,11"))
        self.assertLess(cosine(a, b), 0.9999)  # the first token sees the others

    def test_without_a_head(self):
        """As embedding models are published: without a head, and without "model." before the names."""
        path, ids = self.copy(os.path.join(HF, "qwen3"), "headless"), ("--ids", "5,6,7", "--precise")
        with open(os.path.join(path, "model.safetensors"), "rb") as file:
            data = file.read()
        length = int.from_bytes(data[:8], "little")
        header = {name.removeprefix("model."): value for name, value in json.loads(data[8:8 + length]).items()}
        text = json.dumps(header).encode()
        with open(os.path.join(path, "model.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + data[8 + length:])
        write_json(dict(read_json(path, "config.json"), tie_word_embeddings=False), path, "config.json")
        self.assertEqual(self.embed(path, *ids), self.embed(os.path.join(HF, "qwen3"), *ids))
        self.fails(1, "logits", path, "-p", "a", "-o", os.path.join(self.folder, "logits"), mentions=["lm_head.weight", "setun embed"])

    def test_what_the_files_say_is_used_or_refused(self):
        def refused(mentions, *change):
            path = self.copy(self.around, "refused")
            write_json(change[0], path, *change[1:])
            self.fails(1, "embed", path, "a", "--prompt-name", "none", mentions=mentions)
        pooling = {"pooling_mode_mean_tokens": True}
        refused(["1_Pooling", "pooling_mode_max_tokens"], {"pooling_mode_max_tokens": True}, "1_Pooling", "config.json")
        refused(["pooling_mode", "weightedmean"], {"pooling_mode": "weightedmean"}, "1_Pooling", "config.json")
        refused(["several"], dict(pooling, pooling_mode_cls_token=True), "1_Pooling", "config.json")
        refused(["word_embedding_dimension", 65], dict(pooling, word_embedding_dimension=65), "1_Pooling", "config.json")
        refused(["new_member", "found 3"], dict(pooling, new_member=3), "1_Pooling", "config.json")
        dense = {"in_features": 64, "out_features": WIDE, "bias": False}
        refused(["2_Dense", "activation_function", "Tanh"], dense, "2_Dense", "config.json")
        refused(["2_Dense", "in_features", 65], dict(dense, in_features=65), "2_Dense", "config.json")
        dense.update(activation_function="torch.nn.modules.linear.Identity")
        refused(["2_Dense", "module_input_name", "token_embeddings"], dict(dense, module_input_name="token_embeddings"),
                "2_Dense", "config.json")
        refused(["4_Normalize", "module_output_name", "x"], {"module_output_name": "x"}, "4_Normalize", "config.json")
        refused(["transformer_task", "text-generation"], {"transformer_task": "text-generation"}, "sentence_bert_config.json")
        refused(["do_lower_case"], {"do_lower_case": True}, "sentence_bert_config.json")
        order = [module(0, "", "Transformer"), module(1, "2_Dense", "Dense"), module(2, "1_Pooling", "Pooling")]
        refused(["modules.json", "order"], order, "modules.json")
        refused(["modules.json", "LSTM"], [module(0, "", "Transformer"), module(1, "1_LSTM", "LSTM")], "modules.json")
        refused(["modules.json", "a folder"], [module(0, "", "Transformer"), module(1, "../x", "Pooling")], "modules.json")
        for name in ("modules.json", "config_sentence_transformers.json"):
            path = self.copy(self.around, "spoiled-" + name)
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write("{")
            self.fails(1, "embed", path, "a", "--prompt-name", "none", mentions=[f"{path}: {name}: line 1"])
        text = os.path.join(path, "text")
        with open(text, "wb") as file:
            file.write(b"first\nsecond \xff\n")
        for lines in ((), ("--lines",)):
            self.fails(1, "embed", self.around, "-f", text, *lines, "--prompt-name", "none",
                       mentions=[f"{text}: the text is not UTF-8 at byte 13"])
        path = self.copy(self.around, "refused")
        os.rename(os.path.join(path, "3_Dense", "model.safetensors"), os.path.join(path, "3_Dense", "pytorch_model.bin"))
        self.fails(1, "embed", path, "a", "--prompt-name", "none", mentions=["pickle"])
        for value, name in ((4, "rank"), (9, "pooling_type")):
            gguf.edit(QWEN_GGUF, path + ".gguf", {"qwen3.pooling_type": value})
            self.fails(1, "embed", path + ".gguf", "a", mentions=["pooling_type", name])
        gguf.edit(QWEN_GGUF, path + ".gguf", {"qwen3.pooling_type": 0})
        self.fails(1, "embed", path + ".gguf", "a", mentions=["pooling_type", "mean, cls, last or none"])
        ids = ("--ids", "5,6,7")
        last = self.embed(QWEN_GGUF, *ids)
        self.assertEqual(self.embed(path + ".gguf", *ids, "--pooling", "last"), last)
        gguf.edit(QWEN_GGUF, path + ".gguf", {"qwen3.pooling_type": 1})
        self.assertEqual(self.embed(path + ".gguf", *ids), self.embed(QWEN_GGUF, *ids, "--pooling", "mean"))
        self.assertNotEqual(self.embed(path + ".gguf", *ids), last)

    def test_conversion_keeps_it(self):
        ids = [x for i in IDS for x in ("--ids", ",".join(map(str, i)))]
        for source, options in ((self.around, ("--to", "f32")), (QWEN, ("--to", "t16")), (GEMMA, ("--to", "t2")), (QWEN, ("--to", "i2_s"))):
            path = os.path.join(self.folder, "converted.gguf")
            self.good("convert", source, "-o", path, *options)
            for vector, want in zip(self.embed(path, *ids, "--precise"), self.embed(source, *ids, "--precise"), strict=True):
                self.assertGreater(cosine(vector, want), 0.99999, (source, options))
        self.fails(1, "convert", self.around, "-o", os.path.join(self.folder, "dense"), "--to", "f32", mentions=["dense"])
        for source in (QWEN, QWEN_GGUF):
            path = os.path.join(self.folder, "packed")
            shutil.rmtree(path, ignore_errors=True)
            self.good("convert", source, "-o", path, "--to", "hf-u8")
            for vector, want in zip(self.embed(path, *ids), self.embed(QWEN, *ids), strict=True):
                self.assertGreater(cosine(vector, want), 0.99999, source)
            self.assertTrue(read_json(path, "1_Pooling", "config.json")["pooling_mode_lasttoken"])


if __name__ == "__main__":
    main()
