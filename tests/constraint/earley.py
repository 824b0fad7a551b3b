"""Membership in the language of a GBNF grammar, by Earley's algorithm: slow, and independent of what it judges."""
import re

TOKEN = re.compile(r'''
    (?P<space>\s+|\#[^\n]*) | (?P<define>::=) | (?P<name>[a-zA-Z0-9_-]+) | (?P<text>"(?:\\.|[^"\\])*") |
    (?P<class>\[(?:\\.|[^\]\\])*\]) | (?P<count>\{\s*\d*\s*(?:,\s*\d*\s*)?\}) | (?P<sign>[()|*+?.])''', re.X | re.S)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.S)


def characters(text):
    """The characters of a literal or a class; (c, True) where it was not escaped."""
    out = []
    for m in ESCAPE.finditer(text):
        code = m[1] or m[2] or m[3]
        plain = {"n": "\n", "r": "\r", "t": "\t"}.get(m[4], m[4])
        out.append((chr(int(code, 16)) if code else plain or m[5], m[5] is not None))
    return out


class Class:
    """One character out of ranges, or not out of them."""

    def __init__(self, text=None):
        self.inverted, self.ranges = True, []  # any character
        if text is None:
            return
        self.inverted = text.startswith("^")
        items = characters(text[self.inverted:])
        while items:
            (first, _), items = items[0], items[1:]
            last = first
            if len(items) >= 2 and items[0] == ("-", True):
                (last, _), items = items[1], items[2:]
            self.ranges.append((first, last))

    def takes(self, c):
        return any(first <= c <= last for first, last in self.ranges) != self.inverted


class Grammar:
    """Rules without repeats: name -> the list of its alternatives, each a list of names and classes."""

    def __init__(self, text):
        self.tokens, self.at, self.rules = [], 0, {}
        position = 0
        while position < len(text):
            m = TOKEN.match(text, position)
            if not m:
                raise ValueError(f"unexpected {text[position:position + 20]!r}")
            position = m.end()
            if m.lastgroup != "space":
                self.tokens.append((m.lastgroup, m[0]))
        while self.at < len(self.tokens):
            name = self.tokens[self.at][1]
            self.at += 2
            self.rules[name] = self.alternatives()
        self.nullable = set()
        while True:
            more = {name for name, options in self.rules.items()
                    if any(all(isinstance(x, str) and x in self.nullable for x in option) for option in options)}
            if more == self.nullable:
                break
            self.nullable = more

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ("end", "")

    def new(self, options):
        name = f"\0{len(self.rules)}"
        self.rules[name] = options
        return name

    def alternatives(self):
        options = [self.sequence()]
        while self.peek()[1] == "|" and self.peek()[0] == "sign":
            self.at += 1
            options.append(self.sequence())
        return options

    def sequence(self):
        items = []
        while True:
            kind, text = self.peek()
            if kind == "end" or (kind == "sign" and text in "|)") or (kind == "name" and self.peek(1)[0] == "define"):
                return items
            self.at += 1
            if kind == "name":
                part = [text]
            elif kind == "text":
                part = [exactly(c) for c, _ in characters(text[1:-1])]
            elif kind == "class":
                part = [Class(text[1:-1])]
            elif text == ".":
                part = [Class()]
            else:
                part = [self.new(self.alternatives())]
                self.at += 1
            items += self.repeated(part)

    def repeated(self, part):
        kind, text = self.peek()
        while kind == "count" or (kind == "sign" and text in "*+?"):
            self.at += 1
            if kind == "count":
                least, comma, most = text.strip("{}").replace(" ", "").partition(",")
                least = int(least or 0)
                most = int(most) if most else None if comma else least
            else:
                least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[text]
            one, rest = self.new([part]), []
            if most is None:
                rest = self.new([])
                self.rules[rest] += [[], [rest, one]]
                rest = [rest]
            for _ in range((most or 0) - least):
                rest = [self.new([[], [one] + rest])]
            part = [one] * least + rest
            kind, text = self.peek()
        return part

    def accepts(self, text):
        top = ("", 0)
        columns = [{} for _ in range(len(text) + 1)]  # (rule, option, dot, origin)
        start = ("root",)
        for i, column in enumerate(columns):
            pending = [(top, start, 0, 0)] if i == 0 else list(column)
            column.update(dict.fromkeys(pending))
            while pending:
                rule, option, dot, origin = pending.pop()
                added = []
                if dot == len(option):
                    added = [(r, o, d + 1, k) for r, o, d, k in columns[origin] if d < len(o) and o[d] == rule[0]]
                elif isinstance(option[dot], str):
                    name = option[dot]
                    added = [((name, k), tuple(o), 0, i) for k, o in enumerate(self.rules[name])]
                    if name in self.nullable:
                        added.append((rule, option, dot + 1, origin))
                elif i < len(text) and option[dot].takes(text[i]):
                    columns[i + 1][rule, option, dot + 1, origin] = None
                for item in added:
                    if item not in column:
                        column[item] = None
                        pending.append(item)
        return (top, start, 1, 0) in columns[-1]


def exactly(c):
    out = Class("")
    out.ranges = [(c, c)]
    return out
