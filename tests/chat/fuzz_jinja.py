#!/usr/bin/env python3
"""Compares random templates, made from a grammar, with Jinja2 as transformers sets it up.

usage: fuzz_jinja.py [--program build/tests/chat_render] [--count 20000] [--seed 1]
What this program refuses as unsupported, and jinja.py says is so, is counted apart, not as a difference. Nor is an unknown
filter or test in what Jinja folds away when it compiles, which it never looks at.
"""
import argparse
import random
import re
import sys

import jinja

CONTEXT = {
    "messages": [{"role": "user", "content": " Hello <b> & 'you' "}, {"role": "assistant", "content": "Größe İß ΑΣ\n\nx"},
                 {"role": "tool", "content": None, "n": 3, "args": {"b": 1, "A": [1.5, True, None], "c": {"d": "e"}}}],
    "s": "abc Def-gHi", "e": "", "u": "naïve 你好 🎉", "w": " \t x\u00a0y \u2003", "i": 5, "z": 0, "neg": -7, "f": 2.5, "g": 1e-7,
    "big": 1e16, "t": True, "fa": False, "n": None, "l": [3, 1, 2], "ls": ["b", "A", "a", "C"], "el": [], "nested": [[1, 2], [3, 4]],
    "d": {"x": 1, "y": "why", "items": 3, "Z": None}, "ed": {}, "users": [{"name": "Bob", "age": 3, "ok": True},
                                                                     {"name": "alice", "age": 2.5}, {"name": "Bob", "age": 1}],
    "mixed": [1, "a", None, 2.0, True, [1], {"k": "v"}],
}
NAMES = list(CONTEXT) + ["missing", "x", "y", "loop", "ns"]
ATTRIBUTES = ["x", "y", "items", "keys", "role", "content", "name", "age", "Z", "missing", "append", "__class__", "args"]
STRINGS = ["'a'", "''", "'b'", "' '", "'x'", "\"it's\"", "'\\n'", "'l'", "'Bob'", "'name'", "'<&>'", "'é'", "'ab'", "'%s'", "'{}'", "'1'", "'2.5'", "'-3'"]
METHODS = [
    ("split", 0, 2), ("strip", 0, 1), ("lstrip", 0, 1), ("rstrip", 0, 1), ("startswith", 1, 1), ("endswith", 1, 1), ("upper", 0, 0),
    ("lower", 0, 0), ("title", 0, 0), ("capitalize", 0, 0), ("replace", 2, 3), ("find", 1, 2), ("rfind", 1, 1), ("count", 1, 1),
    ("index", 1, 1), ("join", 1, 1), ("items", 0, 0), ("keys", 0, 0), ("values", 0, 0), ("get", 1, 2), ("append", 1, 1), ("copy", 0, 0),
    ("isdigit", 0, 0), ("isupper", 0, 0), ("islower", 0, 0), ("isspace", 0, 0), ("isalpha", 0, 0), ("zfill", 1, 1), ("ljust", 1, 2), ("rjust", 1, 2),
    ("center", 1, 2), ("format", 0, 2), ("splitlines", 0, 1), ("rsplit", 0, 2), ("partition", 1, 1), ("rpartition", 1, 1), ("removeprefix", 1, 1),
    ("swapcase", 0, 0), ("casefold", 0, 0), ("isalnum", 0, 0), ("istitle", 0, 0)]
FILTERS = [
    ("tojson", 0, 0), ("length", 0, 0), ("trim", 0, 1), ("string", 0, 0), ("default", 0, 2), ("join", 0, 2), ("items", 0, 0), ("list", 0, 0),
    ("safe", 0, 0), ("dictsort", 0, 2), ("lower", 0, 0), ("upper", 0, 0), ("replace", 2, 3), ("indent", 0, 3), ("int", 0, 1), ("float", 0, 1),
    ("min", 0, 0), ("max", 0, 0), ("sort", 0, 2), ("unique", 0, 1), ("first", 0, 0), ("last", 0, 0), ("reverse", 0, 0), ("abs", 0, 0),
    ("round", 0, 1), ("capitalize", 0, 0), ("title", 0, 0), ("sum", 0, 0), ("e", 0, 0), ("count", 0, 0), ("batch", 1, 2), ("slice", 1, 2),
    ("truncate", 0, 2), ("format", 0, 2), ("attr", 1, 1), ("center", 0, 1)]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "number", "integer", "float", "true", "false",
         "odd", "even", "lower", "upper", "callable", "escaped", "filter", "test"]
TESTS1 = ["equalto", "in", "divisibleby", "eq", "ne", "lt", "gt", "ge", "le", "sameas"]


# What depends on values: SETUN_ERROR_UNSUPPORTED for it needs nothing in the template to be unsupported.
BOUNDS = re.compile("beyond 64 bits|'%' that formats|printing a value|comparing values|surrogate|iterating over 'loop'|a field other than|of safe text|"
                    "several attributes|attribute of a macro|by name|the (filter|test|method) '")


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def args(self, low, high, depth):
        return ", ".join(self.expr(depth - 1) for _ in range(self.r.randint(low, high)))

    def filter(self, depth):
        r = self.r
        k = r.random()
        if k < 0.12:
            return r.choice(["map('upper')", "map(attribute='name')", "map('int')", "map(attribute='x', default=0)", "map('length')", "map('first')"])
        if k < 0.24:
            return r.choice(["select", "reject"]) + r.choice(["", "('string')", "('odd')", "('equalto', 1)", "('in', l)", "('defined')"])
        if k < 0.34:
            return r.choice(["selectattr", "rejectattr"]) + r.choice(["('ok')", "('name', 'equalto', 'Bob')", "('role', 'defined')", "('age', 'gt', 2)"])
        if k < 0.44:
            return r.choice(["sort(attribute='name')", "tojson(indent=2)", "tojson(ensure_ascii=true)", "join(', ', attribute='name')", "sort(reverse=true)",
                             "unique(attribute='name')", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "dictsort(reverse=true)",
                             "indent(2, true)", "default('d', true)", "max(attribute='age')", "sum(attribute='age')", "sort(attribute='age,name')",
                             "round(1, 'floor')", "replace('a', 'b', 1)", "dictsort(by='value')", "indent(first=true, blank=true)"])
        name, low, high = r.choice(FILTERS)
        args = self.args(low, high, depth)
        return f"{name}({args})" if args else name

    def expr(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.15:
            return r.choice([r.choice(NAMES), r.choice(STRINGS), r.choice(["0", "1", "2", "-1", "3", "1.5", "true", "none", "10", "0x1f", "1_000", "1e3"])])
        d = depth - 1
        k = r.randrange(22)
        if k == 0:
            return f"{self.expr(d)} {r.choice(['+', '-', '*', '/', '//', '%', '**', '~', '+', '~'])} {self.expr(d)}"
        if k == 1:
            return f"{self.expr(d)} {r.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {self.expr(d)}"
        if k == 2:
            return f"{self.expr(d)} {r.choice(['and', 'or'])} {self.expr(d)}"
        if k == 3:
            return f"not {self.expr(d)}"
        if k == 4:
            return f"({self.expr(d)})"
        if k == 5:
            return f"{self.expr(d)} if {self.expr(d)}" + (f" else {self.expr(d)}" if r.random() < 0.8 else "")
        if k == 6:
            return f"[{self.args(0, 3, depth)}]"
        if k == 7:
            return "{" + ", ".join(f"{self.expr(0)}: {self.expr(d)}" for _ in range(r.randint(0, 3))) + "}"
        if k == 8:
            return f"({self.expr(d)}, {self.args(0, 2, depth)})"
        if k in (9, 10):
            return f"{self.primary(d)}.{r.choice(ATTRIBUTES)}"
        if k == 11:
            return f"{self.primary(d)}[{self.expr(d)}]"
        if k == 12:
            # Of a variable: Jinja folds slices of constants, and then forgives wrong ones.
            def bound():
                return "" if r.random() < 0.4 else r.choice(["0", "1", "2", "-1", "-2", "7", "i", "neg", "none", "s"])
            return f"{r.choice(NAMES)}[{bound()}:{bound()}" + (f":{bound()}]" if r.random() < 0.4 else "]")
        if k in (13, 14):
            name, low, high = r.choice(METHODS)
            return f"{self.primary(d)}.{name}({self.args(low, high, depth)})"
        if k in (15, 16, 17):
            return f"{self.primary(d)}|{self.filter(depth)}"
        if k == 18:
            return f"{self.primary(d)} is {r.choice(['', 'not '])}{r.choice(TESTS)}"
        if k == 19:
            return f"{self.primary(d)} is {r.choice(['', 'not '])}{r.choice(TESTS1)} {self.primary(0)}"
        if k == 20:
            return r.choice([f"range({self.args(1, 3, 1)})", f"dict(a={self.expr(d)})", f"namespace(a={self.expr(d)}).a", f"-{self.primary(d)}", f"m({self.args(0, 3, depth)})"])
        return f"{self.expr(d)}|list"

    def primary(self, depth):
        e = self.expr(depth)
        return e if re.fullmatch(r"\w+", e) or self.r.random() < 0.3 else f"({e})"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.r.randint(1, 3)))

    def tag(self, text):
        return "{%" + self.r.choice(["", "", "-", "+"]) + " " + text + " " + self.r.choice(["", "", "-", "+"]) + "%}"

    def statement(self, depth):
        r = self.r
        k = r.randrange(20)
        d = depth - 1
        if k < 3:
            return r.choice(["text", "\n", "  ", " a\n  b ", "\t", "\n\n", "{# c #}", "{#- c -#}\n", "\r\n"])
        if depth <= 0 or k < 7:
            return "{{" + r.choice(["", "-", ""]) + " " + self.expr(2) + " " + r.choice(["", "-", ""]) + "}}"
        if k < 9:
            target = r.choice(["x", "y", "x, y", "ns.a", "x", "s", "l"])
            return self.tag(f"set {target} = {self.expr(2)}")
        if k == 9:
            return self.tag("set x" + r.choice(["", " | upper", " | trim | length"])) + self.block(d) + self.tag("endset")
        if k < 13:
            target = r.choice(["x", "y", "x, y", "s"])
            test = f" if {self.expr(1)}" if r.random() < 0.3 else ""
            body = self.block(d) + r.choice(["", "{{ loop.index }}", "{{ loop.last }}", "{{ x }}", "{{ loop.nextitem }}", "{% if loop.index0 == 1 %}{% break %}{% endif %}",
                                             "{{ loop.length }}", "{% if x %}{% continue %}{% endif %}", "{{ loop.changed(x) }}", "{{ loop.previtem }}"])
            other = self.tag("else") + self.block(d) if r.random() < 0.2 else ""
            source = r.choice(["l", "ls", "messages", "d", "d.items()", "users", "nested", "mixed", "u", "el", self.expr(2)])
            return self.tag(f"for {target} in {source}{test}") + body + other + self.tag("endfor")
        if k < 16:
            return (self.tag(f"if {self.expr(2)}") + self.block(d) + (self.tag(f"elif {self.expr(1)}") + self.block(d) if r.random() < 0.3 else "") +
                    (self.tag("else") + self.block(d) if r.random() < 0.5 else "") + self.tag("endif"))
        if k == 16:
            return self.tag(f"macro m({r.choice(['', 'x', 'x, y=2', 'x, y=x', 's'])})") + self.block(d) + self.tag("endmacro")
        if k == 17:
            return self.tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')", "length"])) + self.block(d) + self.tag("endfilter")
        if k == 18:
            return r.choice([self.tag(f"with x = {self.expr(1)}") + self.block(d) + self.tag("endwith"), self.tag("generation") + self.block(d) + self.tag("endgeneration"),
                             self.tag("call m()") + self.block(d) + self.tag("endcall"), self.tag("raw") + "{{ x }} " + self.tag("endraw")])
        return self.tag("set ns = namespace(a=1)") + self.tag("set ns.a = ns.a + 1") + "{{ ns.a }}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/tests/chat_render")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=25)
    args = parser.parse_args()
    program = jinja.Program(args.program)
    wrong = unsupported = fine = 0
    for seed in range(args.seed, args.seed + args.count):
        maker = Maker(seed)
        template = "{{ " + maker.expr(3) + " }}" if seed % 2 else maker.block(3)
        expected, why = jinja.render(template, CONTEXT)
        if expected and re.search(r" .t 0x[0-9a-f]{6,}", expected, re.I):
            continue  # an address
        found, error = program.render(template, CONTEXT)
        if expected == found:
            fine += expected is not None
            continue
        folded = found is None and re.search("expected the name of a (filter|test) of Jinja", error)
        if folded or (found is None and program.status == 4 and (jinja.why_unsupported(template) or BOUNDS.search(error))):
            unsupported += 1
            if args.show > 1000:
                print(f"unsupported {error}")
            continue
        wrong += 1
        if wrong <= args.show:
            print(f"seed {seed}: {template!r}\n  expected {expected!r} {why}\n  found    {found!r} {error}")
    print(f"{args.count} templates, {fine} rendered by both, {unsupported} unsupported, {wrong} differ")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
