#!/usr/bin/env python3
"""`setun serve` against its own description, /openapi.json: schemathesis makes requests that the description allows, which must be
answered, and others, which must be refused. Skipped where schemathesis is not installed (pip install schemathesis).

What a schema cannot say is left out of the requests that are to be answered; LEFT_OUT below is all of it."""
import os
import subprocess
import sys
import tempfile
import unittest

from serving import Server, long_model, skip_without_server
from support import SEED, Case, main

EXAMPLES = os.environ.get("SETUN_SCHEMA_EXAMPLES") or "10"  # for each endpoint
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

LEFT_OUT = '''
import schemathesis


def best_of_is_n(body):
    return "best_of" not in body or body["best_of"] in (None, body.get("n") or 1)


def top_logprobs_with_logprobs(body):
    return not body.get("top_logprobs") or body.get("logprobs") is True


def one_way_to_go_on(body):
    """Only an answer is continued, and then no other is begun."""
    if body.get("continue_final_message") is not True:
        return True
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return body.get("add_generation_prompt") is not True and isinstance(last, dict) and last.get("role") == "assistant"


def mirostat_without_an_order(body):
    return not body.get("mirostat") or not body.get("samplers")


def one_answer_at_the_end(body):
    """Which of the two would be continued?"""
    messages = body.get("messages", body.get("input"))
    last = messages[-2:] if isinstance(messages, list) else []
    return not (len(last) == 2 and all(isinstance(m, dict) and m.get("role") == "assistant" for m in last))


def tool_names(body):
    tools = [t for t in body.get("tools") or [] if isinstance(t, dict) and t.get("type") in (None, "function", "custom")]
    return [t["function"].get("name") if isinstance(t.get("function"), dict) else t.get("name") for t in tools]


def a_tool_to_choose(body):
    """tool_choice needs tools, and the one that it names; each has a name of its own."""
    choice, names = body.get("tool_choice"), tool_names(body)
    if len(set(map(str, names))) < len(names):
        return False
    if choice in (None, "none", "auto"):
        return True
    if not isinstance(choice, dict):
        return bool(names)
    if choice.get("type") in ("auto", "none", "any"):
        return choice["type"] != "any" or bool(names)
    return (choice["function"].get("name") if isinstance(choice.get("function"), dict) else choice.get("name")) in names


def no_constraint(body):
    """That a grammar can be read, and a JSON schema satisfied."""
    forms = [body.get("response_format"), (body.get("text") or {}).get("format") if isinstance(body.get("text"), dict) else None]
    return not body.get("grammar") and body.get("json_schema") is None and \
        all(not isinstance(f, dict) or f.get("type") != "json_schema" for f in forms)


def results_behind_calls(body):
    items = body.get("input") if isinstance(body.get("input"), list) else []
    kinds = [i.get("type") for i in items if isinstance(i, dict) and i.get("type") != "reasoning"]
    return not kinds or kinds[-1] != "function_call"


def more_than_thoughts(body):
    """Items of /v1/responses, of which thoughts are left out."""
    items = body.get("input")
    return not isinstance(items, list) or not items or bool(body.get("instructions")) or \
        any(not isinstance(i, dict) or i.get("type") != "reasoning" for i in items)


def numbers_of_64_bits(value):
    if isinstance(value, (dict, list)):
        return all(map(numbers_of_64_bits, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int) or -2**63 <= value < 2**63


def no_zero_in_keys(value):
    """JSON can say such keys, but no member has one."""
    if isinstance(value, dict):
        return all("\\0" not in key and no_zero_in_keys(v) for key, v in value.items())
    return all(map(no_zero_in_keys, value)) if isinstance(value, list) else True


@schemathesis.hook
def filter_case(context, case):
    positive = case.meta is None or case.meta.generation.mode.value == "positive"
    if not positive or not isinstance(case.body, dict):
        return True
    return (best_of_is_n(case.body) and top_logprobs_with_logprobs(case.body) and one_way_to_go_on(case.body) and
            mirostat_without_an_order(case.body) and no_zero_in_keys(case.body) and
            numbers_of_64_bits(case.body) and more_than_thoughts(case.body) and
            one_answer_at_the_end(case.body) and a_tool_to_choose(case.body) and
            no_constraint(case.body) and results_behind_calls(case.body))
'''


class SchemaTest(Case):
    def test_requests_of_the_description(self):
        command = os.path.join(os.path.dirname(sys.executable), "schemathesis")
        if not os.path.exists(command):
            self.skipTest("the Python package schemathesis is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("left_out.py", LEFT_OUT), ("chat.jinja", TEMPLATE)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            server = Server("--template", os.path.join(folder, "chat.jinja"), "-n", 2, model=long_model(folder))
            try:
                result = subprocess.run(
                    [command, "run", server.url + "/openapi.json", "--checks", "all", "--exclude-checks",
                     "use_after_free,ensure_resource_availability,object_level_authorization", "--max-examples", EXAMPLES, "--seed", SEED,
                     "--exclude-path", "/infill",  # the model has no tokens for it
                     "--max-response-time", "600", "--suppress-health-check", "too_slow",  # a slow machine is not a finding
                     "--continue-on-failure", "--warnings", "off"],
                    env={**os.environ, "SCHEMATHESIS_HOOKS": "left_out", "PYTHONPATH": folder, "NO_COLOR": "1"}, cwd=folder,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)
                self.assertEqual(result.returncode, 0, result.stdout.decode())
                self.assertEqual(server.get("/health").status, 200)
            finally:
                self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    skip_without_server()
    unittest.TestCase.maxDiff = None
    main()
