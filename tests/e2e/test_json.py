#!/usr/bin/env python3
"""JSON that commands print and read: run, chat; log-probabilities beside float64 ones; the lists of keys."""
import json
import math
import os
import struct
import tempfile

from support import GOLDEN, ROOT, TALES, Case, main, read_safetensors, setun

PROMPT = "Once upon a time"
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}"
TIMINGS = ["load_s", "prefill_tokens", "prefill_s", "prefill_tokens_per_s", "decode_tokens", "decode_s", "decode_tokens_per_s"]


class RunTest(Case):
    def run_json(self, *args):
        return json.loads(self.good("run", TALES, "-p", PROMPT, "--seed", 5, *args, "--json"))

    def run_lines(self, *args):
        lines = [json.loads(line) for line in self.good("run", TALES, "-p", PROMPT, "--seed", 5, *args, "--jsonl").splitlines()]
        return lines[:-1], lines[-1]

    def test_the_same_text_and_ids(self):
        text = self.good("run", TALES, "-p", PROMPT, "--seed", 5, "-n", 30, "--no-echo").decode()
        ids = json.loads(self.good("run", TALES, "-p", PROMPT, "--seed", 5, "-n", 30, "--ids"))
        got = self.run_json("-n", 30)
        self.assertEqual((got["text"], got["ids"], got["stop_reason"]), (text[:-1], ids, "length"))
        self.assertEqual(list(got), ["text", "ids", "stop_reason", "prompt_tokens", "session_tokens", "timings"])
        self.assertEqual(list(got["timings"]), TIMINGS)
        self.assertEqual(got["prompt_tokens"], len(json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", PROMPT))))
        lines, last = self.run_lines("-n", 30)
        self.assertEqual([line["id"] for line in lines], ids)
        self.assertEqual("".join(line["text"] for line in lines) + last["text"], text[:-1])
        self.assertEqual(list(last), ["text", "stop_reason", "prompt_tokens", "session_tokens", "timings"])

    def test_stop_reasons(self):
        whole = self.run_json("-n", 30)["text"]
        stopped = self.run_json("-n", 30, "--stop", whole[20:26])
        self.assertEqual((stopped["stop_reason"], stopped["text"]), ("stop", whole[:whole.index(whole[20:26])]))
        lines, last = self.run_lines("-n", 30, "--stop", whole[20:26])
        self.assertEqual("".join(line["text"] for line in lines) + last["text"], stopped["text"])
        self.assertEqual(last["stop_reason"], "stop")
        self.assertEqual(self.run_json("-n", 0)["ids"], [])
        self.assertEqual(self.run_json("-c", 8, "--ignore-eos")["stop_reason"], "context")
        end = json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", ""))[0]
        ended = self.run_json("-n", 9, "--logit-bias", f"{end}+1000")
        self.assertEqual((ended["stop_reason"], ended["ids"], ended["text"]), ("token", [end], ""))

    def test_options_that_exclude_each_other(self):
        self.fails(2, "run", TALES, "-p", "a", "--json", "--jsonl", mentions=["--jsonl"])
        self.fails(2, "run", TALES, "-p", "a", "--json", "--ids", mentions=["--ids"])
        self.fails(2, "run", TALES, "-p", "a", "--logprobs", 1, mentions=["--logprobs", "--json"])
        self.fails(2, "run", TALES, "-p", "a", "--json", "--logprobs", -1, mentions=["--logprobs"])

    def test_log_probabilities(self):
        """Beside those that float64 gives for the logits that `setun logits` writes."""
        n, top = 12, 5
        # sampling does not change them
        got = self.run_json("-n", n, "--logprobs", top, "--temp", 1.3, "--repeat-penalty", 1.5, "--kv", "f32", "--precise")
        prompt = json.loads(self.good("tokenize", TALES, "--ids", "--bos", "-p", PROMPT))
        ids = prompt + got["ids"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "l.safetensors")
            self.good("logits", TALES, "--ids", ",".join(map(str, ids)), "-o", path, "--kv", "f32", "--precise")
            (_, vocab), values = read_safetensors(path)["logits"]
        self.assertEqual(len(got["logprobs"]), n)
        for i, entry in enumerate(got["logprobs"]):
            row = values[(len(prompt) + i - 1) * vocab:(len(prompt) + i) * vocab]
            high = max(row)
            total = high + math.log(math.fsum(math.exp(x - high) for x in row))
            order = sorted(range(vocab), key=lambda t: (-row[t], t))[:top]
            self.assertEqual(list(entry), ["id", "token", "logprob", "top_logprobs"])
            self.assertEqual(entry["id"], got["ids"][i])
            self.assertAlmostEqual(entry["logprob"], row[entry["id"]] - total, delta=1e-7)
            self.assertEqual([t["id"] for t in entry["top_logprobs"]], order)
            for t in entry["top_logprobs"]:
                self.assertAlmostEqual(t["logprob"], row[t["id"]] - total, delta=1e-7)
        lines, _ = self.run_lines("-n", n, "--logprobs", top, "--temp", 1.3, "--repeat-penalty", 1.5, "--kv", "f32", "--precise")
        self.assertEqual([{k: v for k, v in line.items() if k != "text"} for line in lines], got["logprobs"])
        alone = self.run_json("-n", 2, "--n-probs", 0)["logprobs"]
        self.assertEqual([list(entry) for entry in alone], [["id", "token", "logprob"]] * 2)
        every = self.run_json("-n", 1, "--logprobs", 1000)["logprobs"][0]["top_logprobs"]
        self.assertEqual(len({t["id"] for t in every}), 1000)


class ChatTest(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.template = os.path.join(self.folder.name, "t.jinja")
        with open(self.template, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)

    def args(self, *more):
        return ["chat", TALES, "--template", self.template, "--temp", 0, "-n", 6, *more]

    def test_one_conversation(self):
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": 'Once "é" \n'}]
        for text in (messages, {"messages": messages}):
            got = json.loads(self.good(*self.args("--json"), stdin=json.dumps(text).encode()))
            self.assertEqual(list(got), ["messages", "stop_reason", "prompt_tokens", "new_tokens"])
            self.assertEqual(got["messages"][:2], messages)
            self.assertEqual((got["messages"][2]["role"], len(got["messages"])), ("assistant", 3))
            self.assertEqual((got["stop_reason"], got["new_tokens"]), ("length", 6))
        # it may continue with the output
        got["messages"].append({"role": "user", "content": "And then"})
        again = json.loads(self.good(*self.args("--json", "--system", "T"), stdin=json.dumps(got).encode()))
        self.assertEqual(again["messages"][:1] + again["messages"][1:4], [{"role": "system", "content": "T"}] + got["messages"][1:])

    def test_the_answer_is_that_of_lines(self):
        plain = self.good(*self.args(), stdin=b"Once upon\nThe cat\n").decode().splitlines()
        lines = self.good(*self.args("--jsonl"), stdin=b'{"role": "user", "content": "Once upon"}\n\n'
                                                       b'{"role": "user", "content": "The cat"}\n').splitlines()
        self.assertEqual([json.loads(line)["content"] for line in lines], plain)
        self.assertEqual([list(json.loads(line)) for line in lines], [["role", "content", "stop_reason"]] * 2)
        history = (b'{"role": "user", "content": "Once upon"}\n' + json.dumps({"role": "assistant", "content": plain[0]}).encode()
                   + b'\n{"role": "user", "content": "The cat"}\n')
        # an answer in the input is not generated: the first message has one of its own before it
        got = self.good(*self.args("--json"), stdin=b"[" + b",".join(history.splitlines()) + b"]")
        self.assertEqual(json.loads(got)["messages"][-1]["content"], plain[1])

    def test_what_is_refused(self):
        for stdin, said in ((b"[]", "to answer"), (b"{}", "neither"), (b"{", "standard input"), (b'[{"content": "a"}]', "role"),
                            (b'[{"role": "user", "content": 3}]', "content"),
                            (b'[{"role": "user"}]', 'message 1: expected "content"'),
                            (b'[{"role": "user", "content": "a"}, {"role": "tool", "content": null}]', 'message 2: expected "content"'),
                            (b'{"messages": [{"role": "user", "content": "a"}], "model": "x"}', '"model"'),
                            (b'[{"role": "user", "content": [{"type": "image_url"}]}]', "image")):
            with self.subTest(stdin=stdin):
                self.fails(1, *self.args("--json"), stdin=stdin, mentions=[said])
        self.fails(1, *self.args("--jsonl"), stdin=b'["a"]\n', mentions=["role"])
        self.fails(2, *self.args("--json", "--jsonl"), mentions=["--jsonl"])


INSPECT = ["file", "container", "parts", "architecture", "weights", "tensors", "bytes", "formats", "metadata", "notices"]
PLAN = ["held", "resident", "vectors", "rounding", "ring", "packed", "cache", "cache_pages", "cache_states", "work", "process", "total", "memory_planned",
        "budget", "memory_budget", "least", "reserve", "weights", "stored", "streamed_bytes_per_pass",
        "rearranged_bytes_per_pass", "bytes_per_token", "macs_per_token", "device_budget", "device_least", "device_whole", "device_total",
        "device_rounding", "device_buffers", "device_work", "context", "batch", "disk_read_gbs",
        "read_bandwidth_gbs", "int8_peak_gmacs", "decode_tokens_per_s_at_most", "prefill_tokens_per_s_at_most",
        "expert_cache", "expert_bytes_per_token", "experts", "experts_cached", "expert_hit_rate_uniform",
        "expert_hit_rate_zipf", "decode_tokens_per_s_at_most_zipf", "expert_deltas", "expert_delta_bytes"]
BENCH = ["prefill_tokens_per_s", "prefill_peak_share", "decode_tokens_per_s", "decode_program_s_per_token",
         "decode_system_s_per_token", "decode_bandwidth_share", "bytes_per_token", "cache_bytes_per_token", "macs_per_token",
         "prefill_tokens", "decode_tokens", "depth", "read_bandwidth_gbs", "int8_peak_gmacs", "float_peak_gmacs",
         "prefill_stream_overlap", "memory_peak", "memory_planned", "memory_budget", "streamed_bytes_per_pass",
         "streamed_bytes", "activation", "isa", "threads"]
SEQUENCES = ["sequences", "sequences_tokens_per_s", "sequences_s_per_pass", "sequences_pass_ratio", "sequences_bound_ratio",
             "fork_pass_ratio", "prefix_tokens", "prefix_pass_ratio"]


class KeysTest(Case):
    """The lists of keys: scripts rely on them."""

    def keys(self, *args):
        return list(json.loads(self.good(*args, "--json")))

    def test_lists(self):
        self.assertEqual(self.keys("inspect", TALES), INSPECT)
        self.assertEqual(self.keys("inspect", TALES, "--tensors"), INSPECT + ["tensor_list"])
        self.assertEqual(self.keys("inspect", TALES, "--check"), ["tensors", "bad"])
        self.assertEqual(self.keys("plan", TALES, "-t", 1), PLAN)
        self.assertEqual(self.keys("bench", TALES, "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "-t", 1), BENCH)
        at = BENCH.index("prefill_stream_overlap")
        self.assertEqual(self.keys("bench", TALES, "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "-t", 1, "--sequences", 3),
                         BENCH[:at] + SEQUENCES + BENCH[at:])
        self.assertEqual(self.keys("perplexity", TALES, "-p", "a b c d"), ["perplexity", "tokens", "nll"])
        self.assertEqual(self.keys("version"), ["version", "build", "isa"])

    def test_they_are_documented(self):
        with open(os.path.join(ROOT, "docs", "json.md"), encoding="utf-8") as file:
            words = set(file.read().split("`")[1::2])
        self.assertEqual({key for key in INSPECT + PLAN + BENCH + SEQUENCES + TIMINGS} - words, set())

    def test_one_name_for_one_thing(self):
        plan = json.loads(self.good("plan", TALES, "-t", 1, "--memory", "200M", "--json"))
        bench = json.loads(self.good("bench", TALES, "-p", 8, "-n", 2, "-r", 1, "--buffer", "16M", "-t", 1, "--memory", "200M", "--json"))
        for key in ("memory_budget", "bytes_per_token", "macs_per_token", "streamed_bytes_per_pass"):
            self.assertEqual(plan[key], bench[key], key)
        self.assertEqual((plan["held"], plan["total"], plan["budget"]),
                         (plan["resident"], plan["memory_planned"], plan["memory_budget"]))


class InspectTest(Case):
    def test_config_is_as_it_is(self):
        with open(os.path.join(TALES, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        got = json.loads(self.good("inspect", TALES, "--json"))["metadata"]
        self.assertEqual(got, config)
        kind = lambda v: "number" if type(v) in (int, float) else type(v)
        self.assertEqual({k: kind(v) for k, v in got.items()}, {k: kind(v) for k, v in config.items()})

    def test_gguf_values_have_types_and_are_whole(self):
        source = os.path.join(GOLDEN, "gguf", "llama3.gguf")
        want = read_metadata(source)
        got = json.loads(self.good("inspect", source, "--json"))["metadata"]
        self.assertEqual(list(got), list(want))
        for key, value in want.items():
            with self.subTest(key=key):
                self.assertIs(type(got[key]), type(value))
                if isinstance(value, float):
                    self.assertAlmostEqual(got[key], value, delta=1e-8 * abs(value))
                else:
                    self.assertEqual(got[key], value)
        self.assertGreater(len(got["tokenizer.ggml.tokens"]), 100)

    def test_check(self):
        self.assertEqual(json.loads(self.good("inspect", TALES, "--check", "--json"))["bad"], [])
        with tempfile.TemporaryDirectory() as folder:
            bad = os.path.join(folder, "bad.safetensors")
            header = b'{"x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}'
            with open(bad, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + struct.pack("<2f", 1, math.nan))
            result = setun("inspect", bad, "--check", "--json")
            self.assertEqual(result.returncode, 1)
            self.assertEqual(json.loads(result.stdout),
                             {"tensors": 1, "bad": [{"name": "x", "format": "f32", "offset": 4, "message": "invalid code, scale or number"}]})


def read_metadata(path):
    """A GGUF file's keys and values, read independently, from the format's description."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0

    def take(layout):
        nonlocal at
        value, = struct.unpack_from("<" + layout, data, at)
        at += struct.calcsize("<" + layout)
        return value

    def text():
        nonlocal at
        length = take("Q")
        at += length
        return data[at - length:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, count = take("I"), take("Q")
            return [value(element) for _ in range(count)]
        return take("BbHhIif?"[kind] if kind < 8 else {10: "Q", 11: "q", 12: "d"}[kind])

    take("I"), take("I"), take("Q")
    found = {}
    for _ in range(take("Q")):
        key = text()
        found[key] = value(take("I"))
    return found


main()
