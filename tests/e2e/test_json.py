#!/usr/bin/env python3
"""JSON that commands print and read: run, chat; log-probabilities beside float64 ones; the lists of keys."""
import json
import math
import os
import tempfile

from support import TALES, Case, main, read_safetensors

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
        # what sampling changes does not change them
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
        # it may go on with what came out
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
        # an answer that is given is taken, not made: the first message has one of its own before it
        got = self.good(*self.args("--json"), stdin=b"[" + b",".join(history.splitlines()) + b"]")
        self.assertEqual(json.loads(got)["messages"][-1]["content"], plain[1])

    def test_what_is_refused(self):
        for stdin, said in ((b"[]", "to answer"), (b"{}", "neither"), (b"{", "standard input"), (b'[{"content": "a"}]', "role"),
                            (b'[{"role": "user", "content": 3}]', "content"),
                            (b'{"messages": [{"role": "user", "content": "a"}], "model": "x"}', '"model"'),
                            (b'[{"role": "user", "content": [{"type": "image_url"}]}]', "image")):
            with self.subTest(stdin=stdin):
                self.fails(1, *self.args("--json"), stdin=stdin, mentions=[said])
        self.fails(1, *self.args("--jsonl"), stdin=b'["a"]\n', mentions=["role"])
        self.fails(2, *self.args("--json", "--jsonl"), mentions=["--jsonl"])


main()
