#!/usr/bin/env python3
"""`setun serve`: tools, in the three APIs that have them."""
import json
import os
import tempfile

from serving import ServerCase, has_server, long_model
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


class ToolCase(ServerCase):
    template = TEMPLATE

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "chat.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(cls.template)
        cls.options = (*cls.options, "--template", path)
        cls.model = long_model(cls.folder.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

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
                           ({"tools": [WEATHER, WEATHER]}, "get_weather comes twice"),
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
        message = {"messages": [USER], "max_tokens": 1}
        for more, word in (({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"), ({"tools": {}}, "tools"),
                           ({"tools": [{"name": "f"}], "tool_choice": "any"}, "tool_choice"),
                           ({"tools": [{"name": "f"}], "tool_choice": {"type": "tool"}}, "tool_choice"),
                           ({"tools": [{"name": "f"}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use")):
            self.refused(self.server.post("/v1/messages", {**message, **more}), 400, word)


class DescribedTest(ToolCase):
    """A template that knows nothing of tools."""
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"

    def test_tools_are_described(self):
        text = self.prompt(tools=[PLAIN], messages=[
            USER, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}])
        self.assertIn("[system] You can call these functions, one JSON object each:\n{\"name\":\"f\"", text)
        self.assertIn("[user] Hi\n[assistant] <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n[user] <tool_response>\nr\n</tool_response>\n", text)


if __name__ == "__main__":
    if not has_server():
        print("skipped: this build has no `serve`")
        raise SystemExit(77)
    main()
