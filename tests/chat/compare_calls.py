#!/usr/bin/env python3
"""Renders conversations that end with calls of tools by every *.jinja of a folder, reads the calls back out of what the
template wrote, and reports where they are not the same.

usage: compare_calls.py FOLDER [--program build/tests/chat_calls] [--verbose]
"""
import argparse
import json
import pathlib
import subprocess
import sys

CALL_NAME, CALL = 4, 3
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "scale": {"type": "number"}, "detail": {"type": "boolean"},
    "where": {"type": "object"}, "list": {"type": "array"}, "nothing": {"type": "null"}}}}} for name in ("get_weather", "look_up")]
ARGUMENTS = [
    {"city": "Oslo"},
    {"city": "a \"b\" <c> & 'd'\n\te \\ f 城 </tool_call>x", "days": -3, "scale": 2.5, "detail": True},
    {"where": {"a": [1, {"b": None}], "c": "d}"}, "list": ["x", "]", 1.25, False], "nothing": None},
    {},
]


def conversation(calls, content):
    called = [{"id": f"call{i}abcd", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
              for i, (name, arguments) in enumerate(calls)]
    return {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                         {"role": "assistant", "content": content, "tool_calls": called}],
            "tools": TOOLS, "bos_token": "<s>", "eos_token": "</s>"}


def contexts():
    for arguments in ARGUMENTS:
        yield [("get_weather", arguments)], None
    yield [("get_weather", ARGUMENTS[0])], "Let me look."
    yield [("get_weather", ARGUMENTS[0]), ("look_up", ARGUMENTS[1])], None


def read_back(parts):
    calls = []
    for channel, text in parts:
        if channel == CALL_NAME:
            calls.append([text, ""])
        elif channel == CALL:
            calls[-1][1] += text
    return [(name, json.loads(text)) for name, text in calls]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--program", default="build/tests/chat_calls")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    faults = 0
    for path in sorted(pathlib.Path(options.folder).glob("*.jinja")):
        cases = list(contexts())
        lines = "".join(json.dumps({"template": path.read_text(encoding="utf-8"), "context": conversation(*case)}) + "\n" for case in cases)
        replies = [json.loads(line) for line in subprocess.run([options.program], input=lines, capture_output=True, check=True, text=True).stdout.splitlines()]
        right = errors = 0
        for (calls, content), reply in zip(cases, replies):
            if "error" in reply:
                errors += 1
                if options.verbose:
                    print("   ", reply["error"])
            elif read_back(reply["read"]) == calls:
                right += 1
            elif options.verbose:
                print("    wrote", repr(reply["written"]), "\n    read ", reply["read"])
        print(f"{path.name:60} {replies[0]['format']:14} {right} right, {errors} refused, {len(cases) - right - errors} wrong")
        faults += len(cases) - right - errors
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
