#!/usr/bin/env python3
"""`setun serve`: clients that others wrote, unmodified: the Python packages openai and anthropic, and lm-eval, whose scores must be
those of `setun perplexity` and of greedy runs. Skipped where a package is not installed (pip install openai anthropic
"lm-eval[api]")."""
import array
import base64
import json
import math
import os
import subprocess
import sys
import tempfile
import typing
import unittest

from serving import skip_without_server
from support import TALES, argmax, main, read_safetensors, rows, setun
from test_serve_tools import SHORT, ToolCase
from test_serve_text import PROMPT, TextCase, run_text

try:
    import openai
    import pydantic
except ImportError:
    openai = None
try:
    import anthropic
except ImportError:
    anthropic = None
try:
    import lm_eval
except ImportError:
    lm_eval = None

CHAT = [{"role": "user", "content": PROMPT}]


@unittest.skipUnless(openai, "the Python package openai is not installed")
class OpenaiTest(TextCase):
    options = ("--api-key", "secret")

    def client(self, key="secret", **more):
        return openai.OpenAI(api_key=key, base_url=self.server.url + "/v1", max_retries=0, **more)

    def idle(self):
        pass

    def test_models(self):
        client = self.client()
        self.assertEqual([m.id for m in client.models.list()], ["setun-tales-7m"])
        self.assertEqual(client.models.retrieve("setun-tales-7m").id, "setun-tales-7m")
        with self.assertRaises(openai.NotFoundError) as e:
            client.models.retrieve("org/m")
        self.assertEqual(e.exception.code, "model_not_found")

    def test_errors(self):
        with self.assertRaises(openai.AuthenticationError):
            self.client("wrong").completions.create(model="x", prompt="a")
        with self.assertRaises(openai.BadRequestError) as e:
            self.client().chat.completions.create(model="x", messages=[{"role": "user", "content": "refuse me"}])
        self.assertIn("no such message", str(e.exception))
        with self.assertRaises(openai.BadRequestError) as e:
            self.client().completions.create(model="x", prompt="a", temperature=-1)
        self.assertEqual(e.exception.param, "temperature")

    def test_chat(self):
        want = run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")
        r = self.client().chat.completions.create(model="x", messages=CHAT, max_tokens=12, temperature=0, logprobs=True, top_logprobs=2,
                                                  stop=None, seed=1, n=2)
        self.assertEqual([c.message.content for c in r.choices], [want, want])
        self.assertEqual("".join(t.token for t in r.choices[0].logprobs.content), want)
        self.assertEqual(r.usage.completion_tokens, 24)

    def test_chat_streams(self):
        want = run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")
        stream = self.client().chat.completions.create(model="x", messages=CHAT, max_tokens=12, temperature=0, stream=True,
                                                       stream_options={"include_usage": True})
        chunks = list(stream)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), want)
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 12))
        with self.client().chat.completions.stream(model="x", messages=CHAT, max_tokens=12, temperature=0,
                                                   stop=want[20:26]) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.content, want[:20])

    def test_completions(self):
        want = run_text("-n", 8, "--temp", 0)
        client = self.client()
        self.assertEqual(client.completions.create(model="x", prompt=PROMPT, max_tokens=8, temperature=0).choices[0].text, want)
        chunks = client.completions.create(model="x", prompt=PROMPT, max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in chunks), want)
        r = client.completions.create(model="x", prompt=PROMPT, max_tokens=2, temperature=0, echo=True, logprobs=2)
        self.assertEqual(len(r.choices[0].logprobs.token_logprobs), 7)

    def test_embeddings(self):
        """The client asks for base64 unless told."""
        texts = ["one", "two and three"]
        want = [array.array("f", v).tolist() for v in json.loads(setun("embed", TALES, *texts).stdout)]
        for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            r = self.client().embeddings.create(model="x", input=texts, **options)
            vectors = [d.embedding for d in r.data]
            if options.get("encoding_format") == "base64":
                vectors = [array.array("f", base64.b64decode(v)).tolist() if isinstance(v, str) else v for v in vectors]
            self.assertEqual([array.array("f", v).tolist() for v in vectors], want)
        self.assertEqual(r.usage.prompt_tokens, r.usage.total_tokens)
        with self.assertRaises(openai.BadRequestError) as e:
            self.client().embeddings.create(model="x", input=texts, dimensions=16)
        self.assertEqual(e.exception.param, "dimensions")

    def test_responses(self):
        want = run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")
        r = self.client().responses.create(model="x", input=PROMPT, max_output_tokens=12, temperature=0)
        self.assertEqual((r.output_text, r.status), (want, "incomplete"))
        with self.client().responses.stream(model="x", input=CHAT, max_output_tokens=12, temperature=0) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        self.assertEqual(text, want)

    def test_a_short_timeout_survives_the_queue(self):
        """Timeouts are per read: headers come at once, whatever the queue."""
        client = self.client(timeout=5)
        self.assertEqual(len(list(client.completions.create(model="x", prompt=PROMPT, max_tokens=3, temperature=0, stream=True))), 4)


@unittest.skipUnless(anthropic, "the Python package anthropic is not installed")
class AnthropicTest(TextCase):
    def test_messages(self):
        client = anthropic.Anthropic(api_key="x", base_url=self.server.url, max_retries=0)
        want = run_text("-n", 12, "--temp", 0, prompt=PROMPT + " ")
        r = client.messages.create(model="x", max_tokens=12, messages=CHAT, extra_body={"temperature": 0})
        self.assertEqual((r.content[0].text, r.stop_reason), (want, "max_tokens"))
        with client.messages.stream(model="x", max_tokens=12, messages=CHAT, extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), want)
            self.assertEqual(stream.get_final_message().usage.output_tokens, 12)
        self.assertGreater(client.messages.count_tokens(model="x", messages=CHAT).input_tokens, 4)
        with self.assertRaises(anthropic.BadRequestError):
            client.messages.create(model="x", max_tokens=12, messages=[{"role": "user", "content": "refuse me"}])


TEXTS = ["The little dog ran to the river and looked at the water. Then it saw a fish and was happy.",
         "Once upon a time there was a king who had three sons."]
QUESTIONS = [("Once upon a time there was a little", [" girl named Mia.", " quantum of solace."], 0),
             ("The cat sat on the", [" zebra crossing tax", " mat and slept"], 1),
             ("She was very happy and said", [", \"Thank you!\"", " integral theorem"], 0)]
TASKS = {
    "tales_choice": """task: tales_choice
dataset_path: json
dataset_kwargs: {data_files: {test: %s/choice.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "tales_rolling": """task: tales_rolling
dataset_path: json
dataset_kwargs: {data_files: {test: %s/texts.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]
""",
    "tales_generate": """task: tales_generate
dataset_path: json
dataset_kwargs: {data_files: {test: %s/texts.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 12, temperature: 0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}


@unittest.skipUnless(lm_eval, "the Python package lm-eval is not installed")
class EvaluationTest(TextCase):
    def evaluate(self, model, task, *more):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "choice.jsonl"), "w", encoding="utf-8") as file:
                for text, choices, label in QUESTIONS:
                    file.write(json.dumps({"text": text, "choices": choices, "label": label}) + "\n")
            with open(os.path.join(folder, "texts.jsonl"), "w", encoding="utf-8") as file:
                for text in TEXTS:
                    answer = self.greedy(text, 12)
                    file.write(json.dumps({"text": text, "answer": answer}) + "\n")
            with open(os.path.join(folder, task + ".yaml"), "w", encoding="utf-8") as file:
                file.write(TASKS[task] % folder)
            result = subprocess.run(
                [sys.executable, "-m", "lm_eval", "--model", model, "--tasks", task, "--include_path", folder, *more,
                 "--output_path", os.path.join(folder, "out"), "--log_samples"],
                env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "x"}, capture_output=True, timeout=600)
            self.assertEqual(result.returncode, 0, result.stderr.decode()[-3000:])
            samples = {}
            for base, _, names in os.walk(os.path.join(folder, "out")):
                for name in names:
                    with open(os.path.join(base, name), encoding="utf-8") as file:
                        if name.startswith("samples"):
                            samples = [json.loads(line) for line in file]
                        elif name.startswith("results"):
                            scores = json.load(file)["results"][task]
            return scores, samples

    def model_args(self):
        return ("--model_args", f"model=setun-tales-7m,base_url={self.server.url}/v1/completions,tokenizer_backend=remote,"
                                f"num_concurrent=2,max_length=256")

    def total(self, text, *first):
        """The log-likelihood of a text's tokens from the second one on. lm-eval begins no text with BOS, but whole texts with the
        end token, 1."""
        ids = [*first, *json.loads(setun("tokenize", TALES, "-p", text, "--ids").stdout)]
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump(ids, file)
            file.flush()
            r = json.loads(setun("perplexity", TALES, "--ids", file.name, "--json").stdout)
        return -r["nll"] * r["tokens"]

    @staticmethod
    def greedy(text, n):
        """The likeliest tokens behind a text without BOS, from the logits."""
        ids = json.loads(setun("tokenize", TALES, "-p", text, "--ids").stdout)
        before = len(ids)
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(n):
                path = os.path.join(folder, "l")
                setun("logits", TALES, "--ids", ",".join(map(str, ids)), "-o", path)
                ids.append(argmax(rows(read_safetensors(path)["logits"])[-1]))
        return setun("detokenize", TALES, *ids[before:]).stdout.decode()

    def test_choices(self):
        scores, samples = self.evaluate("local-completions", "tales_choice", *self.model_args())
        self.assertEqual(scores["acc,none"], 1.0)
        for sample in samples:
            text, choices, _ = QUESTIONS[sample["doc_id"]]
            for choice, response in zip(choices, sample["filtered_resps"]):
                self.assertAlmostEqual(float(response[0]), self.total(text + choice) - self.total(text), places=2)

    def test_rolling(self):
        scores, _ = self.evaluate("local-completions", "tales_rolling", *self.model_args())
        want = math.exp(-sum(self.total(t, 1) for t in TEXTS) / sum(len(t.split()) for t in TEXTS))
        self.assertAlmostEqual(scores["word_perplexity,none"] / want, 1, places=2)

    def test_generation(self):
        scores, _ = self.evaluate("local-completions", "tales_generate", *self.model_args())
        self.assertEqual(scores["exact_match,none"], 1.0)

    def test_chat(self):
        scores, samples = self.evaluate("local-chat-completions", "tales_generate", "--apply_chat_template", "--model_args",
                                        f"model=setun-tales-7m,base_url={self.server.url}/v1/chat/completions,num_concurrent=1")
        for sample in samples:
            want = run_text("-n", 12, "--temp", 0, prompt=TEXTS[sample["doc_id"]] + " ")
            self.assertEqual(sample["filtered_resps"][0], want)


@unittest.skipUnless(openai, "the Python package openai is not installed")
class OpenaiToolsTest(ToolCase):
    """parse() and the helpers for tools, with Pydantic's schemas as the client writes them."""

    def client(self):
        return openai.OpenAI(api_key="any", base_url=self.server.url + "/v1", max_retries=0)

    def test_parse(self):
        class Step(pydantic.BaseModel):
            kind: typing.Literal["walk", "run"]
            pair: tuple[int, bool]
            marks: set[typing.Literal["red", "green", "blue"]]

        class Plan(pydantic.BaseModel):
            first: Step
            note: typing.Annotated[str, pydantic.Field(pattern="^[a-z]{1,5}$")]
            blob: typing.Annotated[bytes, pydantic.Field(max_length=4)]

        r = self.client().chat.completions.parse(model="x", messages=CHAT, response_format=Plan, max_tokens=400, seed=1, temperature=1)
        self.assertIsInstance(r.choices[0].message.parsed, Plan)
        with self.client().chat.completions.stream(model="x", messages=CHAT, response_format=Plan, max_tokens=400, seed=1, temperature=1) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.parsed, r.choices[0].message.parsed)

    def test_tools(self):
        class Weather(pydantic.BaseModel):
            city: typing.Annotated[str, pydantic.Field(max_length=5)]
            days: typing.Literal[1, 2, 3]

        tool = openai.pydantic_function_tool(Weather)
        more = dict(model="x", messages=CHAT, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=300, seed=1, temperature=1)
        r = self.client().chat.completions.parse(**more)
        self.assertEqual(r.choices[0].finish_reason, "tool_calls")
        self.assertIsInstance(r.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)
        with self.client().chat.completions.stream(**more) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.tool_calls[0].function.parsed_arguments, r.choices[0].message.tool_calls[0].function.parsed_arguments)
        parsed = self.client().responses.parse(model="x", input="Hi", text_format=Weather, max_output_tokens=300, temperature=1)
        self.assertIsInstance(parsed.output_parsed, Weather)


@unittest.skipUnless(anthropic, "the Python package anthropic is not installed")
class AnthropicToolsTest(ToolCase):
    def test_tools(self):
        client = anthropic.Anthropic(api_key="any", base_url=self.server.url, max_retries=0)
        tool = {"name": "get_weather", "input_schema": SHORT["function"]["parameters"]}
        more = dict(model="x", messages=CHAT, tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=300, extra_body={"seed": 1})
        r = client.messages.create(**more)
        self.assertEqual((r.stop_reason, r.content[0].type, set(r.content[0].input)), ("tool_use", "tool_use", {"city", "days"}))
        with client.messages.stream(**more) as stream:
            r = stream.get_final_message()
        self.assertEqual((r.stop_reason, r.content[0].type, set(r.content[0].input)), ("tool_use", "tool_use", {"city", "days"}))


if __name__ == "__main__":
    skip_without_server()
    main()
