"""No two C files call each other, and no two Python files import each other, directly or by a detour."""

import ast
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


def imported_by(sources):
    """{module: the others among these that it imports}, of {path: its Python text}: also within functions, and for type
    checkers alone.
    """
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources}
    there, found = set(names.values()), {}
    for path, text in sources.items():
        named = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                folder = path.split("/")[: -node.level] if node.level else []
                start = ".".join(folder + [node.module] * bool(node.module))
                parts = {f"{start}.{one.name}" for one in node.names}
                named |= parts if parts <= there else parts | {start}
        found[names[path]] = (named & there) - {names[path]}
    return found


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


def test_no_two_python_files_import_each_other():
    files = (ROOT / "python/hivemind_c").rglob("*.py")
    shim = imported_by({path.relative_to(ROOT / "python").as_posix(): path.read_text() for path in files})
    assert {"hivemind_c.optim.driver", "hivemind_c.optim.reporter"} <= shim["hivemind_c.optim.optimizer"]
    assert in_circles(shim) == set()


def test_circle_of_python_files_is_seen():
    example = {
        "p/__init__.py": "from p.a import A",
        "p/a.py": "import p.b",
        "p/b.py": "def f():\n  from p import c, NAME",
        "p/c.py": "if TYPE_CHECKING:\n  from .q import Q",
        "p/q/__init__.py": "from .. import d\nfrom .r import R\nimport os",
        "p/q/r.py": "import p.d",
        "p/d.py": "from p.a import A",
        "p/e.py": "from p import a, q",
    }
    assert imported_by(example)["p.b"] == {"p", "p.c"} and imported_by(example)["p.e"] == {"p.a", "p.q"}
    assert in_circles(imported_by(example)) == {"p", "p.a", "p.b", "p.c", "p.q", "p.q.r", "p.d"}
    apart = {**example, "p/d.py": "from p.e import E", "p/e.py": "", "p/b.py": "from p import c"}
    assert in_circles(imported_by(apart)) == set()
