"""No two C files call each other, directly or by a detour."""

import re

from test_tidy import ROOT, code_of, needed, objects, told

__all__ = ["objects"]  # the fixture

# the agreement inside a round, one machine in three files; the epochs of a peer, one in four
ONE_MACHINE = "core/agree/council", "core/epoch/epoch"


def called_by(objects):
    """{file: the files whose functions it calls}."""
    there = {}
    for name, path in objects.items():
        there |= dict.fromkeys(told("nm", "-g", "--defined-only", "-j", path).split(), name)
    return {name: {there[one] for one in needed(path) if one in there} - {name} for name, path in objects.items()}


def named_in(sources):
    """The same, of {file: its C text}: which files name a function that another one defines and shares."""
    texts = {name: code_of(text) for name, text in sources.items()}
    there = {}
    for name, text in texts.items():
        there |= dict.fromkeys(re.findall(r"^(?!static\b)\w[\w *]*?\b(\w+)\([^;]*?\)\s*\{$", text, re.M), name)
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items()}
    return {name: {there[one] for one in some if one in there} - {name} for name, some in words.items()}


def in_circles(callees):
    """The files that reach themselves over the files that they call."""
    found = set()
    for name in callees:
        reached, rest = set(), set(callees[name])
        while rest:
            one = rest.pop()
            reached.add(one)
            rest |= callees[one] - reached
        if name in reached:
            found.add(name)
    return found


def test_circle_is_seen():
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}}) == {"a", "b", "c"}
    assert in_circles({"a": {"b"}, "b": set()}) == set()


def test_no_two_files_call_each_other(objects):
    callees = called_by(objects)
    assert len(callees["core/node"]) > 5
    assert {name for name in in_circles(callees) if not name.startswith(ONE_MACHINE)} == set()


def test_no_two_files_of_the_binding_call_each_other():
    binding = named_in({path.stem: path.read_text() for path in (ROOT / "csrc/bind").glob("*.c")})
    assert {"py_future", "py_call", "py_dht"} <= binding["py_node"]
    assert in_circles(binding) == set()
    a, b = "int f(void) {\n  return g(1);\n}\n", "int g(int x) {\n  return x ? f() : 0;\n}\nstatic int h(void) {\n}\n"
    assert in_circles(named_in({"a": a, "b": b, "c": "int i(void) {\n  return f() + h();\n}"})) == {"a", "b"}
