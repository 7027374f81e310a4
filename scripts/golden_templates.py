#!/usr/bin/env python3
"""Makes the golden files of chat templates again, with Jinja itself as the judge (pip: jinja2 3.1).

    golden_templates.py [TEMPLATES]

Writes tests/model/golden/templates/small.json: small templates (those below, and the expressions of expressions.txt
beside it) with their variables and what they give, and, where the folder TEMPLATES (default
../shared/data/templates) is there, real.json: length and hash of what its templates make of the conversations below.
The environment is the one that chat templates are written for: sandboxed, lists and dicts that
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


def expressions():
    """One a line, those that fail last; a backslash at the end of a line joins it with the next."""
    with open(os.path.join(FOLDER, "expressions.txt"), encoding="utf-8") as file:
        lines = file.read().strip("\n").replace("\\\n", "\\\0").split("\n")
    return [line.replace("\0", "\n") for line in lines]


def small():
    texts = ["{{ %s }}" % expression for expression in expressions()]
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
