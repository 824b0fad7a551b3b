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
PROPERTIES = {
    "city": {"type": "string"}, "days": {"type": "integer"}, "scale": {"type": "number"}, "detail": {"type": "boolean"},
    "where": {"type": "object", "additionalProperties": {"type": "string"}}, "list": {"type": "array", "items": {"type": "string"}},
    "nothing": {"type": "null"}}
PLAIN = {name: property for name, property in PROPERTIES.items() if name != "nothing"}  # some templates cannot write "null"
ARGUMENTS = [
    {"city": "Oslo"},
    {"city": "a \"b\" <c> & 'd'\n\te \\ f 城 </tool_call>x", "days": -3, "scale": 2.5, "detail": True},
    {"where": {"a": [1, {"b": None}], "c": "d}"}, "list": ["x", "]", 1.25, False], "nothing": None},
    {},
]


def tools(properties):
    return [{"type": "function", "function": {"name": name, "description": "d", "parameters": {
        "type": "object", "properties": properties}}} for name in ("get_weather", "look_up")]


def conversation(calls, content, properties):
    called = [{"id": f"call{i}abcd", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
              for i, (name, arguments) in enumerate(calls)]
    return {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                         {"role": "assistant", "content": content, "tool_calls": called}],
            "tools": tools(properties), "bos_token": "<s>", "eos_token": "</s>"}


def contexts():
    for arguments in ARGUMENTS:
        yield [("get_weather", arguments)], None
    yield [("get_weather", ARGUMENTS[0])], "Let me look."
    yield [("get_weather", ARGUMENTS[0]), ("look_up", ARGUMENTS[1])], None


def read_back(parts):
    """The calls, and the rest of the text."""
    calls, content = [], ""
    for channel, text in parts:
        if channel == CALL_NAME:
            calls.append([text, ""])
        elif channel == CALL:
            calls[-1][1] += text
        elif text:  # a part of a character is not written as JSON
            content += text
    return [(name, json.loads(text)) for name, text in calls], content


def replies(program, template, properties):
    lines = "".join(json.dumps({"template": template, "context": conversation(*case, properties)}) + "\n" for case in contexts())
    done = subprocess.run([program], input=lines, capture_output=True, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--program", default="build/tests/chat_calls")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    faults = count = 0
    for path in sorted(pathlib.Path(options.folder).glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        found = replies(options.program, template, PROPERTIES)
        if all("error" in reply for reply in found):
            found = replies(options.program, template, PLAIN)
        right = errors = kept = 0
        for (calls, content), reply in zip(contexts(), found):
            if "error" in reply:
                errors += 1
                if options.verbose:
                    print("   ", reply["error"])
                continue
            read, text = read_back(reply["read"])
            if read == calls and ((content or "") in text or content not in reply["written"]):
                right += 1
                kept += content is not None and content in text
            elif options.verbose:
                print("    wrote", repr(reply["written"]), "\n    read ", read, repr(text))
        print(f"{path.name:60} {found[0]['format']:14} {right} right, {errors} refused, {len(found) - right - errors} wrong"
              + ("" if kept or errors else "; the template leaves out the text beside a call"))
        count += len(found)
        faults += len(found) - right - errors
    print(f"{count} answers with calls, {faults} read differently")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
