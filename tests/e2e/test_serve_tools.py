#!/usr/bin/env python3
"""`setun serve`: tools, in the three APIs that have them."""
import json
import re
import os
import threading

from serving import TemplateCase, skip_without_server
from support import main

# Calls and tools as Hermes and Qwen 2.5 have them.
TEMPLATE = """{{ bos_token }}{% if tools %}Tools:{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}

Write <tool_call>
{"name": ..., "arguments": ...}
</tool_call>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for call in m.tool_calls or [] %}

<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}

{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}}
PLAIN = {"type": "function", "function": {"name": "f"}}
USER = {"role": "user", "content": "Hi"}


class ToolCase(TemplateCase):
    template = TEMPLATE
    long = True

    def chat(self, **body):
        return self.server.post("/v1/chat/completions", {"messages": [USER], "tools": [WEATHER, PLAIN], "max_tokens": 8, "temperature": 0, **body})

    def prompt(self, **body):
        return self.server.post("/apply-template", {"messages": [USER], **body}).json["prompt"]


class RequestTest(ToolCase):
    def test_the_template_is_given_tools_and_calls(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\", \"days\": 2}"}}
        messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "cold"}]}]
        want = ("Tools:\n" + json.dumps(WEATHER) + "\nWrite <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>\nuser: Hi\nassistant: \n"
                "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>\ntool: cold\nassistant: ")
        self.assertEqual(self.prompt(messages=messages, tools=[WEATHER]).removeprefix("<|begin_of_text|>"), want)
        # The other APIs say the same in other words.
        count = self.server.post("/v1/chat/completions/input_tokens", {"messages": messages, "tools": [WEATHER]}).json
        blocks = [{"role": "user", "content": "Hi"},
                  {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo", "days": 2}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "cold"}]}]}]
        tool = {"name": "get_weather", "description": "The weather.", "input_schema": PARAMETERS}
        self.assertEqual(self.server.post("/v1/messages/count_tokens", {"messages": blocks, "tools": [tool]}).json, count)
        items = [{"role": "user", "content": "Hi"}, {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": call["function"]["arguments"]},
                 {"type": "function_call_output", "call_id": "call_1", "output": "cold"}]
        r = self.server.post("/v1/responses", {"input": items, "tools": [{"type": "function", **WEATHER["function"]}, {"type": "web_search"}],
                                               "max_output_tokens": 1}).json
        self.assertEqual(r["usage"]["input_tokens"], count["input_tokens"])
        self.assertEqual((r["tool_choice"], r["parallel_tool_calls"], len(r["tools"])), ("auto", True, 2))

    def test_none(self):
        self.assertEqual(self.prompt(tools=[WEATHER], tool_choice="none"), self.prompt())
        self.assertNotIn("tool_calls", self.chat(tool_choice="none").json["choices"][0]["message"])

    def test_an_answer_without_calls(self):
        r = self.chat().json["choices"][0]
        self.assertEqual((r["finish_reason"], set(r["message"])), ("length", {"role", "content"}))

    def test_refusals(self):
        function = WEATHER["function"]
        for more, word in (({"tools": 1}, "tools"), ({"tools": [1]}, "tools[0]"), ({"tools": [{"type": "x"}]}, "tools[0].type"),
                           ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
                           ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
                           ({"tools": [{"type": "function", "function": {"name": "a" * 129}}]}, "tools[0].function.name"),
                           ({"tools": [WEATHER, WEATHER]}, "get_weather is given twice"),
                           ({"tools": [{"type": "function", "function": {**function, "parameters": "x"}}]}, "parameters"),
                           ({"tools": [{"type": "function", "function": {**function, "strict": 1}}]}, "strict"),
                           ({"tool_choice": "always"}, "always"), ({"tool_choice": 1}, "tool_choice"),
                           ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "found g"),
                           ({"tools": [], "tool_choice": "required"}, "expected tools"),
                           ({"parallel_tool_calls": 1}, "parallel_tool_calls"), ({"functions": [function]}, "see tools"),
                           ({"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}]}, USER]}, "JSON"),
                           ({"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]}, "results")):
            with self.subTest(more):
                self.refused(self.chat(**more), 400, word)
        twice = json.dumps({"messages": [USER], "tools": [WEATHER]}).replace('"type": "integer"', '"type": "integer", "type": "string"')
        self.refused(self.server.request("POST", "/v1/chat/completions", twice), 400,
                     'duplicate key "type" in #/tools/0/function/parameters/properties/days')
        message = {"messages": [USER], "max_tokens": 1}
        for more, word in (({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"), ({"tools": {}}, "tools"),
                           ({"tools": [{"name": "f"}], "tool_choice": "any"}, "tool_choice"),
                           ({"tools": [{"name": "f"}], "tool_choice": {"type": "tool"}}, "tool_choice"),
                           ({"tools": [{"name": "f"}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use")):
            self.refused(self.server.post("/v1/messages", {**message, **more}), 400, word)


def short(most=5):
    """Arguments that end soon, whatever the model prefers."""
    return {"type": "object", "properties": {"city": {"type": "string", "maxLength": most}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
            "required": ["city", "days"], "additionalProperties": False}


SHORT = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": short()}}


def check_arguments(case, text):
    arguments = json.loads(text)
    case.assertEqual(set(arguments), {"city", "days"})
    case.assertTrue(isinstance(arguments["city"], str) and len(arguments["city"]) <= 5 and 1 <= arguments["days"] <= 14, text)


class RequiredTest(ToolCase):
    """A required call is made, even by the tales model."""

    def test_chat(self):
        want = {"tools": [SHORT, PLAIN], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "max_tokens": 200, "temperature": 1.5}
        for seed in range(3):
            r = self.chat(**want, seed=seed).json["choices"][0]
            self.assertEqual((r["finish_reason"], r["message"]["content"], len(r["message"]["tool_calls"])), ("tool_calls", None, 1))
            call = r["message"]["tool_calls"][0]
            self.assertEqual((set(call), call["type"], call["function"]["name"]), ({"id", "type", "function"}, "function", "get_weather"))
            check_arguments(self, call["function"]["arguments"])
            events = self.chat(**want, seed=seed, stream=True).events
            deltas = [e["choices"][0]["delta"]["tool_calls"][0] for e in events[:-1] if e["choices"][0]["delta"].get("tool_calls")]
            self.assertEqual({k: v for k, v in deltas[0].items() if k != "id"},
                             {"index": 0, "type": "function", "function": {"name": "get_weather", "arguments": ""}})
            self.assertTrue(all(set(d) == {"index", "function"} for d in deltas[1:]))
            self.assertEqual("".join(d["function"]["arguments"] for d in deltas), call["function"]["arguments"])
            self.assertEqual(events[-2]["choices"][0]["finish_reason"], "tool_calls")
            self.assertTrue(len(deltas) > 3, "pieces")

    def test_choices(self):
        r = self.chat(tools=[SHORT], tool_choice="required", parallel_tool_calls=False, n=3, max_tokens=200, temperature=1, seed=5).json["choices"]
        self.assertEqual([len(c["message"]["tool_calls"]) for c in r], [1] * 3)
        self.assertEqual(len({c["message"]["tool_calls"][0]["id"] for c in r}), 3)

    def test_length(self):
        for n in range(1, 40):  # cut anywhere
            message = self.chat(tools=[SHORT], tool_choice="required", max_tokens=n).json["choices"][0]["message"]
            self.assertFalse(message["content"], (n, message))
        r = self.chat(tools=[SHORT], tool_choice="required", max_tokens=3).json["choices"][0]
        self.assertEqual(r["finish_reason"], "length")

    def test_strict(self):
        odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": odd, "strict": True}}
        self.refused(self.chat(tools=[tool], tool_choice="required"), 400, "tool f", "pattern")
        tool["function"]["strict"] = False
        self.assertEqual(self.chat(tools=[tool], tool_choice="required", max_tokens=2).status, 200)

    def test_arguments_are_objects(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}, "strict": True}}
        self.refused(self.chat(tools=[tool], tool_choice="required"), 400, "tool f", "no value")
        tool["function"]["parameters"] = {"$ref": "#/$defs/x", "$defs": {"x": {"enum": ["a", 1, None, [], {"a": 1}]}}}
        for seed in range(5):
            r = self.chat(tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=200, temperature=2, seed=seed).json
            [call] = r["choices"][0]["message"]["tool_calls"]
            self.assertEqual(json.loads(call["function"]["arguments"]), {"a": 1})

    def test_allowed_tools(self):
        f = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}}
        for seed in range(3):
            calls = self.chat(tools=[SHORT, f], tool_choice=allowed, parallel_tool_calls=False, max_tokens=200, temperature=2, seed=seed).json
            self.assertEqual([c["function"] for c in calls["choices"][0]["message"]["tool_calls"]], [{"name": "f", "arguments": "{}"}])
        auto = {"type": "allowed_tools", "allowed_tools": {**allowed["allowed_tools"], "mode": "auto"}}
        self.assertEqual(self.prompt(tools=[SHORT, f], tool_choice=auto), self.prompt(tools=[f]))
        for bad, word in (({"mode": "always"}, "always"), ({"tools": []}, "found none"), ({"tools": [{"type": "function", "function": {"name": "g"}}]}, "found g")):
            wrong = {"type": "allowed_tools", "allowed_tools": {**allowed["allowed_tools"], **bad}}
            self.refused(self.chat(tools=[SHORT, f], tool_choice=wrong), 400, "tool_choice", word)
        body = {"input": "Hi", "tools": [{"type": "function", **SHORT["function"]}, {"type": "function", **f["function"]}, {"type": "web_search"}],
                "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]},
                "parallel_tool_calls": False, "max_output_tokens": 200}
        r = self.server.post("/v1/responses", body).json
        self.assertEqual([(item["name"], item["arguments"]) for item in r["output"]], [("f", "{}")])
        self.assertEqual(r["tool_choice"], body["tool_choice"])

    def test_strict_in_the_other_apis(self):
        odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}
        for path, body in (("/v1/responses", {"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": odd, "strict": True}],
                                              "tool_choice": "required"}),
                           ("/v1/messages", {"messages": [USER], "max_tokens": 2, "tools": [{"name": "f", "input_schema": odd, "strict": True}],
                                             "tool_choice": {"type": "any"}})):
            self.refused(self.server.post(path, body), 400, "tool f", "pattern")
            body["tools"][0]["strict"] = False
            self.assertEqual(self.server.post(path, {**body, "max_output_tokens": 2}).status, 200)

    def test_output_format_of_messages(self):
        form = {"type": "json_schema", "schema": short()}
        body = {"messages": [USER], "max_tokens": 200, "temperature": 2, "seed": 1}
        for more in ({"output_config": {"format": form}}, {"output_format": form}):
            check_arguments(self, self.server.post("/v1/messages", {**body, **more}).json["content"][0]["text"])
        for more, word in (({"output_config": 1}, "output_config"), ({"output_format": {"type": "text"}}, "json_schema"),
                           ({"output_config": {"format": form}, "output_format": form}, "exclude")):
            self.refused(self.server.post("/v1/messages", {**body, **more}), 400, word)

    def test_responses(self):
        body = {"input": "Hi", "tools": [{"type": "function", **SHORT["function"]}, {"type": "web_search"}], "tool_choice": "required",
                "parallel_tool_calls": False, "max_output_tokens": 200, "temperature": 1, "seed": 2}
        r = self.server.post("/v1/responses", body).json
        self.assertEqual((r["status"], [item["type"] for item in r["output"]]), ("completed", ["function_call"]))
        item = r["output"][0]
        self.assertEqual((item["name"], item["status"]), ("get_weather", "completed"))
        check_arguments(self, item["arguments"])
        events = self.server.post("/v1/responses", {**body, "stream": True}).events
        kinds = [e["type"] for e in events]
        self.assertEqual([k for i, k in enumerate(kinds) if k != kinds[i - 1]],
                         ["response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done", "response.completed"])
        self.assertEqual("".join(e["delta"] for e in events if e["type"].endswith("arguments.delta")), item["arguments"])
        self.assertEqual(events[-1]["response"]["output"][0]["arguments"], item["arguments"])
        self.assertEqual({e["output_index"] for e in events if "output_index" in e}, {0})

    def test_messages(self):
        body = {"messages": [USER], "tools": [{"name": "get_weather", "input_schema": short()}], "max_tokens": 200, "temperature": 1, "seed": 2,
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        r = self.server.post("/v1/messages", body).json
        self.assertEqual((r["stop_reason"], [b["type"] for b in r["content"]], r["content"][0]["name"]), ("tool_use", ["tool_use"], "get_weather"))
        check_arguments(self, json.dumps(r["content"][0]["input"]))
        events = self.server.post("/v1/messages", {**body, "stream": True}).events
        self.assertEqual(events[1]["content_block"] | {"id": ""}, {"type": "tool_use", "id": "", "name": "get_weather", "input": {}})
        text = "".join(e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta")
        self.assertEqual(json.loads(text), r["content"][0]["input"])
        self.assertEqual(events[-2]["delta"]["stop_reason"], "tool_use")


class AgentTest(ToolCase):
    """Requests in the shapes of Codex CLI (responses, with tools that are not functions) and of Claude Code (messages)."""

    SHELL = {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 2},
                                              "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 99999}},
             "required": ["command"], "additionalProperties": False}

    def check_command(self, value):
        self.assertTrue(1 <= len(value["command"]) <= 2 and all(isinstance(part, str) for part in value["command"]), value)
        self.assertLessEqual(set(value), {"command", "timeout_ms"})

    def test_codex(self):
        tools = [{"type": "function", "name": "shell", "description": "Runs a command.", "strict": False, "parameters": self.SHELL},
                 {"type": "function", "name": "update_plan", "strict": False, "parameters": PARAMETERS},
                 {"type": "web_search", "external_web_access": False}, {"type": "namespace", "name": "more", "tools": []}]
        body = {"model": "m", "instructions": "You write code.", "tools": tools, "tool_choice": {"type": "function", "name": "shell"},
                "parallel_tool_calls": False, "reasoning": {"effort": "low", "summary": "auto"}, "store": False, "stream": True,
                "include": ["reasoning.encrypted_content"], "prompt_cache_key": "1", "max_output_tokens": 200, "temperature": 1, "seed": 3}
        items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
                 {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]}]
        for _ in range(2):  # the second time with the first call and its result
            events = self.server.post("/v1/responses", {**body, "input": items}).events
            self.assertEqual((events[0]["type"], events[-1]["type"]), ("response.created", "response.completed"))
            [item] = events[-1]["response"]["output"]
            self.assertEqual((item["type"], item["name"]), ("function_call", "shell"))
            self.check_command(json.loads(item["arguments"]))
            items += [item, {"type": "function_call_output", "call_id": item["call_id"], "output": "a.c b.c"}]

    def test_claude_code(self):
        tools = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", **self.SHELL}},
                 {"name": "Read", "input_schema": PARAMETERS, "cache_control": {"type": "ephemeral"}}]
        body = {"model": "m", "max_tokens": 200, "temperature": 1, "seed": 3, "stream": True, "tools": tools, "tool_choice": {"type": "tool", "name": "Bash"},
                "system": [{"type": "text", "text": "You write code.", "cache_control": {"type": "ephemeral"}}], "metadata": {"user_id": "1"}}
        messages = [{"role": "user", "content": [{"type": "text", "text": "List the files.", "cache_control": {"type": "ephemeral"}}]}]
        for _ in range(2):
            events = self.server.post("/v1/messages", {**body, "messages": messages}, headers={"x-api-key": "1", "anthropic-version": "2023-06-01"}).events
            [start] = [e["content_block"] for e in events if e["type"] == "content_block_start"]
            self.assertEqual((start["type"], start["name"]), ("tool_use", "Bash"))
            value = json.loads("".join(e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"))
            self.check_command(value)
            messages += [{"role": "assistant", "content": [{**start, "input": value}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": start["id"], "content": [{"type": "text", "text": "a.c b.c"}]}]}]


class FormatTest(ToolCase):
    """Answers as a schema says."""

    def test_chat(self):
        form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": short()}}
        for more in ({}, {"temperature": 1.5, "seed": 4}, {"presence_penalty": 2, "dry_multiplier": 1, "temperature": 1, "seed": 9}):
            r = self.chat(tools=[], response_format=form, max_tokens=200, **more).json["choices"][0]
            self.assertEqual(r["finish_reason"], "stop")
            check_arguments(self, r["message"]["content"])
            events = self.chat(tools=[], response_format=form, max_tokens=200, stream=True, **more).events
            self.assertEqual("".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1]), r["message"]["content"])
        r = self.chat(tools=[], json_schema=short(), n=2, max_tokens=200, temperature=1, logprobs=True).json["choices"]
        for choice in r:
            check_arguments(self, choice["message"]["content"])
            self.assertTrue(choice["logprobs"]["content"])
        r = self.chat(tools=[], response_format={"type": "json_object"}, max_tokens=1).json["choices"][0]
        self.assertTrue(r["message"]["content"].startswith("{"))

    def test_either(self):
        """With tools that may be called, the answer is JSON as the schema says, or a call."""
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": short()}}
        for seed in range(4):
            m = self.chat(tools=[SHORT], response_format=form, max_tokens=200, temperature=1, seed=seed).json["choices"][0]["message"]
            check_arguments(self, m["content"] or m["tool_calls"][0]["function"]["arguments"])

    def test_other_endpoints(self):
        for path, body, text in (("/v1/completions", {"prompt": "Once", "max_tokens": 200}, lambda r: r["choices"][0]["text"]),
                                 ("/completion", {"prompt": "Once", "n_predict": 200}, lambda r: r["content"])):
            check_arguments(self, text(self.server.post(path, {**body, "json_schema": short(), "temperature": 1, "seed": 1}).json))
        form = {"type": "json_schema", "name": "x", "schema": short(), "strict": True}
        r = self.server.post("/v1/responses", {"input": "Hi", "text": {"format": form}, "max_output_tokens": 200, "temperature": 1, "seed": 1}).json
        check_arguments(self, r["output"][0]["content"][0]["text"])
        self.assertEqual(r["text"], {"format": form})

    def test_refusals(self):
        for more, word in (({"response_format": {"type": "xml"}}, "xml"), ({"response_format": 1}, "response_format"),
                           ({"response_format": {"type": "json_schema"}}, "schema"), ({"response_format": {"type": "json_schema", "json_schema": 1}}, "json_schema"),
                           ({"json_schema": {"type": "strin"}}, "type"), ({"json_schema": [1]}, "json_schema"), ({"grammar": 1}, "grammar"),
                           ({"json_schema": {}, "response_format": {"type": "json_object"}}, "exclude"),
                           ({"json_schema": {}, "ignore_eos": True}, "ignore_eos")):
            self.refused(self.chat(tools=[], **more), 400, word)
        # No token is left: an error that says where, and no token.
        one = {"const": "abc"}
        ids = self.server.post("/tokenize", {"content": "\"abc\""}).json["tokens"]
        bans = {str(i): -1000000 for i in ids}
        self.assertEqual(self.chat(tools=[], json_schema=one, max_tokens=20).json["choices"][0]["message"]["content"], '"abc"')
        self.assertEqual(self.chat(tools=[], json_schema=one, logit_bias=bans, max_tokens=20).json["choices"][0]["message"]["content"], '"abc"')
        false = [[i, False] for i in range(4096)]
        self.refused(self.chat(tools=[], json_schema=one, logit_bias=false[:1000] , max_tokens=20), 400, "constraint")


def slow(n):
    """A pattern whose complement takes long to compile."""
    return {"type": "string", "pattern": "^[ab]*a[ab]{%d}$" % n, "not": {"pattern": "^[ab]*b[ab]{%d}$" % (n - 2)}}


class CompilerTest(ToolCase):
    """When constraints are compiled, and what they may take."""
    options = ("--parallel", "2", "--constraint-memory", "16M")

    def metric(self, name):
        for line in self.server.get("/metrics").body.decode().splitlines():
            if line.startswith(f"setun:{name} "):
                return float(line.split()[1])
        self.fail(f"/metrics has no {name}")

    def ask(self, schema, **body):
        return self.server.post("/completion", {"prompt": "a", "n_predict": 4, "json_schema": schema, **body})

    def test_a_repeated_constraint_is_compiled_once(self):
        before, form = self.metric("constraints_compiled_total"), {"type": "json_schema", "json_schema": {"schema": short()}}
        for i in range(4):
            self.assertEqual(self.ask({"type": "string", "maxLength": 3}, seed=i).status, 200)
            self.assertEqual(self.chat(tools=[], response_format=form, messages=[{"role": "user", "content": f"Hi {i}"}]).status, 200)
            self.assertEqual(self.chat(tool_choice="required", messages=[{"role": "user", "content": f"Ho {i}"}]).status, 200)
        self.assertEqual(self.metric("constraints_compiled_total") - before, 3)
        # What differs in anything that matters is another constraint.
        self.assertEqual(self.ask({"type": "string", "maxLength": 4}).status, 200)
        self.assertEqual(self.chat(tool_choice="required", tools=[PLAIN]).status, 200)
        self.assertEqual(self.chat(tool_choice="required", parallel_tool_calls=False).status, 200)
        self.assertEqual(self.chat(tool_choice={"type": "function", "function": {"name": "f"}}).status, 200)
        self.assertEqual(self.metric("constraints_compiled_total") - before, 7)

    def test_limits_are_named(self):
        for body, mentions in (({"json_schema": {"properties": {"x": slow(24)}}}, r"#/properties/x: .*(memory|time)"),
                               ({"grammar": "root ::= " + "(" * 300 + '"a"' + ")" * 300}, "deep"),
                               ({"grammar": "root ::= root root | \"a\" root | root \"a\" | \"a\"", "n_predict": 200}, "steps|ways|memory")):
            r = self.server.post("/completion", {"prompt": "a", "n_predict": 4, **body})
            self.refused(r, 400)
            self.assertRegex(r.error["message"], mentions)
        for pattern in ("^a{65536}$", "(a{1000}){1000}", "(a{1000}){1000}{1000}", "^.*a.{300}$"):
            self.assertEqual(self.ask({"type": "string", "pattern": pattern}).status, 200, pattern)

    def test_others_are_answered_meanwhile(self):
        before, statuses = self.metric("passes_beside_compiling_total"), []
        threads = [threading.Thread(target=lambda n=n: statuses.append(self.ask(slow(n)).status)) for n in (22, 23, 24, 25)]
        memory = self.server.memory()
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            self.assertEqual(self.server.post("/completion", {"prompt": "a", "n_predict": 8}).status, 200)
        self.assertEqual(statuses, [400] * 4)
        self.assertGreater(self.metric("passes_beside_compiling_total"), before)
        self.assertEqual(self.metric("constraints_waiting"), 0)
        if not os.environ.get("SETUN_SANITIZE"):
            self.assertLess(self.server.memory() - memory, 24 << 20)

    def test_a_client_that_leaves_while_it_waits(self):
        for n in (22, 23, 24, 25):
            body = json.dumps({"prompt": "a", "json_schema": slow(n)}).encode()
            with self.server.socket() as s:
                s.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertEqual(self.ask({"type": "boolean"}).status, 200)


class SharedMemoryTest(ToolCase):
    """Constraints that grow while their texts are matched share one limit."""
    options = ("--parallel", "4", "--constraint-memory", "1M")

    def test_running_answers_share_the_limit(self):
        grammar, replies = 'root ::= x | x "Q"\nx ::= y | x y\ny ::= [^Q] | [^Q] y [^xQ]', []
        threads = [threading.Thread(target=lambda q=q: replies.append(self.server.post("/completion", {
            "prompt": "Once upon a time", "n_predict": 200, "temperature": 0, "grammar": grammar.replace("Q", q)}))) for q in "BCDE"]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            self.assertLessEqual(int(re.search(rb"^setun:constraints_bytes (\d+)", self.server.get("/metrics").body, re.M)[1]), 1 << 20)
        for r in replies:  # which of the two limits is reached first depends on how many run at a time
            self.assertIn(r.status, (400, 503), r.body)
            self.assertIn("--constraint-memory allows: 1048576 bytes" if r.status == 503 else "memory", r.error["message"])
        self.assertEqual(len(replies), 4)
        self.assertEqual(self.server.post("/completion", {"prompt": "a", "n_predict": 4, "grammar": 'root ::= "a"'}).status, 200)


class DescribedTest(ToolCase):
    """A template without tools."""
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"

    def test_tools_are_described(self):
        text = self.prompt(tools=[PLAIN], messages=[
            USER, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}])
        self.assertIn("[system] You can call these functions, one JSON object each:\n{\"name\":\"f\"", text)
        self.assertIn("[user] Hi\n[assistant] <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n[user] <tool_response>\nr\n</tool_response>\n", text)


if __name__ == "__main__":
    skip_without_server()
    main()
