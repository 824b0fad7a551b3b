#!/usr/bin/env python3
"""`setun serve`: the other APIs: llama.cpp's, Ollama's, OpenAI's responses, Anthropic's messages, and the description of them all."""
import array
import base64
import json
import os
import shutil
import tempfile

from serving import Server, ServerCase, skip_without_server
from support import GOLDEN, TALES, main, setun
from test_serve_text import PROMPT, TextCase, all_together, run_json, run_text


def floats(values):
    return array.array("f", values)


class LlamaTest(TextCase):
    options = ("--parallel", 2)

    def ask(self, **body):
        return self.server.post("/completion", {"prompt": PROMPT, "temperature": 0, "n_predict": 12, **body})

    def test_slots_are_free_when_the_answer_is_there(self):
        for _ in range(20):
            self.ask(n_predict=1)
            self.assertEqual([s["is_processing"] for s in self.server.get("/slots").json], [False, False])

    def test_completion(self):
        r = self.ask(return_tokens=True, seed=9).json
        self.assertEqual(r["content"], run_text("-n", 12, "--temp", 0))
        self.assertEqual(r["tokens"], run_json("-n", 12, "--temp", 0)["ids"])
        self.assertEqual((r["stop"], r["stop_type"], r["truncated"], r["tokens_predicted"], r["tokens_evaluated"]), (True, "limit", False, 12, 5))
        self.assertEqual((r["generation_settings"]["seed"], r["generation_settings"]["n_predict"]), (9, 12))
        self.assertEqual(self.ask().json["tokens"], [])
        stop = r["content"][5:9]
        r = self.ask(stop=["zzz", stop, stop[0] + "#"]).json
        self.assertEqual((r["stop_type"], r["stopping_word"]), ("word", stop))

    def test_streams(self):
        want = self.ask(n_probs=3, return_tokens=True).json
        events = self.ask(n_probs=3, stream=True).events
        self.assertEqual("".join(e["content"] for e in events), want["content"])
        self.assertEqual(sum((e["tokens"] for e in events), []), want["tokens"])
        self.assertEqual([e["stop"] for e in events], [False] * 12 + [True])
        entries = [e["completion_probabilities"] for e in events[:-1]]
        self.assertTrue(all(len(e) == 1 for e in entries))
        self.assertEqual(sum(entries, []), want["completion_probabilities"])

    def test_probabilities_after_sampling(self):
        r = self.ask(n_probs=10, temperature=1, post_sampling_probs=True, top_k=0, top_p=1, min_p=0, seed=3).json
        for t in r["completion_probabilities"]:
            self.assertTrue(0 < t["prob"] <= 1)
            self.assertEqual([p["prob"] for p in t["top_probs"]], sorted((p["prob"] for p in t["top_probs"]), reverse=True))
        plain = self.ask(n_probs=10, temperature=1, top_k=0, top_p=1, min_p=0, seed=3).json
        self.assertEqual(r["content"], plain["content"])
        # temperature 1 and nothing cut: both are the model's own
        for a, b in zip(r["completion_probabilities"], plain["completion_probabilities"]):
            self.assertAlmostEqual(a["prob"], 2.718281828459045 ** b["logprob"], places=5)

    def test_response_fields(self):
        r = self.ask(response_fields=["content", "generation_settings/n_predict", "nothing"]).json
        self.assertEqual(r, {"content": run_text("-n", 12, "--temp", 0), "generation_settings/n_predict": 12})

    def test_prompts_in_their_forms(self):
        ids = self.server.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        self.assertEqual(ids, json.loads(setun("tokenize", TALES, "-p", PROMPT, "--ids", "--bos").stdout))
        want = self.ask().json["content"]
        self.assertEqual(self.ask(prompt=ids).json["content"], want)
        self.assertEqual(self.ask(prompt=[ids[0], PROMPT]).json["content"], want)
        self.assertEqual([r["content"] for r in self.ask(prompt=[ids, PROMPT, {"prompt_string": PROMPT}]).json], [want] * 3)

    def test_infill_needs_tokens_for_it(self):
        self.refused(self.server.post("/infill", {"input_prefix": "a", "input_suffix": "b"}), 501, "gap")
        for extra in ({}, {"filename": "ok"}, {"filename": 1, "text": "a"}, {"text": 1}, 3):
            self.refused(self.server.post("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [extra]}), 400, "input_extra")

    def test_tokens(self):
        text = "The cat \u5abd \U0001F917 and"
        ids = self.server.post("/tokenize", {"content": text}).json["tokens"]
        self.assertEqual(ids, json.loads(setun("tokenize", TALES, "-p", text, "--ids").stdout))
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids}).json, {"content": text, "prompt": text})
        self.assertEqual(self.server.post("/tokenize", {"prompt": text, "add_special_tokens": True}).json["tokens"][1:], ids)
        pieces = self.server.post("/tokenize", {"content": text, "with_pieces": True}).json["tokens"]
        joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
        self.assertEqual(([p["id"] for p in pieces], joined), (ids, text.encode()))
        for bad in ({"tokens": [4096]}, {"tokens": [-1]}, {"tokens": ["a"]}, {"tokens": 1}, {}, {"tokens": [1e300]}, {"tokens": [2**63]}):
            self.refused(self.server.post("/detokenize", bad), 400)
        self.refused(self.server.post("/detokenize", {"tokens": [3, 4096]}), 400, "tokens[1]: ", "found 4096")
        self.refused(self.server.post("/tokenize", {"content": 1}), 400)

    def test_places_of_faults(self):
        item = {"role": "user", "content": "a"}
        for bad, place in ((1, "input[1]"), ({"type": 1}, "input[1].type"), ({"content": "a"}, "input[1].role"), ({"role": "user"}, "input[1].content"),
                           ({"role": "user", "content": 1}, "input[1]"), ({"type": "function_call"}, "input[1]"), ({"type": "image"}, "input[1]")):
            r = self.server.post("/v1/responses", {"input": [item, bad]})
            self.refused(r, 400, place + ":")
            self.assertEqual(r.error["param"], "input[1]")
        self.refused(self.server.post("/v1/completions", {"prompt": "a", "best_of": 2**31}), 400, "best_of: expected an integer from 1 to", "found 2147483648")

    def test_template(self):
        messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        self.assertEqual(self.server.post("/apply-template", {"messages": messages}).json, {"prompt": "<|begin_of_text|>a b "})

    def test_state(self):
        p = self.server.get("/props").json
        self.assertEqual((p["total_slots"], p["default_generation_settings"]["n_ctx"], p["model_path"]), (2, 256, "setun-tales-7m"))
        self.assertIn("raise_exception", p["chat_template"])
        self.assertTrue(p["chat_template_caps"]["supports_tools"])
        self.assertEqual([s["n_ctx"] for s in self.server.get("/slots").json], [256, 256])
        self.ask()
        text = self.server.get("/metrics").body.decode()
        for name in ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "llamacpp:requests_processing", "setun:cache_pages"):
            self.assertIn(f"# TYPE {name} ", text)
        i = self.server.get("/tokenizer_info").json
        self.assertEqual((i["bos_token"], i["eos_token"]), ("<|begin_of_text|>", "<|end_of_text|>"))

    def test_ollama(self):
        self.assertRegex(self.server.get("/api/version").json["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.server.get("/api/tags").json["models"][0]["name"], "setun-tales-7m")
        self.assertEqual(self.server.post("/api/show", {"model": "setun-tales-7m"}).json["capabilities"], ["completion", "tools"])

    def test_sampling_steps(self):
        a = self.ask(temperature=1, seed=2, samplers=["top_k", "temperature"], top_k=5).json["content"]
        self.assertEqual(a, run_text("-n", 12, "--temp", 1, "--seed", 2, "--samplers", "top_k;temperature", "--top-k", 5))
        a = self.ask(temperature=1, seed=2, mirostat=2, mirostat_tau=3).json["content"]
        self.assertEqual(a, run_text("-n", 12, "--temp", 1, "--seed", 2, "--mirostat", 2, "--mirostat-ent", 3))
        self.refused(self.ask(samplers=["nonsense"]), 400, "nonsense")
        self.refused(self.ask(mirostat=3), 400, "mirostat")


class ResponsesTest(TextCase):
    def ask(self, **body):
        return self.server.post("/v1/responses", {"input": PROMPT, "temperature": 0, "max_output_tokens": 12, **body})

    def test_a_response(self):
        r = self.ask().json
        self.assertTrue(r["id"].startswith("resp_") and r["output"][0]["id"].startswith("msg_"))
        self.assertEqual((r["object"], r["status"], r["incomplete_details"]), ("response", "incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual(r["output"][0]["content"][0]["text"], run_text("-n", 12, "--temp", 0, prompt=PROMPT + " "))
        self.assertEqual(r["usage"]["output_tokens"], 12)

    def test_streams(self):
        want = self.ask().json
        reply = self.ask(stream=True)
        events = reply.events
        self.assertEqual([e["type"] for e in events[:4]], ["response.created", "response.in_progress", "response.output_item.added",
                                                           "response.content_part.added"])
        self.assertEqual([e["type"] for e in events[-4:]], ["response.output_text.done", "response.content_part.done",
                                                            "response.output_item.done", "response.incomplete"])
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        self.assertEqual(text, want["output"][0]["content"][0]["text"])
        self.assertEqual(events[-1]["response"]["output"][0]["content"], want["output"][0]["content"])
        self.assertNotIn("[DONE]", events)
        names = [line[7:] for line in reply.body.decode().split("\n") if line.startswith("event: ")]
        self.assertEqual(names, [e["type"] for e in events])

    def test_items(self):
        items = [{"role": "developer", "content": "Once"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "upon"}]},
                 {"type": "reasoning", "summary": []}]
        r = self.ask(input=items, instructions="a time", tools=[{"type": "web_search"}, {"type": "namespace"}]).json
        self.assertEqual(r["output"][0]["content"][0]["text"], run_text("-n", 12, "--temp", 0, prompt="a time Once upon "))
        for body in ({"input": []}, {"input": 1}, {"input": [{"type": "x"}]}, {"previous_response_id": "resp_1"}, {"background": True},
                     {"tools": [{"type": "function"}]}, {"text": {"format": {"type": "json_schema"}}}, {"max_output_tokens": 0},
                     {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, {"input": None}, {"n": 2}):
            self.refused(self.ask(**body), 400)


REASONS = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"


class StopTest(TextCase):
    template = REASONS

    def test_which_text_ended_an_answer_after_reasoning(self):
        # The model is made to end its reasoning: it draws each of these tokens once, as that makes the next one less likely.
        bias = {self.server.post("/tokenize", {"content": c}).json["tokens"][0]: 990 - 90 * i + (1000 if c in "<>" else 0)
                for i, c in enumerate("Zo</think>")}  # the prompt has < and >
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 28, "temperature": 0, "logit_bias": bias,
                "frequency_penalty": 1000}

        def ask(**more):
            reply = self.server.post("/v1/messages", {**body, **more})
            self.assertEqual(reply.status, 200, reply.body)
            return reply.json

        r = ask()
        self.assertEqual([b["type"] for b in r["content"]], ["thinking", "text"], r)
        text = r["content"][1]["text"]
        self.assertGreater(len(text), 16)
        for at, more in ((0, 3), (8, 5)):
            stop = text[at:at + more]
            r = ask(stop_sequences=["never", stop[0] + "\t", stop + "~", stop])
            self.assertEqual((r["stop_reason"], r["stop_sequence"]), ("stop_sequence", stop))
            shown = [b["text"] for b in r["content"] if b["type"] == "text"]
            self.assertEqual(shown, [text[:text.index(stop)]])


class AnthropicTest(TextCase):
    def ask(self, **body):
        return self.server.post("/v1/messages", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 12, "temperature": 0, **body})

    def test_a_message(self):
        r = self.ask().json
        self.assertEqual((r["type"], r["role"], r["stop_reason"], r["stop_sequence"]), ("message", "assistant", "max_tokens", None))
        self.assertEqual(r["content"], [{"type": "text", "text": run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")}])
        self.assertEqual(r["usage"]["output_tokens"], 12)
        stop = r["content"][0]["text"][4:8]
        r = self.ask(stop_sequences=[stop]).json
        self.assertEqual((r["stop_reason"], r["stop_sequence"]), ("stop_sequence", stop))

    def test_streams(self):
        want = self.ask().json
        events = self.ask(stream=True).events
        kinds = [e["type"] for e in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        self.assertEqual("".join(e["delta"]["text"] for e in events[2:-3]), want["content"][0]["text"])
        self.assertEqual((events[-2]["delta"]["stop_reason"], events[-2]["usage"]["output_tokens"]), ("max_tokens", 12))
        self.assertEqual(events[0]["message"]["content"], [])

    def test_blocks_and_counts(self):
        body = {"system": [{"type": "text", "text": "Once"}], "messages": [
            {"role": "user", "content": [{"type": "text", "text": "upon"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "a"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "time"}]}]}
        r = self.ask(**body).json
        prompt = "Once upon a <tool_response>\ntime\n</tool_response> "  # the template has no results
        self.assertEqual(r["content"][0]["text"], run_text("-n", 12, "--temp", 0, prompt=prompt))
        ids = json.loads(setun("tokenize", TALES, "-p", prompt, "--ids", "--bos").stdout)
        self.assertEqual(self.server.post("/v1/messages/count_tokens", body).json, {"input_tokens": len(ids)})
        unknown = {**body, "samplers": [False], "logit_bias": 1}  # this endpoint has no such parameters
        self.assertEqual(self.server.post("/v1/messages/count_tokens", unknown).json, {"input_tokens": len(ids)})
        for bad in ({"max_tokens": None}, {"messages": None}, {"messages": []}, {"tools": [{"name": ""}]}, {"messages": [{"role": "user"}]},
                    {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"max_tokens": 0}):
            r = self.ask(**bad)
            self.refused(r, 400)
            self.assertEqual(r.json["type"], "error")


class EmbeddingsTest(ServerCase):
    model = os.path.join(GOLDEN, "hf", "bitnet-embed-qwen3-wide")
    options = ("--parallel", 3, "--queue", 4)
    texts = ["one", "two and three", "the license " * 30, "4", "and so on", "of the work"]

    def vectors(self, *args):
        return json.loads(setun("embed", self.model, "--json", *args).stdout)

    def ask(self, path="/v1/embeddings", **body):
        return self.server.post(path, {"model": "x", **body})

    def test_inputs_in_their_forms(self):
        want = self.vectors(*self.texts)
        r = self.ask(input=self.texts, user="me", encoding_format=None).json
        self.assertEqual((r["object"], r["model"]), ("list", "bitnet-embed-qwen3-wide"))
        self.assertEqual([(d["object"], d["index"]) for d in r["data"]], [("embedding", i) for i in range(6)])
        self.assertEqual([floats(d["embedding"]) for d in r["data"]], [floats(v) for v in want])
        ids = [json.loads(setun("tokenize", self.model, "--ids", "-p", text).stdout) + [2] for text in self.texts]
        self.assertEqual(r["usage"], {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))})
        self.assertEqual(self.ask(input=ids).json["data"], r["data"])
        self.assertEqual(self.ask(input=ids[1]).json["data"][0]["embedding"], r["data"][1]["embedding"])
        self.assertEqual(self.ask(input="one").json["data"], r["data"][:1])
        parts = {"content": [{"type": "text", "text": "two "}, {"type": "text", "text": "and three"}]}
        self.assertEqual([d["embedding"] for d in self.ask(input=["one", parts, {"prompt_string": "4"}]).json["data"]],
                         [r["data"][i]["embedding"] for i in (0, 1, 3)])
        packed = self.ask(input=self.texts, encoding_format="base64").json["data"]
        self.assertEqual([array.array("f", base64.b64decode(d["embedding"])) for d in packed], [floats(v) for v in want])

    def test_llama(self):
        want = [floats(v) for v in self.vectors(*self.texts[:2])]
        for path, key in (("/embedding", "content"), ("/embeddings", "input")):
            r = self.ask(path, **{key: self.texts[:2]}).json
            self.assertEqual([(d["index"], [floats(v) for v in d["embedding"]]) for d in r], [(0, want[:1]), (1, want[1:])])
        raw = self.ask("/embedding", content="one", embd_normalize=-1).json[0]["embedding"][0]
        self.assertEqual(floats(raw), floats(self.vectors("one", "--no-normalize")[0]))
        self.refused(self.ask("/embedding", content="one", embd_normalize=1), 400, "embd_normalize")

    def test_all_tokens(self):
        """As with llama.cpp's --pooling none: a list of vectors, not divided by their lengths unless asked for."""
        run = ("--pooling", "none", *self.texts[:3])
        server = Server(*self.options, "--pooling", "none", model=self.model)
        self.addCleanup(server.stop)
        for want, more in ((self.vectors("--no-normalize", *run), {}), (self.vectors(*run), {"embd_normalize": 2})):
            r = server.post("/embedding", {"content": self.texts[:3], **more})
            self.assertEqual([[floats(v) for v in d["embedding"]] for d in r.json], [[floats(v) for v in t] for t in want])
        self.refused(server.post("/v1/embeddings", {"model": "x", "input": "one"}), 400, "--pooling", "none")

    def test_refusals(self):
        self.refused(self.ask(), 400, "input")
        self.assertEqual(self.ask(input=["a", 1e300]).error["param"], "input")
        for bad in ([], 1, {}, [[]], [["a", None]], [[320]], [-1], [1e300], {"content": "a"}, {"content": []},
                    {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}):
            self.refused(self.ask(input=bad), 400)
        self.refused(self.ask(input="a", encoding_format="hex"), 400, "encoding_format", "hex")
        for bad in (0, 129, 64, 1.5, "8", 2**40):
            self.refused(self.ask(input="a", dimensions=bad), 400, "dimensions")
        self.assertEqual(len(self.ask(input="a", dimensions=128).json["data"][0]["embedding"]), 128)
        r = self.ask(input=["a", "x " * 600])
        self.refused(r, 400, "512 tokens")
        self.assertEqual(r.error["type"], "exceed_context_size_error")

    def test_listed_lengths(self):
        """Only the lengths that the model's files list, and the whole one."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "nested")
            shutil.copytree(self.model, path)
            with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                json.dump({**config, "matryoshka_dimensions": [32, 64]}, file)
            server = Server(*self.options, model=path)
            self.addCleanup(server.stop)
            for n in (32, 64, 128):
                want = json.loads(setun("embed", path, "--json", "one", "--dimensions", n).stdout)[0]
                self.assertEqual(len(want), n)
                got = server.post("/v1/embeddings", {"model": "x", "input": "one", "dimensions": n}).json["data"][0]["embedding"]
                self.assertEqual(floats(got), floats(want))
            for bad in (1, 31, 33, 96, 127):
                self.refused(server.post("/v1/embeddings", {"model": "x", "input": "one", "dimensions": bad}), 400, "dimensions", "32, 64, 128", bad)

    def test_beside_texts(self):
        """Vectors and texts are computed in the same passes, and neither changes the other; many texts are one in the queue."""
        want = [floats(v) for v in self.vectors(*self.texts)]
        text = {"prompt": "The", "max_tokens": 40, "temperature": 0}
        alone = self.server.post("/v1/completions", text).json["choices"][0]["text"]
        calls = [lambda: self.ask(input=self.texts * 8), lambda: self.server.post("/v1/completions", text)] * 2
        for i, r in enumerate(all_together(calls)):
            self.assertEqual(r.status, 200, r.body)
            if i % 2:
                self.assertEqual(r.json["choices"][0]["text"], alone)
            else:
                self.assertEqual([floats(d["embedding"]) for d in r.json["data"]], want * 8)


class DescriptionTest(TextCase):
    def test_openapi(self):
        d = self.server.get("/openapi.json").json
        self.assertEqual(d["openapi"], "3.1.0")
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/completion", "/health", "/v1/models/{name}"):
            self.assertIn(path, d["paths"])
        fields = d["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        self.assertEqual((fields["temperature"]["minimum"], fields["top_p"]["maximum"]), (0, 1))
        for path, operations in d["paths"].items():  # every described path exists
            for method in operations:
                r = self.server.request(method.upper(), path.replace("{name}", "x"), body="{" if method == "post" else None)
                self.assertIn(r.status, (200, 400, 404), (method, path))
                if "{" not in path:
                    self.assertNotEqual(r.status, 404, path)



class TypesTest(ServerCase):
    """A value of another type than the description of the interface says is refused, not ignored."""

    def test_types(self):
        message = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        for path, body, word in (("/api/show", {"model": {}}, "model"), ("/v1/responses", {"input": "a", "tools": [1]}, "tools"),
                                 ("/v1/responses", {"input": "a", "text": "b"}, "text"),
                                 ("/v1/messages", {**message, "thinking": 7}, "thinking"),
                                 ("/v1/messages/count_tokens", {**message, "tools": [{"type": "web_search_20250305", "name": "a"}]}, "tools")):
            self.refused(self.server.post(path, body), 400, word)

    def test_a_model_without_a_template(self):
        r = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
        self.refused(r, 400, "the model has no chat template, and none is known")
        self.assertEqual(r.error["message"].count("no chat template"), 1)

    def test_description(self):
        paths = self.server.get("/openapi.json").json["paths"]
        schema = paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        self.assertEqual(schema["required"], ["messages"])
        self.assertEqual(schema["properties"]["functions"]["enum"], [None, False, 0, "", [], {}])


if __name__ == "__main__":
    skip_without_server()
    main()
