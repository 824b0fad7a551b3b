#!/usr/bin/env python3
"""Writes tests/unit/expression_vectors.h: expressions, texts, and whether Python's re finds the one in the other.

usage: tools/make_expression_vectors.py > tests/unit/expression_vectors.h

Only expressions that mean the same in ECMA 262 and in Python (flag ASCII) are used: $ is written as \\Z for Python, which
otherwise takes it for the place before a last newline too.
"""
import random
import re

FIXED = [
    "a", "^a", "a$", "^a$", "^a|b$", "^(a|b)$", "(^a|b$)c?", "", "^$", "a*", "^a*$", "^a+b?$", "^a{2}$", "^a{2,}$", "^a{2,3}b$",
    "^(ab){1,2}$", "^[abc]+$", "^[^abc]+$", "^[a-c-]+$", "^\\d{3}$", "\\D", "^\\w+$", "\\W", "^\\S+$", "^a.c$", "^a\\.c$", "^(?:a|bc)*$",
    "^(?=.*b)a", "^(?=ab)[abc]{3}$", "^(?!ab)[abc]{3}$", "^(?!.*bb)[ab]+$", "(?=b)b$", "a(?!b)", "a(?=b)b", "a(?=b|$)",
    "^(?=[^c]*c)(?=[^b]*b)[abc]+$", "^a*?b$", "^((a)|(b))*c$", "^(a|ab)(c|bcd)$", "x?^a", "(|a)^b", "b$|^$", "^\\x61\\u0062$", "^[\\d-]+$",
    "^\u00e9+$", "^[\u00e0-\u00ff]+$", "^.$", "^(a?){3}$", "^(a?b?){2}$", "^[\\w.]+@\\w+\\.(com|org)$", "^\\S+@\\S+$", "^(?:[01]\\d|2[0-3]):[0-5]\\d$",
    "^-?(0|[1-9]\\d*)(\\.\\d+)?$", "a|", "^(a|b)*a(a|b){3}$", "^(?!$)", "(a$|b)", "^a$b?", "(^a){1}", "^[\\s\\S]*$", "[^\\d\\s]",
]
TEXTS = ["", "a", "b", "c", "ab", "ba", "abc", "aab", "aaab", "bb", "aabb", "cab", "acb", "a.c", "axc", "123", "12", "a1", "_", "-", "a-c", " ", "a b",
         "a\nb", "\n", "\u00e9", "\u00e9\u00e9", "e\u0301", "\u20ac", "\U0001f600", "abab", "ababa", "abcd", "abbcd", "me@x.com", "a.b@c.org", "@", "23:59",
         "24:00", "0", "-0.5", "01", "10.", "aaaa", "bbbb", "abbb", "babb", "a\tb", "\"a\"", "a\\b", "x"]


def random_expression(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.4 or (depth and kind >= 0.9):  # assertions outside of repeats only
        return rng.choice(["a", "b", "c", ".", "[ab]", "[^a]", "\\w", "\u00e9"])
    if kind < 0.6:
        return random_expression(rng, depth + 1) + random_expression(rng, depth + 1)
    if kind < 0.75:
        return "(" + random_expression(rng, depth + 1) + "|" + random_expression(rng, depth + 1) + ")"
    if kind < 0.9:
        return "(?:" + random_expression(rng, depth + 1) + ")" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}"])
    if kind < 0.95:
        return rng.choice(["(?=", "(?!"]) + random_expression(rng, depth + 1) + ")" + random_expression(rng, depth + 1)
    return rng.choice(["^", ""]) + random_expression(rng, depth + 1) + rng.choice(["$", ""])


def python(expression):
    return re.sub(r"(?<!\\)\$", r"\\Z", expression.replace("[\\s\\S]", "(?s:.)"))


def literal(text):
    out = ""
    for byte in text.encode():
        out += f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte)
    return f'"{out}"'


def main():
    rng = random.Random(28)
    expressions = FIXED + [random_expression(rng) for _ in range(150)]
    print("// Made by tools/make_expression_vectors.py: what Python's re says. A 1 where the expression is found in the text.")
    print("#ifndef SETUN_TESTS_EXPRESSION_VECTORS_H\n#define SETUN_TESTS_EXPRESSION_VECTORS_H\n\n// clang-format off")
    print("static const char *const EXPRESSION_TEXTS[] = {\n    " + ",\n    ".join(map(literal, TEXTS)) + ",\n};")
    print("static const struct {\n  const char *expression, *found;\n} EXPRESSION_VECTORS[] = {")
    for expression in expressions:
        compiled = re.compile(python(expression), re.ASCII)
        found = "".join("1" if compiled.search(text) else "0" for text in TEXTS)
        print(f"    {{{literal(expression)}, \"{found}\"}},")
    print("};\n// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
