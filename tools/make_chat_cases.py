#!/usr/bin/env python3
"""Writes tests/chat/cases.json: small templates for every feature of Jinja that chat templates use, with contexts, and
what Jinja2, set up as transformers sets it up, makes of them: the text, or null where it refuses. Those that use what is not
supported (tests/chat/jinja.py) say so.

usage: make_chat_cases.py > tests/chat/cases.json
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/chat"))
import jinja  # noqa: E402

USER = {"role": "user", "content": "Hi"}
TALK = [{"role": "system", "content": " Be brief.\n"}, USER, {"role": "assistant", "content": "<think>a</think>\n\nHello 你好 🎉"},
        {"role": "user", "content": ""}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d <&> \"q\" 'é'", "parameters": {
    "type": "object", "properties": {"b": {"type": "integer", "default": 1.0}, "A": {"type": ["string", "null"]}}, "required": []}}}]
CALLS = [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {"a": [1, 1e-5, None]}}}]},
         {"role": "tool", "content": {"ok": True}}]
CONTEXTS = {
    "talk": {"messages": TALK, "tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"},
    "calls": {"messages": CALLS, "tools": TOOLS, "documents": None, "add_generation_prompt": False, "bos_token": "<s>"},
    "values": {"s": "abc Def", "e": "", "u": "Größe İß ΑΣ 你🎉", "w": " \t\u00a0x\u2003\n\u200b", "i": 5, "z": 0, "neg": -7, "f": 2.5, "t": True,
               "fa": False, "n": None, "l": [3, 1, 2], "ls": ["b", "A", "a", "C"], "el": [], "pairs": [[1, 2], [3, 4]], "d": {"x": 1, "items": 3, "Z": None},
               "ed": {}, "users": [{"name": "Bob", "age": 3}, {"name": "alice", "age": 2.5}, {"name": "Bob"}], "mixed": [1, "a", None, 2.0, True, [1], {"k": "v"}],
               "floats": [1.0, 1e16, 1e-5, 0.1, 123456789.125, -0.0, 1e22, 5e-324, 1.7976931348623157e308], "m": "a|b||c", "q": "it's \"q\" \\ \n\x00\x7f\u2028\U0001F600"},
}

TALK_CASES = """
{% for m in messages %}{{ m.role }}: {{ m['content'] }}|{% endfor %}
{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }};{% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}{{ loop.nextitem.role }} {% endfor %}
{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ m.content|length }},{% endfor %}
{%- for m in messages -%}  {{- m.role -}}  {%- endfor -%}
{% if messages[0].role == 'system' %}{% set system = messages[0].content|trim %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ system }}/{{ rest|length }}
{% set ns = namespace(n=0, last=none) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.n }} {{ ns.last }}
{% set n = 0 %}{% for m in messages %}{% set n = n + 1 %}{{ n }}{% endfor %}{{ n }}
{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}{{ messages[-1].role }}{{ messages[99] }}{{ messages[99] is defined }}
{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{% if loop.index0 == 3 %}{% break %}{% endif %}{{ m.role }} {% endfor %}
{% for m in [] %}x{% else %}none{% endfor %}{% for m in messages %}{% break %}{% else %}broke{% endfor %}
{% macro say(m, upper=false) %}{{ m.role|upper if upper else m.role }}:{{ m.content }}{{ missing }}{% endmacro %}{{ say(messages[0]) }}{{ say(messages[1], upper=true) }}{{ say(upper=true, m=messages[1]) }}
{% macro say(m) %}{{ m }}{% endmacro %}{{ say(1, 2) }}
{% macro say(m) %}{{ m }}{% endmacro %}{{ say(x=1) }}
{% macro say(m) %}{{ m is defined }}{{ m }}{% endmacro %}{{ say() }}
{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(5) }}
{% macro forever(n) %}{{ forever(n + 1) }}{% endmacro %}{{ forever(0) }}
{% macro top() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ top() }}{% set v = 2 %}{{ top() }}{% for v in [3] %}{{ top() }}{% endfor %}
{% set text %}<{{ messages[1].content }}>{% endset %}{{ text }}{{ text|length }}
{% generation %}{% set inside = 1 %}{{ messages[1].content }}{% endgeneration %}{{ inside }}
{% filter trim %}  {{ messages[0].content }} {% endfilter %}|
{% filter upper | replace('B', 'x') %}{{ messages[0].content }}{% endfilter %}
{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}{{ messages[2].content.split('</think>')[0].split('<think>')[1] }}
{{ '</think>' in messages[2].content }}{{ 'x' not in messages[2].content }}{{ messages[2].content[:3] }}{{ messages[2].content[-1] }}
{{ bos_token + messages[1].content + eos_token }}{{ bos_token ~ none ~ 1 ~ missing }}
{{ bos_token + none }}
{{ bos_token + missing }}
{{ bos_token + 1 }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ missing < 1 }}
{{ none.x is defined }}{{ none.x }}
{{ raise_exception('no ' + messages[1].role) }}
{% if messages|length > 2 %}{{ raise_exception("too long") }}{% endif %}
{{ strftime_now('%Y-%m-%d %d %b %Y %B %d, %Y %H:%M:%S %A %a %j %U %y %p %I %-d') }}
{% if tools %}tools{% endif %}{% if tools is none %}none{% endif %}{% if tools is defined and tools is not none %}y{% else %}n{% endif %}
{% if not tools is defined %}a{% endif %}{% if enable_thinking is defined and enable_thinking is false %}b{% endif %}{{ enable_thinking|default(true) }}
  {% if true %}
    indented {# comment #}
  {% endif %}
end {{- ' x ' -}}   y
{#- one -#} a {# two #} b
{%- if true -%}   a   {%- endif -%}   b
{%+ if true %}  x{%+ endif %} y
a {{ 'b' }} c
{% raw %}{{ not }} {% this %}{% endraw %}
{% for a, b in messages[0].items() %}{{ a }}={{ b }};{% endfor %}
{% for a, b, c in messages[0].items() %}{{ a }}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in missing %}{% endfor %}ok
{% for x in 5 %}{% endfor %}
{% for c in messages[1].content %}{{ c }}-{% endfor %}
{% set messages.x = 1 %}
{% set x.y = 1 %}
{% for m in messages recursive %}{{ m.role }}{% if loop.depth0 < 1 %}({{ loop(messages[:1]) }}){% endif %}{% endfor %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in{% endcall %}
{% macro wrap(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) wrap(3) %}{{ y * 2 }}{% endcall %}
{% macro all() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ all(1, 2, a=3) }}
{{ messages[0].role if messages }}{{ messages[0].role if false }}{{ 'a' if none else 'b' if 0 else 'c' }}
{{ messages.append(1) }}
{{ messages.pop() }}
{% set x = messages.append %}{{ x }}{{ x is defined }}
{{ messages.__class__ }}{{ messages[0].__class__.__mro__ }}
{{ messages|from_json }}
{% if false %}{{ messages|from_json }}{% endif %}ok
{% if true %}{{ messages|from_json }}{% endif %}ok
{% if messages[0].role is nosuchtest %}{% endif %}
{{ 1 is nosuchtest }}
{% include 'x' %}
{% set loop_messages = messages %}{% for m in loop_messages %}{% for n in loop_messages if loop.first %}{{ n.role }}{% endfor %}{% endfor %}
{% for m in messages %}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{% endfor %}
{% set i = 1 %}{% if true %}{% set i = 2 %}{% endif %}{{ i }}
{% for m in messages %}{{ later }}{% endfor %}{% set later = 1 %}{{ later }}
{{ messages }}
{{ messages|tojson }}
{{ messages|tojson(indent=2) }}
"""

CALLS_CASES = """
{{ tools|tojson }}
{{ tools|tojson(indent=4) }}
{{ tools|tojson(ensure_ascii=true) }}{{ tools|tojson(sort_keys=true) }}{{ tools|tojson(separators=(',', ':')) }}
{% for t in tools %}{{ t.function.name }}({% for k, v in t.function.parameters.properties|dictsort %}{{ k }}: {{ v.type }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}
{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }} {{ c.function.arguments|tojson }}{% endfor %}{% elif m.content is mapping %}{{ m.content|tojson }}{% elif m.content is string %}{{ m.content }}{% endif %}|{% endfor %}
{% for m in messages %}{{ m.content is none }}{{ m.content is string }}{{ m.content is iterable }}{{ m.tool_calls is defined }} {% endfor %}
{% for k, v in messages[1].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }}{% endfor %}
{% for k, v in messages[1].tool_calls[0].function|items %}{{ k }}={{ v|string }};{% endfor %}
{{ messages[1].content }}{{ messages[1].content + '' }}
{{ messages[1]['content'] or 'empty' }}{{ messages[1].get('content') }}{{ messages[1].get('x') }}{{ messages[1].get('x', 'y') }}
{{ messages|selectattr('role', 'equalto', 'tool')|list|length }}{{ messages|map(attribute='role')|join(',') }}{{ messages|rejectattr('tool_calls')|map(attribute='role')|list }}
{{ (tools|map(attribute='function')|map(attribute='name')|list)[0] }}{{ tools[0]['function']['parameters']['required'] }}
{{ tools|tojson|safe + '<&>\\'"' }}{{ ('<' + ('a'|safe)) ~ '<' }}
{{ tools|map(attribute='x')|tojson }}
{{ missing|tojson }}
{{ {'a': missing}|tojson }}
"""

VALUE_EXPRESSIONS = """
1 == 1.0 == true|int
1 == true, missing == nothing, none == missing, '1' == 1
not 1 == 2, not fa and t, n or 'x', t and 'y', 0 or e or none
1 < 2 <= 2, 'a' < 'b', [1, 2] < [1, 3]
'a' < 1
none < 1
1 + 2 * 3 - 4 / 2, 7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 2 ** 10, 2 ** -1, -2 ** 2
1 / 0
1 % 0
i + f, t + 1, 'a' * 3, 3 * [1], [1] + [2], (1,) + (2,)
[1] + (2,)
1 ~ 2 + 3
'a' ~ 1 ~ none ~ [1, 'b'] ~ missing
-f, +i, - - i
-s
s[0], s[-1], s[99], s[1:3], s[::-1], s[::2], s[-3:], s[5:1], u[2:5], u[::-1], u[-1], u[-2:]
l[0], l[-1], l[5], l[1:], l[::-1], l[:-1], l[5:], l[-2:99]
d[1:2]
none[1:2]
d.x, d['x'], d.items is callable, d['items'], d.Z is defined, d.y is defined, d.get is defined, d['get'] is defined
d['items'], d.items() | list
x in missing, 1 in l, 9 not in l, 'x' in d, 'bc' in s, '' in s, 2 in (1, 2)
1 in none
1 in s
true, True, false, False, none, None
[true, none, 1.0, 'a', "it's", 'q"', [], {}, (), (1,), (1, 2), {'a': {1: 2}}]
{'a': 1, 'b': [1, 2], 3: 4, none: 5}, {'x': 1, 'x': 2}
{[1]: 2}
floats, floats|tojson, 1.0, 1e3, 1_000, 0x1F, 0o17, 0b11, 1.5e-7, .5 is defined
'\\n\\t\\'\\"\\\\\\x41\\u00e9\\q\\101', "a
b", 'a' 'b'
q, q|tojson, [q], q|tojson(ensure_ascii=true), q|length
'\\ud800'
l|length, s|length, u|length, d|length, missing|length, e|length, range(5)|length
n|length
i|length
w|trim, w.strip()|length, 'xxaxx'|trim('x'), ' a '|trim|length
s|upper, s|lower, u|upper, u|lower, u|title, u|capitalize, s|title, s|capitalize
u.upper(), u.lower(), u.title(), u.capitalize(), u.swapcase(), u.casefold()
s|string, 1|string, n|string, l|string, d|string, missing|string, 1.0|string
missing|default, missing|default('x'), n|default('x'), n|default('x', true), 0|default(1, boolean=true), e|d('y', true)
l|join, l|join(', '), ls|join('-'), 'abc'|join('.'), users|join(',', attribute='name'), mixed|join('|'), []|join
d|items|list, missing|items|list
s|items|list
s|list, d|list, l|list, missing|list
n|list
users|selectattr('age')|list, users|selectattr('name', 'equalto', 'Bob')|list|length, users|selectattr('age', 'gt', 2)|list
users|rejectattr('age')|list, users|selectattr('age', 'defined')|map(attribute='age')|list
users|map(attribute='age', default=0)|list, users|map(attribute='name')|map('upper')|list, ls|map('replace', 'a', 'b')|join
(users|map(attribute='name'))[0] is defined, (users|map(attribute='name'))|first
users|map(attribute='name')|length
users|map('nosuch')|list
mixed|select('string')|list, mixed|reject('none')|list, l|select('odd')|list, l|select|list, l|reject('in', [1, 2])|list
d|dictsort, {'b': 1, 'A': 2, 'c': 0}|dictsort, {'b': 1, 'A': 2}|dictsort(true), {'b': 1, 'a': 2}|dictsort(by='value'), {'b': 1, 'a': 2}|dictsort(reverse=true)
l|dictsort
l|sort, ls|sort, l|sort(reverse=true), ls|sort(case_sensitive=true), users|sort(attribute='name')|map(attribute='name')|list
mixed|sort
ls|unique|list, ls|unique(true)|list, users|unique(attribute='name')|list|length
l|min, l|max, []|min is defined, ls|min, ls|max, users|max(attribute='name')
s|replace('a', 'b'), s|replace('', '-'), 'aaa'|replace('a', 'b', 2), 1|replace('1', '2')
s.replace('b', 'X'), 'aaa'.replace('a', 'b', 1), s.replace('', '.')
'a\\n\\nb\\nc'|indent, 'a\\n\\nb'|indent(2), 'a\\n\\nb'|indent(2, true), 'a\\n\\nb'|indent(width=1, first=true, blank=true), 'a'|indent('>>')
'42'|int, '4.7'|int, 'x'|int, 'x'|int(5), 4.9|int, '0x1f'|int(base=16), n|int, t|int, ' 7 '|int, '1_000'|int
missing|int
'2.5'|float, 'x'|float, 'x'|float(1), 3|float, '1e3'|float, 'inf'|float
2.5|round, 3.5|round, 2.567|round(2), 2.567|round(1, 'floor'), 2.1|round(method='ceil'), 5|round, -3|abs, 2.5|abs
l|first, l|last, s|first, s|last, []|first is defined, l|reverse|list, s|reverse, l|sum, users|sum(attribute='age', start=1) if false else 0
l|batch(2)|list, l|batch(2, 'x')|list, l|slice(2)|list, range(7)|slice(3)|list, range(7)|slice(3, 'z')|list
'a<b>&"\\''|e, ('<'|safe)|e, '<'|safe, ('<'|safe) + '<', '<' + ('>'|safe), ('<'|safe) * 2, ('<'|safe)|upper, [('<'|safe)]
('<'|safe).replace('<', '>'), ('a<'|safe).split('<'), ('<'|safe)|length, ('x'|safe)[0] + '<', ('<'|safe) ~ '<', ['<'|safe, '<']|join
'abc def ghi jkl'|truncate(9), 'abc def ghi jkl'|truncate(9, true), 'abc'|truncate(2), 'foo'|center(9), 'x'|attr('upper') is defined
m.split('|'), m.split('|', 1), m.rsplit('|', 1), ' a  b '.split(), 'a b c'.split(none, 1), 'a b c'.split(maxsplit=1), ''.split(), ''.split('x')
m.split('')
w.strip()|length, w.lstrip()|length, w.rstrip()|length, 'xyax'.strip('xy'), 'xyax'.lstrip('x'), 'xyax'.rstrip('x')
s.startswith('ab'), s.startswith(('x', 'a')), s.endswith('f'), s.endswith(('x', 'Def')), s.startswith('b', 1), s.endswith('c', 0, 3), s.startswith('')
s.startswith(['a'])
s.find('D'), s.find('z'), u.find('İ'), s.rfind('D'), s.index('D'), s.count('a'), 'aaa'.count('aa'), 'aaa'.count('')
s.index('z')
s.isalpha(), 'ab'.isalpha(), '12'.isdigit(), ''.isdigit(), 'A'.isupper(), 'a1'.islower(), ' '.isspace(), 'a1'.isalnum(), 'Ab'.istitle()
'a\\nb\\r\\nc\\n'.splitlines(), 'a\\nb'.splitlines(true), 'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.removeprefix('a'), 'abc'.removesuffix('c')
'7'.zfill(3), '-7'.zfill(3), 'a'.ljust(3) ~ '|', 'a'.rjust(3, '.'), 'ab'.center(5, '*'), ', '.join(ls), ''.join([])
','.join(l)
'{} {}'.format(1, 'a'), '{1}{0}'.format(1, 2), '{a}'.format(a=3), '{{}}'.format(), '{:>5}|{:<4}|{:^5}'.format('a', 'b', 'c'), '{:05d} {:.2f} {:,}'.format(42, 2.5, 1234567), '{0[x]} {0}'.format(d), '{!r}'.format('a')
'{}'.format()
'{a}'.format(1)
'%s %d %r %.2f %5s|%-5s|%%' % ('a', 3, 'b', 2.5, 'x', 'y'), '%s' % 1, '%(a)s' % {'a': 2}, '%03d' % 7
'%s' % (1, 2)
'%s %s'|format(1, 'a'), '%(a)s'|format(a=3)
d.keys()|list, d.values()|list, d.items()|list, d.get('x'), d.get('q'), d.get('q', 1), d.items(), d.keys(), d.copy()
d.pop('x')
d.update({'a': 1})
l.append(1)
l.index(1), l.count(1), (1, 2).index(2)
range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(3), range(0, 10, 3), range(3)[1], range(0)|length
range(100001)
range(1, 2, 0)
range('a')
dict(a=1, b=2), dict({'a': 1}, b=3), dict([[1, 2]]), namespace(a=1).a, namespace({'b': 2}).b, namespace(a=1), namespace(a=1)['a']
namespace(_x=1)._x is defined, namespace(a=1).b is defined
s is string, i is string, d is mapping, l is mapping, l is sequence, s is sequence, d is sequence, missing is sequence, i is sequence
l is iterable, s is iterable, d is iterable, i is iterable, n is iterable, missing is iterable, (l|map('int')) is iterable
i is number, f is number, t is number, s is number, i is integer, t is integer, f is float, t is boolean, n is none, i is not none
t is true, fa is false, 1 is true, t is false, i is odd, i is even, 6 is divisibleby 3, 6 is divisibleby(4)
s is defined, missing is defined, missing is undefined, n is defined, d.x is defined, l[9] is defined
i is eq 5, i is equalto(5), i is ne 4, i is lt 6, i is gt 6, i is ge 5, i is le 5, 1 is in [1], 'x' is in d
'a' is lower, 'A' is upper, range is callable, s is callable, 'upper' is filter, 'nosuch' is filter, 'odd' is test, ('<'|safe) is escaped
not s is string, s is string and i is number, i is odd is string
1 if t else 2, 1 if fa, (1 if fa) is defined, 1 if fa else 2 if fa else 3
a.b.c
i.x is defined, i['x'] is defined, n.x is defined, n['x'] is defined, l.x is defined, s.x is defined, s['upper'] is defined
s|nosuch
s|upper|lower|title, (s|upper)[0], -1|abs, 2 * 3|string, s ~ 1|string
s.upper().lower().split(' ')[0]
(1, 2)[0], [1, 2][1], {'a': 1}['a'], {'a': 1}.a, 'abc'[1], (1), ()
1 +
(1
[1, 2
{'a' 1}
1 2
'abc
a b
@
x(a=1, 2)
x(*l, **d)
cycler('a', 'b').next(), joiner('|')() ~ 'x'
'é' == '\\u00e9', 'é'|length, '🎉'|length, '🎉🎈'[1], '你好'[::-1], '你好'.find('好')
"ǆ"|title, "ß"|upper, "ﬁ"|upper, "ΑΣ"|lower, "ΑΣ Σ ΣΑ"|lower, "İ"|lower|length
9223372036854775807, -9223372036854775807, 9223372036854775807 - 1
x.y.z is defined
'name' >= 'l', 'l' <= 'n', 'n' > 'l', 'l' < 'n', 'abc' < 'abd', 'abd' < 'abc', ['n'] > ['l'], 'é' > 'z', 'a' < 'ab'
loop is defined
"""

SYNTAX = [
    "{% if %}{% endif %}", "{% if true %}", "{% for x in l %}", "{% endfor %}", "{% for x l %}{% endfor %}", "{% unknown %}", "{{ }}", "{{", "{%", "{#", "a{# b",
    "{{ 'a' }", "{% set x %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% else %}",
    "{% if true %}{% endfor %}", "{% call 1 %}{% endcall %}", "{{ x|}}", "{{ x is }}", "{{ x. }}", "{{ x[ }}", "}}", "%}", "#}", "{", "{ {", "\r\n{{ 1 }}\r\n\r\n", "a\n", "a\n\n", "", "\n",
    "{{ 1 }}\n", "{% if true %}\n\n a{% endif %}\n", "  {%- if true %} a {% endif -%}  \n b", "a\n  {# c #}  \n b", "\t {% set x = 1 %}\t\n\t{{ x }}", "{{ x }} \n {{- 1 }}", "{% set x = 1 -%}\n\n  b",
    "a\u00a0\n\u2003{% if true %}b{% endif %}", "{% if true %}a{% endif %}\r\nb\rc", "{% raw %} {{ x }} {%- endraw %} y", "{%- raw -%} {{ x }} {%+ endraw %}\n y", "{% raw %}",
    "{% print 1, 2 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = (1, 2) %}{{ b }}", "{% set a, b = [1] %}", "{% set ns = namespace() %}{% set ns.x, y = 1, 2 %}{{ ns.x }}{{ y }}",
    "{% for x in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in [1] %}{% for j in [1] %}{% set x = 9 %}{% endfor %}{{ x }}{% endfor %}{{ x }}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in [1, 2, 3] if x > 1 %}{{ loop.length }}{{ x }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in [1, 2, 3] if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% set x | upper %}a{% endset %}{{ x }}", "{% filter length %}abc{% endfilter %}", "{% macro m() %}{{ m2() }}{% endmacro %}{% macro m2() %}x{% endmacro %}{{ m() }}",
    "{% set m = 1 %}{% macro m() %}x{% endmacro %}{{ m() }}", "{% macro m(x) %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m(1) }}", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% macro m(x=missing) %}{{ x is defined }}{% endmacro %}{{ m() }}", "{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(4) }}", "{{ '%s' % missing }}{{ missing|upper }}{{ missing ~ 'x' }}",
    "{% extends 'x' %}", "{% import 'x' as y %}", "{% if false %}{% include 'x' %}{% endif %}ok", "{% do 1 %}", "{% trans %}a{% endtrans %}",
]


def main():
    cases = []

    def add(name, template):
        text, _ = jinja.render(template, CONTEXTS[name])
        case = {"context": name, "template": template, "text": text}
        why = text is not None and jinja.why_unsupported(template)
        if why:
            case["unsupported"] = why
        cases.append(case)

    for name, block in (("talk", TALK_CASES), ("calls", CALLS_CASES)):
        lines = [line for line in block.split("\n") if line]
        for line in lines:
            add(name, line)
    for line in VALUE_EXPRESSIONS.strip().replace('"a\nb"', '"a\\nb"').split("\n"):
        add("values", "{{ " + line + " }}")
        # Each part by itself too, so that one refusal does not hide the others.
        for part in line.split("), "):
            add("values", "{{ " + part + (")" if line.count("), ") and not line.endswith(part) else "") + " }}")
    for template in SYNTAX:
        add("values", template)
    json.dump({"now": jinja.NOW, "contexts": CONTEXTS, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
    print()
    print(f"{len(cases)} cases, {sum(c['text'] is None for c in cases)} refused by Jinja2, {sum('unsupported' in c for c in cases)} unsupported",
          file=sys.stderr)


if __name__ == "__main__":
    main()
