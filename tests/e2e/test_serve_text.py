#!/usr/bin/env python3
"""`setun serve`: texts and conversations. What it answers is compared with `setun run`, `perplexity` and `logits`, which do not
know the server."""
import http.client
import json
import math
import os
import random
import re
import signal
import socket
import tempfile
import threading
import time

from serving import Server, TemplateCase, long_model, skip_without_server
from support import TALES, Case, argmax, main, negative_log_likelihood, read_safetensors, rows, setun

PROMPT = "Once upon a time"
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m.content == 'refuse me' %}{{ raise_exception('no such message') }}"
            "{% endif %}{{ m.content }}{{ sep | default(' ') }}{% endfor %}")


def run_text(*args, prompt=PROMPT):
    return setun("run", TALES, "-p", prompt, "--no-echo", *args).stdout.decode()[:-1]


def run_json(*args, prompt=PROMPT):
    return json.loads(setun("run", TALES, "-p", prompt, "--json", *args).stdout)


def all_together(calls):
    """Calls each function in a thread of its own. Their results."""
    results = [None] * len(calls)

    def one(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


class TextCase(TemplateCase):
    template = TEMPLATE

    def complete(self, **body):
        return self.server.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, **body})

    def chat(self, text=PROMPT, **body):
        return self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "temperature": 0, **body})

    def text(self, **body):
        reply = self.complete(**body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["choices"][0]["text"]

    def idle(self):
        """Waits until no place is taken."""
        deadline = time.monotonic() + 60
        while any(s["is_processing"] for s in self.server.get("/slots").json):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


class CompletionTest(TextCase):
    options = ("--parallel", 8)

    def test_the_text_of_run(self):
        for n in (1, 5, 40):
            self.assertEqual(self.text(max_tokens=n), run_text("-n", n, "--temp", 0))
        for seed in (1, 2, 2**40):
            self.assertEqual(self.text(max_tokens=30, temperature=0.9, seed=seed, top_k=30, min_p=0.02, repeat_penalty=1.1),
                             run_text("-n", 30, "--temp", 0.9, "--seed", seed, "--top-k", 30, "--min-p", 0.02, "--repeat-penalty", 1.1))

    def test_shape(self):
        r = self.complete(max_tokens=4).json
        self.assertEqual(r["object"], "text_completion")
        self.assertEqual(r["usage"]["prompt_tokens"], 5)
        self.assertEqual(r["usage"]["completion_tokens"], 4)
        self.assertEqual(r["usage"]["total_tokens"], 9)
        self.assertEqual(r["choices"][0]["finish_reason"], "length")
        self.assertIsNone(r["choices"][0]["logprobs"])
        self.assertEqual(r["timings"]["predicted_n"], 4)

    def test_null_means_the_default_and_unknown_ones_are_ignored(self):
        want = self.text(max_tokens=6)
        nulls = dict.fromkeys(("stop", "seed", "n", "logit_bias", "logprobs", "top_p", "top_k", "stream", "echo", "suffix", "best_of",
                               "stream_options", "presence_penalty", "user", "response_format", "grammar"), None)
        self.assertEqual(self.text(max_tokens=6, **nulls), want)
        self.assertEqual(self.text(max_tokens=6, unheard_of={"a": 1}, user="me", suffix=""), want)
        self.assertEqual(self.text(max_tokens=6.0), want)

    def test_logprobs_beside_the_model_s_own(self):
        r = self.complete(max_tokens=0, echo=True, logprobs=3).json["choices"][0]
        ids = json.loads(setun("tokenize", TALES, "-p", PROMPT, "--ids", "--bos").stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "l")
            setun("logits", TALES, "-p", PROMPT, "-o", path)
            logits = rows(read_safetensors(path)["logits"])
        l = r["logprobs"]
        self.assertEqual(r["text"], PROMPT)
        self.assertEqual(len(l["tokens"]), len(ids))
        self.assertEqual((l["token_logprobs"][0], l["top_logprobs"][0]), (None, None))
        self.assertEqual("".join(l["tokens"][1:]), PROMPT)
        for i in range(1, len(ids)):
            self.assertAlmostEqual(l["token_logprobs"][i], -negative_log_likelihood(logits[i - 1], ids[i]), places=5)
            self.assertEqual(PROMPT[l["text_offset"][i]:][:len(l["tokens"][i])], l["tokens"][i])
            best = max(l["top_logprobs"][i].values())
            self.assertAlmostEqual(best, -negative_log_likelihood(logits[i - 1], argmax(logits[i - 1])), places=5)

    def test_what_evaluation_harnesses_send(self):
        ids = json.loads(setun("tokenize", TALES, "-p", "Once upon a time there was a cat.", "--ids", "--bos").stdout)
        r = self.server.post("/v1/completions", {"prompt": [ids, ids[:3]], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                                                 "echo": True, "seed": 1234}).json
        for choice, given in zip(r["choices"], (ids, ids[:3])):
            l = choice["logprobs"]
            self.assertEqual(len(l["token_logprobs"]), len(given) + 1)  # exactly one generated token
            self.assertIsNone(l["token_logprobs"][0])
            for value, top in zip(l["token_logprobs"][1:], l["top_logprobs"][1:]):
                self.assertTrue(top)
                self.assertLessEqual(value, max(top.values()))
        greedy = r["choices"][0]["logprobs"]
        self.assertEqual(greedy["token_logprobs"][-1], max(greedy["top_logprobs"][-1].values()))
        # the end token has an entry of its own
        end = self.server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "logprobs": 1, "echo": True,
                                                   "logit_bias": {"1": 1000}}).json["choices"][0]
        self.assertEqual((len(end["logprobs"]["tokens"]), end["finish_reason"]), (len(ids) + 1, "stop"))

    def test_prompts_that_are_mean_of_perplexity(self):
        text = "The little dog ran to the river and looked at the water. Then it saw a fish."
        l = self.server.post("/v1/completions", {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 0}).json["choices"][0]["logprobs"]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            want = json.loads(setun("perplexity", TALES, "-f", file.name, "--json").stdout)
        values = l["token_logprobs"][1:]
        self.assertEqual(len(values), want["tokens"])
        self.assertAlmostEqual(-math.fsum(values) / len(values), want["nll"], places=6)

    def test_the_same_text_with_and_without_logprobs(self):
        for body in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
            self.assertEqual(self.text(max_tokens=30, logprobs=5, **body), self.text(max_tokens=30, **body))

    def test_streams_say_the_same(self):
        for body in ({}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"echo": True}, {"stop": ["little", "was"]},
                     {"temperature": 1, "seed": 7, "n": 3}):
            want = self.complete(max_tokens=25, **body).json
            r = self.complete(max_tokens=25, stream=True, stream_options={"include_usage": True}, **body)
            self.assertTrue(r.headers["Content-Type"].startswith("text/event-stream"))
            events = r.events
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual((events[-2]["choices"], events[-2]["usage"]["total_tokens"]), ([], want["usage"]["total_tokens"]))
            for choice in want["choices"]:
                mine = [e["choices"][0] for e in events[:-2] if e["choices"][0]["index"] == choice["index"]]
                self.assertEqual("".join(c["text"] for c in mine), choice["text"])
                self.assertEqual([c["finish_reason"] for c in mine], [None] * (len(mine) - 1) + [choice["finish_reason"]])
                if choice["logprobs"]:
                    for key in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                        self.assertEqual(sum((c["logprobs"][key] for c in mine), []), choice["logprobs"][key], key)

    def test_stop_texts_anywhere(self):
        whole = self.text(max_tokens=40)
        for at in range(2, 60, 7):
            stop = whole[at:at + 6]
            for more in ({}, {"stream": True}, {"logprobs": 1}):
                r = self.complete(max_tokens=40, stop=stop, **more)
                text = "".join(e["choices"][0]["text"] for e in r.events if e != "[DONE]") if more.get("stream") else r.json["choices"][0]["text"]
                self.assertEqual(text, whole[:whole.index(stop)])
                if "logprobs" in more:
                    shown = "".join(r.json["choices"][0]["logprobs"]["tokens"])
                    self.assertTrue(shown.startswith(text) and not shown[len(text):].startswith(stop), (shown, stop))
        r = self.complete(max_tokens=40, stop=whole[10:16]).json["choices"][0]
        self.assertEqual(r["finish_reason"], "stop")
        self.assertEqual(self.text(max_tokens=40, stop=[]), whole)
        for bad in ([""], "", ["x"] * 65, [1], {}, "x" * 5000):
            self.refused(self.complete(stop=bad), 400, "stop")

    def test_n_and_seed(self):
        r = self.complete(max_tokens=20, n=4, temperature=1.2, seed=11).json["choices"]
        self.assertEqual([c["index"] for c in r], [0, 1, 2, 3])
        self.assertGreater(len({c["text"] for c in r}), 1)
        for i, c in enumerate(r):  # each is the text of its own seed
            self.assertEqual(c["text"], run_text("-n", 20, "--temp", 1.2, "--seed", 11 + i))
        r = self.server.post("/v1/completions", {"prompt": [PROMPT, "The dog"], "n": 2, "max_tokens": 5, "temperature": 0}).json
        self.assertEqual([c["text"] for c in r["choices"]],
                         [run_text("-n", 5, "--temp", 0)] * 2 + [run_text("-n", 5, "--temp", 0, prompt="The dog")] * 2)
        self.assertEqual(r["usage"]["completion_tokens"], 20)
        self.assertNotEqual(self.text(max_tokens=30, temperature=1.5), self.text(max_tokens=30, temperature=1.5))

    def test_logit_bias(self):
        first = run_json("-n", 1, "--temp", 0)["ids"][0]
        self.assertNotEqual(self.text(max_tokens=1, logit_bias={str(first): -100}), self.text(max_tokens=1))
        self.assertEqual(self.text(max_tokens=1, logit_bias={"391": 100}), " small")
        self.assertEqual(self.text(max_tokens=1, logit_bias=[[391, 100]]), " small")
        self.assertEqual(self.text(max_tokens=1, logit_bias=[[" small", 100]]), " small")
        self.assertNotEqual(self.text(max_tokens=1, logit_bias=[[first, False]]), self.text(max_tokens=1))
        for bad in ({"4096": 1}, {"1": "x"}, {"1": 1e300}, [[1]], 7, [[1, 2, 3]], {"99999999999999999999": 1}):
            self.refused(self.complete(logit_bias=bad), 400, "logit_bias")

    def test_numbers_out_of_range(self):  # CVE-2026-21869
        names = ["max_tokens", "n_predict", "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n",
                 "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
                 "dry_penalty_last_n", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "n",
                 "logprobs", "best_of", "t_max_predict_ms", "n_discard", "mirostat"]
        for name in names:
            for value in (2**31, 2**63, 2**64, 1e300, -2, -2**31, 10**400):
                r = self.complete(**{"max_tokens": 1, name: value})
                if r.status != 200:
                    self.refused(r, 400)
                else:
                    self.assertTrue((name, value) in (("t_max_predict_ms", 2**31), ("presence_penalty", -2), ("frequency_penalty", -2)),
                                    (name, value))
            for value in ("1", [1], {}, True):
                self.assertEqual(self.complete(**{"max_tokens": 1, name: value}).status,
                                 200 if (name, value) in (("logprobs", True), ("n_discard", {})) else 400, (name, value))
        for value in (2**63, 2**64, 1e300, 0.5, "1", -2**64):
            self.refused(self.complete(seed=value), 400)
        for value in (-1, 0, 2**63 - 1, -2**63):
            self.assertEqual(self.complete(seed=value, max_tokens=1).status, 200)
        for value in (0.5, 1.5):
            self.refused(self.complete(max_tokens=value), 400, "integer")

    def test_bodies_that_are_malformed(self):
        for body in ("", "{", "[]", "1", "null", '{"prompt": "a"} x', b"\xff", '{"prompt": "\\ud800"}', '{"prompt": nan}', '{"prompt": 1e999}'):
            self.refused(self.server.post("/v1/completions", body), 400)
        for prompt in ({}, 1, True, [], [[]], [1.5], [-1], [4096], [2**31], [None], [[1], 2], [[[1]]], [1e300]):
            self.refused(self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}), 400)
        self.refused(self.server.post("/v1/completions", {}), 400, "prompt")

    def test_deep_nesting(self):  # llama.cpp issues 25283, 26600; CVE-2025-48944
        for deep in ("[" * 60000, "[" * 60000 + "]" * 60000, '{"a":' * 60000 + "1" + "}" * 60000):
            for body in ('{"prompt": "a", "x": %s}' % deep, deep, '{"messages": [{"role": "user", "content": %s}]}' % deep):
                self.refused(self.server.post("/v1/completions", body), 400)
                self.refused(self.server.post("/v1/chat/completions", body), 400)
        self.assertEqual(self.server.get("/health").status, 200)

    def test_what_cannot_be_honoured(self):
        for body in ({"suffix": "end"}, {"grammar": "root ::= nowhere"}, {"json_schema": {"type": "nothing"}}, {"best_of": 5},
                     {"response_format": {"type": "sound"}}):  # llama.cpp issue 19051
            self.refused(self.complete(**body), 400, next(iter(body)))

    def test_a_prompt_that_is_too_long(self):
        r = self.complete(prompt="word " * 500)
        self.refused(r, 400, "exceeds the available context size", 256, type="exceed_context_size_error")
        self.assertEqual(r.error["n_ctx"], 256)
        self.assertGreater(r.error["n_prompt_tokens"], 256)
        self.assertEqual(self.complete(prompt="word " * 500, stream=True).status, 400)

    def test_a_full_context_ends_the_text(self):
        r = self.complete(max_tokens=10000, ignore_eos=True).json
        settings = self.server.post("/completion", {"prompt": "a", "n_predict": 1, "ignore_eos": True}).json["generation_settings"]
        never = [part for b in settings["logit_bias"] for part in ("--logit-bias", f"{b['token']}-inf")]
        self.assertEqual(r["usage"]["total_tokens"], 256)
        self.assertEqual(r["choices"][0]["finish_reason"], "length")
        self.assertEqual(r["choices"][0]["text"], run_text("-n", 251, "--temp", 0, *never))

    def test_warm_and_cold_alone_and_among_eight(self):
        bodies = [{"prompt": PROMPT + " there was a " + word, "max_tokens": 40, "temperature": 1, "seed": 5, "logprobs": 2}
                  for word in ("cat", "dog", "boy", "king", "tree", "fish", "girl", "bird")]

        def ask(body):
            return self.server.post("/v1/completions", body).json["choices"][0]
        cold = [ask({**b, "cache_prompt": False}) for b in bodies]
        self.assertEqual([ask(b) for b in bodies], cold)
        for _ in range(3):
            self.assertEqual(all_together([lambda b=b: ask(b) for b in bodies]), cold)
        r = self.server.post("/v1/completions", bodies[0]).json
        self.assertEqual(r["usage"]["prompt_tokens_details"]["cached_tokens"], r["usage"]["prompt_tokens"] - 1)

    def test_marked_texts_stay_apart(self):
        """Every client gets the text of its own prompt, whatever the others do."""
        rng = random.Random(1)
        words = "cat dog boy king".split()

        def client(seed):
            r = random.Random(seed)
            for _ in range(2):
                prompt = "Once there was a " + r.choice(words) + " and a " + r.choice(words)
                n = r.randrange(1, 30)
                body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "stream": r.random() < 0.5}
                reply = self.server.post("/v1/completions", body)
                text = "".join(e["choices"][0]["text"] for e in reply.events if e != "[DONE]") if body["stream"] else \
                    reply.json["choices"][0]["text"]
                results.append((prompt, n, text))
        results = []
        all_together([lambda s=rng.random(): client(s) for _ in range(24)])
        self.assertEqual(len(results), 48)
        known = {}
        for prompt, n, text in results:
            longest = known.setdefault(prompt, run_text("-n", 30, "--temp", 0, prompt=prompt))
            self.assertTrue(longest.startswith(text), (prompt, text, longest))


class ChatTest(TextCase):
    def test_a_conversation(self):
        r = self.chat(max_tokens=12).json
        self.assertEqual(r["object"], "chat.completion")
        self.assertEqual(r["choices"][0]["message"], {"role": "assistant", "content": run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")})
        self.assertEqual(r["choices"][0]["finish_reason"], "length")

    def test_streams(self):
        want = self.chat(max_tokens=20, logprobs=True, top_logprobs=2).json["choices"][0]
        events = self.chat(max_tokens=20, logprobs=True, top_logprobs=2, stream=True).events
        first, *rest, last, done = events
        self.assertEqual(done, "[DONE]")
        self.assertEqual(first["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual((last["choices"][0]["delta"], last["choices"][0]["finish_reason"]), ({}, "length"))
        self.assertEqual("".join(e["choices"][0]["delta"]["content"] for e in rest), want["message"]["content"])
        self.assertEqual(sum((e["choices"][0]["logprobs"]["content"] for e in rest), []), want["logprobs"]["content"])
        self.assertEqual("".join(t["token"] for t in want["logprobs"]["content"]), want["message"]["content"])
        self.assertEqual(len({e["id"] for e in events[:-1]}), 1)
        for e in events[:-1]:
            self.assertEqual((e["object"], e["choices"][0]["index"]), ("chat.completion.chunk", 0))

    def test_content_in_parts_and_variables(self):
        want = self.chat("Once\nupon", max_tokens=8).json["choices"][0]["message"]
        parts = [{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}]
        self.assertEqual(self.chat(parts, max_tokens=8).json["choices"][0]["message"], want)
        self.assertEqual(self.chat("Once", max_tokens=8, chat_template_kwargs={"sep": "\nupon "}).json["choices"][0]["message"], want)

    def test_an_answer_that_goes_on(self):
        messages = [{"role": "user", "content": "Once upon a time"}, {"role": "assistant", "content": "there was"}]
        r = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0}).json
        self.assertEqual(r["choices"][0]["message"]["content"], run_text("-n", 8, "--temp", 0, prompt=PROMPT + " there was"))
        self.refused(self.server.post("/v1/chat/completions", {"messages": messages, "add_generation_prompt": True,
                                                               "continue_final_message": True}), 400, "exclude")

    def test_messages_that_are_wrong(self):
        for messages in (None, "string", [], [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}],
                         [{"role": "system", "content": "test"}, {}], [{"role": "user"}], [{"role": "user", "content": [1]}],
                         [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"text": "a"}]}],
                         [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]):
            self.refused(self.server.post("/v1/chat/completions", {"messages": messages}), 400, "messages")
        image = [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]
        self.refused(self.chat(image), 400, "image_url", "not supported")
        self.refused(self.chat("refuse me"), 400, "no such message")
        for body in ({"tools": [{"type": "function"}]}, {"response_format": {"type": "xml"}}, {"top_logprobs": 3},
                     {"logprobs": True, "top_logprobs": 21}, {"logprobs": 1}, {"audio": {"voice": "x"}}, {"modalities": ["text", "audio"]}, {"modalities": "text"}, {"n": 0}, {"n": 129}):
            self.refused(self.chat(**body), 400)

    def test_control_tokens_of_users_stay_text(self):
        one = self.chat("<|end_of_text|>", max_tokens=1).json["usage"]["prompt_tokens"]
        self.assertGreater(one, 5)

    def test_count_of_tokens(self):
        r = self.server.post("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": PROMPT}]}).json
        self.assertEqual(r["input_tokens"], self.chat(max_tokens=1).json["usage"]["prompt_tokens"])

    def test_progress(self):
        text = "word " * 200
        events = [e for e in self.chat(text, max_tokens=2, stream=True, return_progress=True).events if e != "[DONE]" and "prompt_progress" in e]
        first, last = events[0]["prompt_progress"], events[-1]["prompt_progress"]
        self.assertEqual((first["processed"], last["processed"]), (first["cache"], last["total"]))


class LeavingTest(TextCase):
    options = ("--parallel", 2, "--queue", 3)
    long = True
    LONG = {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "temperature": 0}

    def send(self, body):
        data = json.dumps(body).encode()
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return s

    def busy(self):
        return sum(s["is_processing"] for s in self.server.get("/slots").json)

    def wait_busy(self, n):
        deadline = time.monotonic() + 60
        while self.busy() != n:
            self.assertLess(time.monotonic(), deadline, n)
            time.sleep(0.005)

    def waiting(self):
        return int(re.search(rb"^llamacpp:requests_deferred\S* (\d+)", self.server.get("/metrics").body, re.M)[1])

    def drawn(self):
        return int(re.search(rb"^llamacpp:tokens_predicted_total\S* (\d+)", self.server.get("/metrics").body, re.M)[1])

    def test_leaving_in_every_state_frees_the_place(self):
        long_prompt = {**self.LONG, "prompt": "word " * 3500}
        for body in (self.LONG, {**self.LONG, "stream": True}, long_prompt, {**long_prompt, "stream": True}):
            for how in ("close", "reset", "half"):
                before = self.drawn()
                clients = [self.send(body) for _ in range(4)]  # two have places, two wait
                self.wait_busy(2)
                for s in clients:
                    if how == "reset":
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    if how == "half":
                        s.shutdown(socket.SHUT_WR)
                    else:
                        s.close()
                self.wait_busy(0)
                self.assertLess(self.drawn() - before, 2 * body["max_tokens"], (how, body.get("stream")))
                for s in clients:
                    s.close()
        self.assertEqual(self.text(max_tokens=10), run_text("-n", 10, "--temp", 0))

    def test_leaving_disturbs_nobody(self):
        want = self.text(max_tokens=150)
        stop = threading.Event()

        def disturb():
            while not stop.is_set():
                s = self.send({**self.LONG, "stream": True})
                time.sleep(0.01)
                s.close()
        t = threading.Thread(target=disturb)
        t.start()
        try:
            for _ in range(5):
                while (r := self.complete(max_tokens=150)).status == 503:
                    time.sleep(0.01)
                self.assertEqual(r.json["choices"][0]["text"], want)
        finally:
            stop.set()
            t.join()
        self.wait_busy(0)

    def test_a_full_queue(self):
        clients = [self.send(self.LONG) for _ in range(2)]
        self.wait_busy(2)
        deadline = time.monotonic() + 300
        r = None
        while not r or r.status == 200:  # not before the queue is full, which it is no longer when an answer ends
            self.assertLess(time.monotonic(), deadline)
            if self.waiting() == 3:
                r = self.complete(max_tokens=1)
            else:
                clients.append(self.send(self.LONG))
                time.sleep(0.01)
        self.refused(r, 503, "queue")
        self.assertEqual(r.headers["Retry-After"], "1")
        self.assertEqual(self.server.get("/health").status, 200)
        for s in clients:
            s.close()
        self.wait_busy(0)
        self.assertEqual(self.complete(max_tokens=1).status, 200)

    def first_event(self, words, times, i):
        with self.send({**self.LONG, "prompt": "word " * words, "cache_prompt": False, "max_tokens": 1, "stream": True}) as s:
            s.settimeout(300)
            got = b""
            while b"data: " not in got:
                part = s.recv(65536)
                self.assertTrue(part)
                got += part
            times[i] = time.monotonic()

    def first_events(self, *words):
        """Seconds until the first token of prompts of so many words, which are sent at once."""
        times, begin = [0] * len(words), time.monotonic()
        all_together([lambda i=i, n=n: self.first_event(n, times, i) for i, n in enumerate(words)])
        return [t - begin for t in times]

    def test_the_shorter_prompt_is_computed_first(self):
        tried = []
        for _ in range(5):  # with equal shares none would do; a busy machine may delay who sends
            long, short = self.first_events(3500, 500)
            tried.append((long, short))
            if short < long:
                return
        self.fail(tried)

    def test_a_long_prompt_does_not_stall_others(self):
        reply = self.server.connection()
        reply.request("POST", "/v1/completions", json.dumps({**self.LONG, "max_tokens": 600, "stream": True}))
        r = reply.getresponse()
        for _ in range(20):
            r.readline()
        other = self.send({**self.LONG, "prompt": "word " * 3000, "max_tokens": 1})
        events = 0
        other.settimeout(60)
        done = threading.Event()
        t = threading.Thread(target=lambda: (other.recv(100000), done.set()))
        t.start()
        while not done.is_set() and r.readline():
            events += 1
        t.join()
        other.close()
        reply.close()
        self.assertGreater(events, 20)  # while the prompt was computed


class NoSharingTest(TextCase):
    options = ("--no-shared-prefix",)

    def test_nothing_is_reused(self):  # CVE-2025-46570
        body = {"prompt": "word " * 200, "max_tokens": 1, "temperature": 0}
        for _ in range(3):
            r = self.server.post("/v1/completions", body).json
            self.assertEqual((r["usage"]["prompt_tokens_details"]["cached_tokens"], r["timings"]["cache_n"]), (0, 0))
        # the answers of one request may share its own prompt
        r = self.server.post("/v1/completions", {**body, "n": 3}).json
        self.assertEqual(len({c["text"] for c in r["choices"]}), 1)


class EndTest(Case):
    def test_what_has_begun_is_finished(self):
        server = Server("--parallel", 1)
        body = {"prompt": PROMPT, "max_tokens": 240, "ignore_eos": True, "temperature": 0, "stream": True}
        c = server.connection()
        c.request("POST", "/v1/completions", json.dumps(body))
        r = c.getresponse()
        r.readline()
        waiting = server.connection()
        waiting.request("POST", "/v1/completions", json.dumps({**body, "stream": False}))
        time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        text = r.read()
        self.assertIn(b"[DONE]", text)
        self.assertIn(waiting.getresponse().status, (200, 503))
        c.close()
        waiting.close()
        self.assertEqual(server.stop()[0], 0)

    def test_at_once_when_asked_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--parallel", 1, "-t", 1, model=long_model(folder))
        body = {"prompt": "word " * 4000, "max_tokens": 90, "ignore_eos": True, "temperature": 0, "stream": True}
        c = server.connection()
        c.request("POST", "/v1/completions", json.dumps(body))
        r = c.getresponse()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        status, _, err = server.stop(signal.SIGINT)
        self.assertEqual(status, 0, err)
        try:
            text = r.read()
        except (OSError, http.client.HTTPException):
            text = b""
        self.assertNotIn(b"[DONE]", text)  # never a clean end
        c.close()


if __name__ == "__main__":
    skip_without_server()
    main()
