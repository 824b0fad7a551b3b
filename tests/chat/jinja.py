"""Jinja2 set up as Hugging Face's transformers sets it up for chat templates, and the program that is compared with it."""
import datetime
import functools
import json
import re
import subprocess

import jinja2
import jinja2.ext
import jinja2.filters
import jinja2.tests
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


@functools.lru_cache(maxsize=4)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def render(template, context):
    """(text, None) or (None, the error)."""
    try:
        text = compiled(template).render(**context)
        text.encode("utf-8")
        return text, None
    except (Exception, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"


# What of Jinja is supported: what published templates use. (Of attributes only methods are told apart, by their names.)
FILTERS = set("capitalize default dictsort first indent int items join last length list lower map min reject rejectattr replace safe select "
              "selectattr sort string title tojson trim unique upper".split())
TESTS = set("boolean defined false float integer iterable mapping none number sequence string true undefined equalto eq == in ne !=".split())
METHODS = set("capitalize endswith format lower lstrip replace rstrip split startswith strip title upper get items keys values".split())
OTHER_ATTRIBUTES = {name for kind in (str, dict, list, tuple, range, int, float) for name in dir(kind) if name[0] != "_"} - METHODS | set(
    "revindex revindex0 depth depth0 cycle changed name arguments caller catch_kwargs catch_varargs".split())
OTHER_GLOBALS = set("dict cycler joiner lipsum caller varargs kwargs".split())
OTHER_NAMES = (set(jinja2.filters.FILTERS) - FILTERS) | (set(jinja2.tests.TESTS) - TESTS)
OTHER_NODES = (jinja2.nodes.Div, jinja2.nodes.FloorDiv, jinja2.nodes.Pow, jinja2.nodes.With, jinja2.nodes.CallBlock, jinja2.nodes.Include,
               jinja2.nodes.Import, jinja2.nodes.FromImport, jinja2.nodes.Extends, jinja2.nodes.Block)
PARAMETERS = {"sort": {"attribute"}, "unique": {"attribute"}, "min": {"attribute"}, "dictsort": set(), "join": {"d"},
              "tojson": {"ensure_ascii", "indent"}, "int": {"default"}}
POSITIONS = {"sort": 0, "unique": 0, "min": 0, "dictsort": 0, "join": 1, "tojson": 2, "int": 1}


def why_unsupported(template):
    """What a template uses that is not supported, or None. It may still render where that is not reached."""
    nodes = jinja2.nodes
    if re.search(r"\{%[-+]?\s*print\b", template):
        return "print"
    for node in ENVIRONMENT.parse(template).find_all(nodes.Node):
        if isinstance(node, OTHER_NODES) and not (isinstance(node, nodes.CallBlock) and isinstance(node.call.node, nodes.ExtensionAttribute)):
            return type(node).__name__
        if isinstance(node, nodes.Filter):
            if node.name not in FILTERS:
                return "filter " + node.name
            if {k.key for k in node.kwargs} - PARAMETERS.get(node.name, {k.key for k in node.kwargs}) or \
                    len(node.args) > POSITIONS.get(node.name, 9):
                return "parameter of " + node.name
            if node.name in ("select", "reject", "selectattr", "rejectattr", "map") and any(
                    isinstance(a, nodes.Const) and a.value in OTHER_NAMES for a in node.args):
                return "by name"
        if isinstance(node, nodes.Call):
            name = node.node.attr if isinstance(node.node, nodes.Getattr) else getattr(node.node, "name", "")
            if len(node.args) > {"startswith": 1, "endswith": 1, "namespace": 0}.get(name, 9):
                return "arguments of " + name
            texts = [a.value for a in [*node.args, getattr(node.node, "node", None)] if isinstance(a, nodes.Const) and isinstance(a.value, str)]
            if name == "format" and (node.kwargs or any(re.search(r"\{[^{}]", text) for text in texts)):
                return "field of format"
            if name == "strftime_now" and any(re.search(r"%-?[^aAbBdHIjmMpSyY%-]", text) for text in texts):
                return "directive of strftime_now"
        if isinstance(node, nodes.Test) and node.name not in TESTS:
            return "test " + node.name
        if isinstance(node, (nodes.Call, nodes.Filter, nodes.Test)) and (node.dyn_args or node.dyn_kwargs):
            return "*"
        if isinstance(node, nodes.Getattr) and node.attr in OTHER_ATTRIBUTES:
            return "." + node.attr
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value in OTHER_ATTRIBUTES:
            return f"[{node.arg.value!r}]"
        if isinstance(node, nodes.Name) and node.name in OTHER_GLOBALS:
            return node.name
        if isinstance(node, nodes.For) and node.recursive:
            return "recursive"
        if isinstance(node, nodes.Mod) and not isinstance(node.left, nodes.Name):
            return "'%' of a string"
    return None


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
        self.status = reply.get("status", 0)
        return reply.get("text"), reply.get("error")
