"""The tables of constants on the design pages hold the values of the code.

A table stands below "## Constants": names in its first column, values with their units in the second.
A name that several files have stands as `file.c:NAME`.
The unit of a constant is the end of its name: _US, _MS, _S; without one it is a number, or bytes.
"""

import ast
import math
import pathlib
import re

import pytest
from numbers_said import SAID

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(page for page in (ROOT / "docs/design").glob("*.md") if "\n## Constants\n" in page.read_text())
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}
ENDS = {"_US": 1e-6, "_MS": 1e-3}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*"


def table_of(text):
    """[(name, value as the page has it)]"""
    rows = re.findall(r"(?m)^\| (`.+?`) \| (.+?) \|", text[text.index("\n## Constants\n") :])
    for names, values in rows:
        names, values = re.findall(r"`((?:\w+\.[ch]:)?\w+)`", names), values.split(", ")
        assert len(names) == len(values), f"{names} have {len(values)} values: {values}"
        yield from zip(names, values)


def number_of(value):
    """A value in seconds, bytes, or as it is."""
    found = re.fullmatch(r"([\d,]*\d(?:\.\d+)?)(?: (\w+))?", value)
    assert found and (found[2] or "") in UNITS, f"{value}: a number, and one of the units {sorted(UNITS)}"
    return float(found[1].replace(",", "")) * UNITS[found[2] or ""]


def c_constants(text):
    """[(name, expression)] of a file in C: macros and enumerators."""
    text = COMMENT.sub("", text).replace("\\\n", " ")
    yield from re.findall(rf"(?m)^#define ({NAME}) (.+)$", text)
    for body in re.findall(r"\benum\b[^{};]*\{([^}]*)\}", text):
        yield from re.findall(rf"\b({NAME})\s*=\s*([^,]+)", body)


def python_constants(text):
    """[(name, expression)] of the assignments at the top of a module, also of several names at once."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            to, value = node.targets[0], node.value
            several = isinstance(to, ast.Tuple) and isinstance(value, ast.Tuple)
            for target, given in zip(to.elts, value.elts) if several else [(to, value)]:
                if isinstance(target, ast.Name) and re.fullmatch(NAME, target.id):
                    yield target.id, ast.unparse(given)


class Code:
    """The constants of the tree: {name: {file: expression}}."""

    def __init__(self, files):
        self.places = {}
        for path, text in files.items():
            for name, expression in (python_constants if path.endswith(".py") else c_constants)(text):
                self.places.setdefault(name, {})[path] = expression.strip()

    def values(self, name, sources):
        """The different values of a constant: those in these sources, or elsewhere if there is none in them."""
        places = self.places.get(name, {})
        near = {
            path: given for path, given in places.items() if any(f"/{one}/" in f"/{path}/" for one in sources)
        }
        return {self.evaluate(given, path) for path, given in (near or places).items()}

    def evaluate(self, expression, path):
        plain = re.sub(r"\bU?INT64_C\b|\((?:size_t|u?int\d+_t)\)", "", expression)
        plain = re.sub(r"\b0x[0-9a-f.]*p[+-]?\d+f?\b", lambda found: str(float.fromhex(found[0].rstrip("f"))), plain)
        plain = re.sub(r"\b(0x[0-9a-f]+|\d+)(?:u|ull|ul|l|ll)\b", r"\1", plain, flags=re.I)
        for name in set(re.findall(rf"\b{NAME}\b", plain)):
            places = self.places[name]
            given = self.evaluate(places.get(path) or next(iter(places.values())), path)
            plain = re.sub(rf"\b{name}\b", str(given), plain)
        assert re.fullmatch(r"[\da-fx+\-*/<>().e ]+", plain), f"{expression}: not a number"
        return eval(plain.replace("/", "//"), {"__builtins__": {}})


def sources_of(text):
    """The folders and files that a page names before its first heading: `core/match`, `cuda/`, `optim/belief.py`."""
    return [name.strip("/") for name in re.findall(r"`([\w.]+/[\w./]*)`", text.split("\n## ")[0])]


def wrong(text, code):
    """The constants of a page that are not the code's, one sentence each."""
    sources = sources_of(text)
    if not sources:
        yield "the lines above the first heading name no source of the code"
    for name, value in table_of(text):
        unit = next((unit for end, unit in ENDS.items() if name.endswith(end)), 1)
        file, _, short = name.rpartition(":")
        found = code.values(short, [file] if file else sources)
        if not found:
            yield f"{name}: the code has no such constant"
        elif len(found) > 1 or not math.isclose(found.pop() * unit, number_of(value), rel_tol=1e-6):
            yield f"{name} is not {value}: {code.places[short]}"


@pytest.fixture(scope="module")
def code():
    sources = [
        path
        for folder, kinds in (("csrc", "ch"), ("cuda", "ch"), ("python/hivemind_c", ("py",)))
        for kind in kinds
        for path in (ROOT / folder).rglob(f"*.{kind}")
        if "build" not in path.parts
    ]
    return Code({path.relative_to(ROOT).as_posix(): path.read_text() for path in sources})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_constants_of_each_design_page_are_the_codes(page, code):
    assert not list(wrong(page.read_text(), code))
    assert list(table_of(page.read_text())), f"{page.name}: its table of constants is empty"


def test_pages_of_the_protocol_have_tables_of_constants():
    assert {"matchmaking", "state", "progress", "gpu"} <= {page.stem for page in PAGES}


WORDS = {
    **{"a": 1, "an": 1, "each": 1, "every": 1, "half": 0.5, "third": 3, "quarter": 0.25, "tenth": 0.1},
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "sixteen": 16},
}
SPANS = {
    **{"ms": 1e-3, "second": 1, "minute": 60, "hour": 3600, "h": 3600, "day": 86400},
    **{"KiB": 1 << 10, "MiB": 1 << 20, "GB": 1, "%": 0.01, "": 1},
}
PLACE = re.compile(r"\{(ms|us)?\}")
#: where the places of numbers are
CODE = "csrc/core", "csrc/net", "csrc/kern", "python/hivemind_c", "scripts", "examples", "tests/conftest.py", "."


def spoken(words):
    """The number of `five minutes`, `half an hour`, `128 MiB` or `1,024`: in seconds, bytes, or as it is."""
    *numbers, last = words.replace(",", "").replace("%", " %").split()
    span = last if last in SPANS else last.removesuffix("s") if last.removesuffix("s") in SPANS else ""
    numbers += [] if span else [last]
    return math.prod(WORDS[one.lower()] if one.lower() in WORDS else float(one) for one in numbers) * SPANS[span]


def default_of(text, name):
    """The default of an argument `name=` or of an option `--name` in a file in Python, at all places of the file."""
    option = rf'"{name}".*?\bdefault=([\d.]+)'
    pattern = option if name.startswith("--") else rf"\b{name[:-1]}: [\w\[\]]+ = ([\d.]+)"
    (value,) = set(re.findall(pattern, text))
    return float(value)


def files_of(name):
    """The files of the tree with this name."""
    found = []
    for folder in CODE:
        root = ROOT / folder
        found += [root] if root.name == name else root.rglob(name) if folder != "." else root.glob(name)
    return [path for path in found if "build" not in path.parts]


def number_at(file, words):
    """The number between these words of a file: in seconds, or as it is."""
    place = PLACE.search(words)
    before, after = re.escape(words[: place.start()]), re.escape(words[place.end() :])
    pattern = rf"{before}(\d+(?:\.\d+)?){after}"
    (value,) = {found for path in files_of(file) for found in re.findall(pattern, path.read_text())}
    return float(value) * {None: 1, "ms": 1e-3, "us": 1e-6}[place[1]]


def value_of(name, code):
    """The value at a place of SAID: in seconds, bytes, or as it is."""
    if "~" in name:
        return number_at(*name.split("~", 1))
    file, name = name.split(":")
    if name.endswith("=") or name.startswith("-"):
        (path,) = (p for p in (ROOT / "python/hivemind_c").rglob(file) if default_in(p, name))
        return default_of(path.read_text(), name) * (86400 if name == "days=" else 1)
    values = {
        code.evaluate(given, path) for path, given in code.places[name].items() if path.rpartition("/")[2] == file
    }
    assert len(values) == 1, values
    return values.pop() * next((unit for end, unit in ENDS.items() if name.endswith(end)), 1)


def default_in(path, name):
    return name.rstrip("=") in path.read_text()


@pytest.mark.parametrize("page, words, name", [(page, *one) for page, some in SAID.items() for one in some])
def test_number_in_a_sentence_is_the_codes(page, words, name, code):
    before, said, after = re.fullmatch(r"(.*)\{(.*)\}(.*)", words, re.S).groups()
    pattern = re.escape(before) + (f"({re.escape(said)})" if said else r"(\d[\d,.]*\d|\d)") + re.escape(after)
    found = set(re.findall(pattern, (ROOT / "docs" / page).read_text()))
    assert len(found) == 1, f"{page} says {sorted(found) or 'nothing'} there: change numbers_said.py with the page"
    said = found.pop()
    assert math.isclose(value_of(name, code), spoken(said)), f"{page} says {said}, and {name} is {value_of(name, code)}"


@pytest.mark.parametrize(
    "words, number",
    [
        ("five minutes", 300),
        ("half an hour", 1800),
        ("a quarter", 0.25),
        ("Sixteen", 16),
        ("50 ms", 0.05),
        ("2.5%", 0.025),
        ("128 MiB", 1 << 27),
        ("65,536", 65536),
        ("1e24", 1e24),
    ],
)
def test_words_of_a_sentence_are_a_number(words, number):
    assert spoken(words) == number


SMALL = {
    "csrc/core/a/a.h": "#define HV_A_MAX (1u << 20) /* bytes */\n#define HV_A_HALF (HV_A_MAX / 2)\n",
    "csrc/core/a/a.c": "enum {\n  WAIT_MS = 1500, /* WAIT_MS = 3 */\n  LEAST_US = UINT64_C(500),\n};",
    "csrc/core/b/b.c": "enum { WAIT_MS = 7, FAR = 9, TWICE = 3 };",
    "python/hivemind_c/c.py": "FIRST_S, MOST_S = 0.5, 60.0\nTWICE = 4\n",
}


@pytest.mark.parametrize(
    "row, is_right",
    [
        ("| `HV_A_MAX`, `HV_A_HALF` | 1 MiB, 512 KiB | |", True),
        ("| `WAIT_MS` | 1.5 s |", True),
        ("| `LEAST_US`, `FIRST_S`, `FAR` | 0.5 ms, 0.5 s, 9 |", True),
        ("| `WAIT_MS` | 3 ms |", False),
        ("| `HV_A_MAX` | 1,000,000 |", False),
        ("| `a.c:WAIT_MS`, `b.c:WAIT_MS` | 1.5 s, 7 ms |", True),
        ("| `b.c:WAIT_MS` | 1.5 s |", False),
        ("| `GONE_MS` | 1 s |", False),
        ("| `TWICE` | 3 |", False),
    ],
)
def test_wrong_constant_on_a_page_is_seen(row, is_right):
    page = f"# A\n\nFor contributors: `core/a`.\n\n## Constants\n\n| name | value | |\n|---|---|---|\n{row}\n"
    assert (not list(wrong(page, Code(SMALL)))) == is_right
