"""Jinja2 set up as Hugging Face's transformers sets it up for chat templates, and the program that is compared with it."""
import datetime
import json
import subprocess

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = [2026, 1, 2, 3, 4, 5]


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant said; the text is the body's."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment(now=NOW):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(*now).strftime(form)
    return env


ENVIRONMENT = environment()


def render(template, context):
    """(text, None) or (None, the error)."""
    try:
        text = ENVIRONMENT.from_string(template).render(**context)
        text.encode("utf-8")
        return text, None
    except (Exception, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"


class Program:
    """The renderer under test: chat_render of the build folder."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        """(text, None) or (None, the error)."""
        request = json.dumps({"template": template, "context": context, "now": NOW}, ensure_ascii=False)
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the program ended with {self.process.wait()} on\n{request[:3000]}")
        reply = json.loads(line)
        self.spans = reply.get("spans")
        return reply.get("text"), reply.get("error")
