#!/usr/bin/env python3
"""Makes the golden files of chat templates again, with Jinja itself as the judge (pip: jinja2 3.1).

    golden_templates.py [TEMPLATES]

Writes tests/model/golden/templates/small.json: small templates with their variables and what they give, and, where the
folder TEMPLATES (default ../shared/data/templates) is there, real.json: length and hash of what its templates make of
the conversations below. The environment is the one that chat templates are written for: sandboxed, lists and dicts that
cannot be changed, trim_blocks, lstrip_blocks, break and continue, a tojson that leaves characters alone."""
import copy
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1700000000  # 14 November 2023, 22:13:20 UTC
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "model", "golden", "templates")


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model wrote; in a prompt it shows nothing of itself."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    def _through(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    env.filters["tojson"] = to_json
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


ENV = environment()


def render(text, variables):
    """What comes out, or None and the text of the error."""
    try:
        return ENV.from_string(text).render(**copy.deepcopy(variables)), None  # some filters change lists
    except Exception as error:
        kept = (jinja2.exceptions.UndefinedError, jinja2.exceptions.SecurityError, jinja2.exceptions.TemplateError)
        return None, str(error) if type(error) in kept else ""  # the words of other errors are Python's own


V = {
    "n": 7, "m": -3, "x": 2.5, "big": 9223372036854775807, "huge": 18446744073709551615, "t": True, "f": False,
    "none_value": None, "s": "Hello World", "empty": "", "u": "Grüße, 世界 🎉", "quote": "it's \"so\"",
    "lines": "one\ntwo\n\nthree", "spaced": "  \tpad\n ", "csv": "a,b,,c",
    "l": [3, 1, 2], "words": ["banana", "Apple", "cherry"], "mixed": [1, "two", 3.5, None, True, [4], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": 3}, "nested": {"a": {"b": [10, {"c": "deep"}]}}, "empty_list": [], "empty_dict": {},
    "users": [{"name": "Ann", "age": 30, "tags": ["x", "y"]}, {"name": "bob", "age": 25, "tags": []},
              {"name": "Cy", "age": 30}],
    "items_key": {"items": 5, "get": 6}, "ctl": "a\x01b\x7fc\\d\te", "esc": "<a href='x'>&\"</a>",
    "many": {"k%d" % i: i for i in range(20)},
}

EXPRESSIONS = r"""
n + 1
n - 10
n * m
n / 2
6 / 2
n // 2
m // 2
n % 3
m % 5
-n % 3
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
x * 2
x // 1
-x % 2
7.0 // 2
1e3
1.5e-7
1e16
1e15
123456789.123456789
0.1 + 0.2
1/3
100000000000000000000.0
5e-324
1.7976931348623157e308
1_000
0x1f + 0o17 + 0b101
big
huge
n + t
t + t
t * 3
'a' + 'b'
'a' 'b' "c"
'ab' * 3
3 * 'ab'
'ab' * -1
l + [4]
l * 2
(1, 2) + (3,)
(1,)
()
n ~ s ~ none_value ~ t
s ~ missing ~ '.'
'%s is %d' % (s, n)
'%5.2f|%-6s|%06d|%x|%X|%o|%e|%g|%%' % (x, 'ab', 42, 255, 255, 8, 12345.678, 0.0001)
'%(a)s-%(b)05d' % {'a': 1, 'b': 2}
'%s' % s
'%r' % s
'%+d % d' % (3, 4)
n > 3
n > 3 and s
n < 3 or 'other'
not n
not empty
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == t
'a' < 'b'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
d == {'a': 2, 'C': 3, 'b': 1}
n == 7 if t else 'no'
'yes' if f
'yes' if f else 'no' if f else 'maybe'
n in [1, 7]
n not in l
'ell' in s
'x' not in s
'b' in d
'z' in d
n is defined
missing is defined
missing is undefined
missing is not defined
none_value is none
n is none
n is number
n is integer
x is float
x is integer
t is boolean
t is number
t is integer
t is true
f is false
1 is true
s is string
d is mapping
l is mapping
l is sequence
d is sequence
s is sequence
n is sequence
d.items() is sequence
l is iterable
n is iterable
s is iterable
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
s is lower
'abc' is lower
'ABC' is upper
'123' is upper
n is eq 7
n is equalto 7
n is ne 7
n is gt 3
n is ge(7)
n is lt 3
n is le 7
n is in [7, 8]
n is sameas n
none_value is sameas none
range is callable
s is callable
'upper' is filter
'nope' is filter
'odd' is test
missing is callable
s[0]
s[-1]
s[100]
s[1:4]
s[::-1]
s[::2]
s[-3:]
s[:-3]
s[8:2:-2]
u[1:5]
u[::-1]
u[2]
u[-1]
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[:2]
l[5:]
words[0][1]
nested.a.b[1].c
nested['a']['b'][0]
nested.a.b.1.c
nested.a.zzz
d.b
d['a']
d.zzz
d.items()
d.keys()
d.values()
d.items()|list
d.get('a')
d.get('z')
d.get('z', 'default')
items_key.items
items_key['items']
items_key['get']
s.upper()
s['upper']()
s.lower()
s.title()
s.capitalize()
s.swapcase()
'hello world-foo bar'.title()
s.split()
s.split('o')
s.split('o', 1)
s.rsplit('o', 1)
s.rsplit()
'a b  c d'.rsplit(none, 1)
'a b  c d'.split(none, 1)
' a b '.split(' ')
csv.split(',')
csv.rsplit(',', 2)
lines.splitlines()
lines.splitlines(true)
spaced.strip()
spaced.lstrip()
spaced.rstrip()
'xxabcxx'.strip('x')
'abcxyz'.lstrip('cba')
'abcxyz'.rstrip('zyx')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.endswith('ld')
s.endswith('x')
s.startswith('World', 6)
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.index('W')
u.find('世')
s.count('l')
s.count('')
'aaaa'.count('aa')
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('zz', 'y')
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
', '.join(words)
'-'.join('abc')
s.removeprefix('Hello ')
s.removesuffix('World')
s.removeprefix('x')
s.partition(' ')
s.rpartition('o')
s.partition('zz')
'42'.isdigit()
'4x'.isdigit()
''.isdigit()
'abc'.isalpha()
'ab1'.isalnum()
'ABC'.isupper()
'abc'.islower()
'  '.isspace()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'7'.zfill(3)
'-7'.zfill(4)
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '.')
'{} and {}'.format(1, 'two')
'{1} {0} {1}'.format('a', 'b')
'{name}: {age}'.format(name='Ann', age=3)
'{:>8}|{:<6}|{:^7}|'.format('ab', 'cd', 'ef')
'{:05d} {:+d} {:x} {:#x} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567)
'{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 0.5, 0.25)
'{:*^9}'.format('mid')
'{{}} {0[a]} {1.b}'.format(d, {'b': 9})
'{!r:>8}'.format('x')
'{}'.format(l)
l.index(2)
l.count(1)
l.copy()
(1, 2, 2).count(2)
2.0.is_integer()
s|length
u|length
l|count
d|length
missing|length
none_value|default('x')
missing|default('x')
missing|d('x')
empty|default('x')
empty|default('x', true)
missing|default
m|abs
x|abs
l|first
l|last
empty_list|first
s|first
d|first
u|last
l|sum
users|sum(attribute='age')
l|sum(start=10)
l|max
l|min
words|max
words|min
users|max(attribute='age')
words|sort
words|sort(case_sensitive=true)
words|sort(reverse=true)
l|sort
users|sort(attribute='age')|map(attribute='name')|list
users|sort(attribute='age,name')|map(attribute='name')|join(',')
d|dictsort
d|dictsort(true)
d|dictsort(false, 'value')
d|dictsort(reverse=true)
l|join
l|join(', ')
users|join('; ', attribute='name')
words|join(n)
l|reverse|list
s|reverse
l|list
s|list
d|list
d|items|list
missing|items|list
[1, 1.0, 2, 'a', 'A']|unique|list
['a', 'A']|unique(true)|list
users|map(attribute='age')|unique|list
words|map('upper')|list
words|map('replace', 'a', '_')|list
users|map(attribute='tags.0')|list
users|map(attribute='zzz', default='?')|list
l|map('string')|list
l|select('odd')|list
l|reject('odd')|list
l|select('gt', 1)|list
mixed|select|list
users|selectattr('tags')|map(attribute='name')|list
users|selectattr('age', 'equalto', 30)|map(attribute='name')|list
users|selectattr('age', '==', 30)|list|length
users|rejectattr('tags')|map(attribute='name')|list
users|rejectattr('age', 'gt', 26)|map(attribute='name')|list
users|selectattr('tags', 'defined')|list|length
users|groupby('age')|list|length
users|groupby('age')
users|map('attr', 'zzz')|list
range(10)|batch(4)|list
range(10)|batch(4, 'x')|list
range(10)|slice(3)|list
range(10)|slice(3, 'x')|list
s|upper
s|lower
'hELLO wORLD'|capitalize
'hello-world (foo) [bar] <baz>'|title
"don't stop"|title
u|upper
u|lower
'straße'|upper
spaced|trim
'xxaxx'|trim('x')
s|replace('o', '0')
s|replace('l', 'L', 2)
n|replace('7', '8')
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, true, true)
lines|indent('> ')
'a\n'|indent
''|indent(2, true)
s|truncate(5)
s|truncate(5, true)
s|truncate(8, false, '..', 0)
s|truncate(9, leeway=0)
s|center(21)
s|wordcount
u|wordcount
'3.7'|int
'42'|int
'zz'|int
'zz'|int(5)
'0x1f'|int(base=16)
'ff'|int(0, 16)
x|int
-2.7|int
none_value|int
' 12 '|int
'1_000'|int
'1e3'|int
'2.5'|float
'zz'|float
'inf'|float
'-.5e1'|float
n|float
2.5|round
3.5|round
2.675|round(2)
1234.5|round(-2)
42|round
42.55|round(1, 'floor')
42.55|round(1, 'ceil')
n|string
x|string
none_value|string
'%s and %s'|format('a', 1)
'%(k)s'|format(k=3)
esc|e
esc|escape
esc|forceescape
esc|safe
(esc|e)|e
('<'|safe) + '<'
('<'|e) ~ '<'
esc|urlencode
'a b/c?d=é'|urlencode
{'a b': 'c&d', 'e': 1}|urlencode
'<b>bold</b>  text <i>x</i>'|striptags
n|pprint
words|pprint
s|tojson
u|tojson
u|tojson(ensure_ascii=true)
ctl|tojson
ctl
[ctl]
d|tojson
mixed|tojson
nested|tojson(indent=2)
empty_list|tojson(indent=2)
empty_dict|tojson(indent=2)
{'a': [], 'b': {}, 'c': [1]}|tojson(indent=4)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
nested|tojson(indent='\t')
{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson
[1.0, 1e100, 0.1, -0.0, 1e-10]|tojson
(1, 2)|tojson
huge|tojson
esc|tojson
mixed
d
nested
[none, true, 1.0, 'it\'s', "q\"q", 'both\'"', 'nl\n', 'é', '\x07', '\u200b', '\U0001F389']
{'k': (1,), 2: 'x', none: []}
(1, 'a')
range(5)
range(1, 10, 3)
range(5)|list
range(10, 0, -3)|list
range(0)|list
range(5)[1]
range(10)[2:5]|list
range(3)|length
3 in range(5)
dict(a=1, b='x')
dict([('a', 1), ('b', 2)])
dict(d, z=9)
namespace(a=1).a
namespace({'q': 2}).q
{'a': 1, 'a': 2}
{'a': 1}.a
{**d}
[1, 2,]
{'a': 1,}
(n)
'a\tb\\n\'"\x41\u00e9\101'
"a\qb"
'line\
joined'
true ~ false ~ none ~ True ~ None
many.k13
many['k19'] + many.k0
many|length
many.zzz is defined
many|dictsort|last
nested|string|length
loop is defined
x if x is defined and x > 2 else 'small'
not not t
not n == 7
n == 7 and not f or t
1 if 0 else 2
1 + 2 * 3 - 4 / 2
(1 + 2) * 3
1 ~ 2 + 3
'a' ~ 1 * 2
-3|abs
(-3)|abs
1|string + '2'
[1, 2, 3][1:]|first
s.split(' ')[0].upper()[::-1]
(s|upper).lower()
d.items()|map('first')|list
d.items()|map('last')|sum
users[0]['name'] ~ users[0].age
users|map(attribute='name')|map('lower')|join(' ')
s|list|unique|join
(n, s)[1]
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y, %A %H:%M:%S')
strftime_now('%j %U %W %V %G %u %w %y %I %p %e %B %a %% %-d %D %F %T %R')
[l, l]|sum(start=[])
words|map('length')|list
words|batch(2)|map('join', '+')|list
'é' < 'z'
'Z' < 'a'
l > [3]
s.encode
s.__class__
s.__class__ is defined
d.__init__
'a' if missing else 'b'
missing ~ 'x'
missing == missing_too
missing == none
[missing]
u.encode is defined
'ab' 'cd'|upper
'A' ~ 'b'|upper
n|default(1)|string|length
(users|map(attribute='zzz')|list)|sort
'l' % missing
n|nope if f else 'ok'
s|truncate(4) if f else l|truncate(4)
users|sort(attribute='zzz')|length
l|map('string')|map('length')|sum
""".strip("\n")

ERRORS = r"""
missing.attr
missing['x']
missing + 1
missing()
missing[0:1]
missing < 1
-missing
none_value.x.y
none_value + 1
none_value[0].x
d.zzz.y
l[9].x
nested.zzz.qqq
s + 1
1 + s
s - 1
l + (1,)
l + 1
{} + {}
s < 1
none < 1
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
none|length
5|length
5|list
5|first
l|map('upper')|length
5|join
n[1:2]
none_value[1:]
d[1:]
s[::0]
1 in 5
1 in 'abc'
s.index('zz')
l.index(99)
l.append(4)
l.pop()
d.update({'x': 1})
d.pop('a')
d.setdefault('z', 1)
s.__class__.x
n()
s()
s.upper(1, 2)
s.split('')
s.join([1])
', '.join(l)
range(100001)
range(1, 2, 0)
range('a')
{[1]: 2}
{}[[]].x
[1, 'a']|sort
[none, 1]|max
[1, 'a']|sum
missing|abs
'a'|abs
s|round
d|dictsort(by='zz')
l|items|list
missing|tojson
range(3)|tojson
d.items()|tojson
{(1, 2): 3}|tojson
l|select('nope')|list
l|map('nope')|list
l|map|list
users|selectattr|list
'%d' % 'x'
'%s %s' % 'x'
'%s' % (1, 2)
'%(a)s' % l
'%' % 1
'{} {}'.format(1)
'{a}'.format(b=1)
'{'.format()
'}'.format()
'{:d}'.format('x')
'{:.2f}'.format('x')
raise_exception('boom: ' ~ n)
raise_exception('Ünïcode')
namespace(1)
dict(1)
cycler()
joiner(1, 2)
s.startswith(1)
s|int(base=99)
s|truncate(1)
'x'|indent(none)
l|join(attribute='zzz.y')
[[1]]|unique|list
loop.index
caller()
s|replace('a')
s|nope_is_not_a_filter
n is nope_is_not_a_test
""".strip("\n")

TEMPLATES = [
    "plain text", "", "\n", "a\n", "a\n\n", "a\r\nb\rc\n", "{# comment #}", "a {# c #} b", "a {#- c -#} b",
    "{% if t %}yes{% endif %}", "{% if f %}a{% elif t %}b{% else %}c{% endif %}",
    "{% if f %}a{% elif f %}b{% elif n %}c{% else %}d{% endif %}", "{% if f %}a{% else %}c{% endif %}",
    "x\n  {% if t %}\n    y\n  {% endif %}\nz\n", "x\n  {%- if t %}\n    y\n  {%- endif %}\nz\n",
    "x\n  {%+ if t %}\n    y\n  {%+ endif %}\nz\n", "x {%- if t -%} y {%- endif -%} z", "  {{ n }}  \n  {{ s }}\n",
    "  {{- n -}}  \n  {{ s }}\n", "a\n\t{% set q = 1 %}\nb", "a {% set q = 1 %}\nb", "a\n {# c #}\nb",
    "a\n {#+ c +#}\nb", "{% if t +%}\nx{% endif %}", "{% if t %}\n\nx{% endif %}\n\n",
    "{% raw %}{{ x }} {% if %}{% endraw %}!", "a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb",
    "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n x{% endraw +%}\ny",
    "{{ '{{' }} {{ '%}' }} {{ \"}}\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}.a.b }}", "{% set q = {'a': {}} %}{{ q }}",
    "{% for i in l %}{{ i }},{% endfor %}", "{% for i in empty_list %}x{% else %}none{% endfor %}",
    "{% for i in l %}x{% else %}none{% endfor %}", "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}[{{ loop.previtem }}|{{ i }}|{{ loop.nextitem }}]{% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l if i > 9 %}x{% else %}no{% endfor %}", "{% for u in users if u.age == 30 %}{{ u.name }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for i in range(5) if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}"
    "{% endif %}{% endfor %}",
    "{% for i in range(9) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ j }}{% endfor %}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}",
    "{% for i in l|map('string') %}{{ i }}{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for i in l|reverse %}{{ i }}{{ loop.last }}{% endfor %}",
    "{% set q = 1 %}{% for i in l %}{{ q }}{% set q = i %}{{ q }} {% endfor %}{{ q }}",
    "{% for i in l %}{% if loop.first %}{% set z = 5 %}{% endif %}{{ z }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace(a=1, b='x') %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = b_, a_ %}{{ a is defined }}",
    "{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}", "{% set ns = namespace() %}{% set ns.a, z = 4, 5 %}{{ ns.a }}{{ z }}",
    "{% set q %}block {{ n }}{% endset %}[{{ q }}]", "{% set q | upper | replace('B', 'x') %}block {{ n }}{% endset %}[{{ q }}]",
    "{% set q %}{% set inner = 1 %}{% endset %}{{ inner is defined }}", "{% set ns = namespace() %}{% set ns.q %}abc{% endset %}{{ ns.q }}",
    "{% if t %}{% set q = 3 %}{% endif %}{{ q }}", "{% if f %}{% set q = 3 %}{% endif %}{{ q is defined }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}abc{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=4, a=5) }} {{ m() }}",
    "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}inner {{ n }}{% endcall %}",
    "{% macro m(l) %}{% for i in l %}{{ caller(i) }},{% endfor %}{% endmacro %}{% call(x) m([1, 2]) %}<{{ x }}>{% endcall %}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m() %} x {% endmacro %}[{{ m()|trim }}]{{ m() ~ 'y' }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q is defined }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ l|map('string')|map('upper')|join }}",
    "{% macro m() %}a{% endmacro %}{{ m.name }}{{ m is callable }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% generation %}gen {{ n }}{% endgeneration %}!", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{{ 'gen' if l|select('gt', 99) else 'none' }}",
    "{% set m = d.get %}{{ m('a') }}", "{% set up = s.upper %}{{ up() }}", "{{ (l|sort)[0] }}{{ l }}", "{% print n %}",
    "{{ f and missing.x }}{{ t or missing.x }}", "{{ missing.x if f else 'ok' }}", "{% if n is divisibleby 7 and t %}y{% endif %}",
    "{% if users[0].tags and users[0].tags|length > 1 %}y{% endif %}", "{%- set a = 1 -%}\n\n  {{- a -}}  \n\n",
    "{{ n }}\n", "{{ n }}\n\n", "{{ n }} \n{{ s }}", "{% if t %}a{% endif %}\n{% if t %}b{% endif %}\n", "\n\n{% if t %}\n\n{% endif %}\n\n",
    "{{ [1,\n 2] }}", "{{ s\n | upper }}", "{%\nif t\n%}x{%\nendif\n%}", "{% for i in l: %}{{ i }}{% endfor %}",
    "{{ dict(a=1).items()|list }}", "{{ '%s' % missing }}", "{{ f_(*l) if f_ is defined else 'x' }}",
    "{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*l) }}{{ m(**{'a': 1, 'c': 2}) }}{{ m(1, *[2, 3]) }}",
    "{% set text = 'a<think>b</think>c' %}{{ text.split('</think>')[-1] }}|{{ text.split('<think>')[0] }}",
    "{% set ns = namespace(t='') %}{% for i in range(300) %}{% set ns.t = ns.t ~ i %}{% endfor %}{{ ns.t|length }}",
    "{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}", "{{ '\u00e9' ~ 'é' }}", "{{ \"it's\" }}{{ 'say \"x\"' }}",
    "{% for m in users %}{% if not loop.first and loop.previtem.age == m.age %}same{% endif %}{{ m.name }}{% endfor %}",
    "{% if x|lower == '2.5' %}a{% endif %}", "{% if n == 1 or n == 7 %}x{% endif %}", "{% if (n == 1) or (s is string and s|length > 3) %}x{% endif %}",
    "{% set q = n if n is defined else 3 %}{{ q }}", "{% if 'a' in d and d.a is not none %}{{ d.a }}{% endif %}",
    "{%- for u in users -%}\n  {{ u.name }}\n{%- endfor -%}\n", "{% for k, v in nested.a.items() recursive_ %}{% endfor %}",
]

BROKEN = [
    "{{", "{{ n", "{% if %}", "{% if t %}", "{% for %}", "{% for i %}", "{% for i in %}x{% endfor %}", "{% endif %}", "{% else %}",
    "{% if t %}{% endfor %}", "{{ n n }}", "{{ ( }}", "{{ ) }}", "{{ [1, }}", "{{ {'a' 1} }}", "{{ 'abc }}", "{{ n| }}", "{{ n|1 }}",
    "{{ n is }}", "{{ n. }}", "{{ @ }}", "{{ n $ }}", "{% unknown_tag %}", "{% set %}", "{% set 1 = 2 %}", "{% set true = 2 %}",
    "{% set x %}", "{% macro %}", "{% macro m( %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% call %}{% endcall %}",
    "{% call 1 %}{% endcall %}", "{% filter %}{% endfilter %}", "{# no end", "{% raw %} no end", "{% break %}", "{{ a b }}", "{{ 1 + }}",
    "{{ not }}", "{{ n if }}", "{{ f(a=1, 2) }}", "{{ f(**a, b) }}", "{{ n is odd is even }}", "{% %}", "{%", "{% 1 %}", "{{ }}", "{{ 'a' 1 }}",
    "{{ n[ }}", "{% for a.b in l %}{% endfor %}", "{% block x %}{% endblock %}{{", "{{ '\\x4' }}", "{{ '\\u12' }}", "{% if t %}x{% elif %}y{% endif %}",
]

# ---- conversations for real templates ----

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Tells \"the\" weather <now> & später", "parameters": {
            "type": "object", "properties": {
                "city": {"type": "string", "description": "The city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "default": 3, "minimum": 1.5},
                "more": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}}}},
            "required": ["city"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "noop", "description": "Does nothing",
                                      "parameters": {"type": "object", "properties": {}}}},
]
CALL = [{"id": "call00001", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "f": 1.0, "b": True, "n": None, "l": [1, "x"]}}}]
TEXT_CALL = [{"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]
TWO_CALLS = CALL + [{"id": "call00002", "type": "function", "function": {"name": "noop", "arguments": {}}}]


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return dict({"role": "assistant", "content": content}, **more)


def tool(content, number=1):
    return {"role": "tool", "content": content, "name": "get_weather", "tool_call_id": "call0000%d" % number}


CONVERSATIONS = {
    "one": [user("Hello")],
    "system": [system("You are helpful."), user("Hi there")],
    "turns": [system("Be brief.\n"), user("One?"), assistant("Two."), user("  Three? "), assistant(" Four.\n"), user("Five?")],
    "no system": [user("a"), assistant("b"), user("c"), assistant("d")],
    "unicode": [system("Ünïcödé — “quotes”"), user("日本語 🎉 \u00a0x\u2028y"), assistant("Straße <b>&amp;</b> 'q' \"d\""), user("עברית \t tab")],
    "empty": [system(""), user(""), assistant(""), user("x")],
    "list": [user([{"type": "text", "text": "Look at "}, {"type": "text", "text": "this"}])],
    "thinking": [user("Why?"), assistant("<think>\nBecause\nreasons\n</think>\n\nDone."), user("And?"), assistant("<think>x</think>y")],
    "reasoning": [user("Why?"), assistant("So.", reasoning_content="deep\nthought"), user("More"), assistant("ok", reasoning_content="hmm")],
    "call": [user("weather?"), assistant("", tool_calls=CALL), tool("{\"t\": 21}")],
    "calls": [system("sys"), user("weather?"), assistant(None, tool_calls=TWO_CALLS), tool("sunny"), tool("nothing", 2),
              assistant("It is sunny."), user("thanks")],
    "text call": [user("w"), assistant("calling", tool_calls=TEXT_CALL), tool("cold"), assistant("cold"), user("ok?")],
    "wrong order": [assistant("hi"), assistant("again"), user("q"), user("q2")],
    "wrong role": [{"role": "wizard", "content": "poof"}, user("q")],
    "open end": [user("complete this"), assistant("Once upon")],
    "nothing": [],
    "no think": [system("You are a pirate. /no_think"), user("go /think")],
    "long": [system("x" * 300)] + [m for i in range(12) for m in (user("question %d?\nline" % i), assistant("answer %d" % i))] + [user("end")],
}
SETTINGS = [
    {"add_generation_prompt": False, "tools": None},
    {"add_generation_prompt": True, "tools": None},
    {"add_generation_prompt": True, "tools": TOOLS, "date_string": "01 Jan 2026"},
    {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False, "tools_in_user_message": False},
]
COMMON = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}


def fnv(data):
    """64 bits of FNV-1a."""
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return "%016x" % value


def result(text, variables):
    """A short form: [length, hash], or the text of the error, "" where the words are not ours to keep."""
    out, error = render(text, variables)
    if out is None:
        return error
    return [len(out.encode()), fnv(out.encode())]


def write(name, what, rows):
    """Rows one a line, so that a change shows as one. Variables are JSON inside of JSON: their text is what a template
    is given, down to how a number is written."""
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n%s,\n\"rows\": [\n%s\n]\n}\n" % (
            ",\n".join("%s: %s" % (json.dumps(key), json.dumps(value)) for key, value in what.items()),
            ",\n".join(json.dumps(row) for row in rows)))
    print("%s: %d rows" % (os.path.relpath(path), len(rows)))


def join_lines(text):
    """Expressions, one a line; a backslash at the end of a line joins it with the next."""
    return text.replace("\\\n", "\\\0").split("\n")


def small():
    texts = ["{{ %s }}" % line.replace("\0", "\n") for line in join_lines(EXPRESSIONS) + join_lines(ERRORS)]
    rows = []
    for text in texts + TEMPLATES + BROKEN:
        out, error = render(text, V)
        if out is not None and (" at 0x" in out):
            continue  # an address: nobody can promise it
        rows.append({"template": text, "output": out} if out is not None else {"template": text, "error": error})
    write("small.json", {"now": NOW, "variables": json.dumps(V)}, rows)


def real(folder):
    rows = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            text = file.read()
        for conversation, messages in CONVERSATIONS.items():
            rows.append([name, conversation, [result(text, dict(COMMON, messages=messages, **s)) for s in SETTINGS]])
    settings = [json.dumps(dict(COMMON, **setting)) for setting in SETTINGS]
    conversations = {name: json.dumps(messages) for name, messages in CONVERSATIONS.items()}
    write("real.json", {"now": NOW, "settings": settings, "conversations": conversations}, rows)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                                                "shared", "data", "templates")
    small()
    if os.path.isdir(folder):
        real(folder)
    else:
        print("%s is not there: real.json stays as it is" % folder)


if __name__ == "__main__":
    main()
