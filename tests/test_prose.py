"""The walls of the words: names of tests, sentences, headers, pages, lines of Python and commit subjects.

Each wall is a function from the files of the tree to (path, complaint) pairs.
Beside it stand examples that must be refused, and some that must not.
`prose_exempt.txt` lists the paths that do not keep a wall yet, and may only shrink.
Run as a program, this file takes the clean paths off that list.
"""

import ast
import io
import os
import re
import tokenize

import pytest
from test_tidy import NOT_OURS, ROOT, comments_of, run

FOLDERS = "csrc", "cuda", "python", "tests", "benchmarks", "examples", "scripts", "docs", "."
C_FILES = ".c", ".h", ".cpp", ".cu", ".cuh"
EXEMPT = ROOT / "tests/prose_exempt.txt"
NAME_LENGTH, HEADER_LINES, PYTHON_COLUMNS, SUBJECT_LENGTH = 60, 15, 120, 72
FIRST_COMMIT = "0461814"  # from here on subjects are held to SUBJECT_LENGTH

# ---- the tree, as {path: text} ----


def tree_of(root):
    tree = {}
    for folder in FOLDERS:
        for here, folders, names in os.walk(root / folder):
            below = folder != "."
            folders[:] = [one for one in folders if below and one not in NOT_OURS and not one.startswith(".")]
            for name in names:
                if name.endswith((*C_FILES, ".py", ".pyi", ".md")):
                    path = os.path.relpath(os.path.join(here, name), root)
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        tree[path] = file.read()
    return tree


WALLS = {}


def wall(bad, good=()):
    """Registers a wall with trees that it must refuse and trees that it must leave alone."""

    def register(check):
        WALLS[check.__name__] = check, list(bad), list(good)
        return check

    return register


# ---- names of tests ----

CLAUSE_NAME = re.compile(r"(?:^|_)(?:who|whom|whose|whoever|what|whatever)(?:_|$)")


def names_of_tests(path, text):
    if path.startswith("tests/") and path.endswith(".c"):
        return re.findall(r"^static void (\w+)\(void \*\*\w+\)", text, re.M)
    if path.startswith("tests/") and path.endswith(".py"):
        return re.findall(r"^[ \t]*(?:async )?def (test_\w+)\(", text, re.M)
    return []


@wall(
    bad=[
        {"tests/unit/test_a.c": "static void who_waits_is_served(void **state) {\n"},
        {"tests/unit/test_a.c": "static void the_store_keeps_what_it_has(void **unused) {\n"},
        {"tests/unit/test_a.c": f"static void {'a_' * 30}b(void **state) {{\n"},
        {"tests/py/test_a.py": "def test_whose_record_is_older_loses():\n    pass\n"},
        {"tests/py/test_a.py": f"    async def test_{'a_' * 28}(self):\n"},
    ],
    good=[
        {"tests/unit/test_a.c": "static void waiting_member_is_served(void **state) {\nstatic void who(int x) {\n"},
        {"tests/py/test_a.py": "def test_whole_record_is_kept():\n    pass\ndef who():\n    pass\n"},
        {"csrc/core/a.c": "static void who_waits(void **x) {\n"},
    ],
)
def names_of_tests_are_plain(tree):
    for path, text in tree.items():
        for name in names_of_tests(path, text):
            if len(name) > NAME_LENGTH or CLAUSE_NAME.search(name):
                yield path, f"{name}: subject_verb_result, at most {NAME_LENGTH} characters, no who_ or what_ clause"


# ---- sentences ----

# A question may begin so; a clause in place of a subject may not.
CLAUSE = re.compile(r"(?:^|(?<=[.;:!?] ))[\s*_(\"'`-]*((?:Who|Whom|Whose|Whoever|What|Whatever)\b(?![^.]*\?)[^.]*)")


def prose_of(path, text):
    """Each comment, docstring or paragraph of a file, as one line."""
    if path.endswith(C_FILES):
        for _, comment in comments_of(text):
            yield re.sub(r"\s*\n\s*\*? ?", " ", comment.strip("/*"))
    elif path.endswith((".py", ".pyi")):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("#: ")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from re.split(r"\n", ast.get_docstring(node) or "")
    else:
        yield from (re.sub(r"^[\s>|*\-\d.]+", "", line) for line in page_lines(text))


def page_lines(text):
    """The lines of a Markdown page without its code, headings and HTML; an empty one in their place."""
    fenced = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        yield "" if fenced or fence or line.lstrip().startswith(("#", "<", "![")) else line


@wall(
    bad=[
        {"csrc/core/a.c": "/* Who waits is served. */"},
        {"csrc/core/a.h": "int x; // Whatever comes is kept."},
        {"tests/unit/a.c": "/* One is late. What\n * it says is kept. */"},
        {"python/hivemind_c/a.py": '"""What this is."""'},
        {"python/hivemind_c/a.py": "x = 1  # Whose turn it is."},
        {"docs/A.md": "A peer waits.\n\n- Whoever comes is served.\n"},
        {"docs/A.md": "A peer waits. Whom it serves is free.\n"},
    ],
    good=[
        {"csrc/core/a.h": '/* What is this, and for whom? */\nconst char *s = "Who waits is served.";'},
        {"python/hivemind_c/a.py": '"""A peer that waits is served."""\nx = "What it is."'},
        {"docs/A.md": "# What this is\n\n```\nWho waits\n```\n\nWho is there? Each peer says so.\n"},
    ],
)
def sentences_begin_with_their_subject(tree):
    for path, text in tree.items():
        for prose in prose_of(path, text):
            for clause in CLAUSE.findall(prose):
                yield path, f"{clause[:60]}: name the actor, as in 'A peer that ...'"


# ---- headers ----


@wall(
    bad=[
        {"csrc/core/a.h": "/* A.\n" + " *\n" * 14 + " */"},
        {"cuda/a.h": "// clang-format off\n/* A.\n" + " *\n" * 14 + " */"},
    ],
    good=[
        {"csrc/core/a.h": "/* A.\n" + " *\n" * 13 + " */\nint x; /*\n" + "*\n" * 20 + "*/"},
        {"tests/lib/a.h": "/*\n" + "*\n" * 20 + "*/"},
    ],
)
def contracts_of_headers_are_short(tree):
    for path, text in tree.items():
        first = re.match(r"(?:// clang-format off\n)?(/\*.*?\*/)", text, re.S)
        if path.startswith(("csrc/", "cuda/")) and path.endswith(".h") and first:
            if (n := first[1].count("\n") + 1) > HEADER_LINES:
                yield (
                    path,
                    f"its comment has {n} lines, at most {HEADER_LINES}: rules of a protocol are on its page in docs/",
                )


# ---- pages and lines ----

END = re.compile(r"[\w`)\]*\"'][.!?][\"')*`]* +(?=[A-Z`*\[\"(])")
SHORT = re.compile(r"\b(?:e\.g|i\.e|vs|etc|cf|approx)\.$")


@wall(
    bad=[
        {"docs/A.md": "A peer waits. It is served.\n"},
        {"docs/A.md": "- A peer waits\n  and is served.\n"},
        {"README.md": "A **peer**. `b` waits.\n"},
        {"docs/A.md": "**One.** Two. It waits."},
    ],
    good=[
        {
            "docs/A.md": "A peer waits.\nIt is served:\n- by 1.2, e.g. One\n- **A.** `a. B`\n\n"
            "| A. B | C. D |\n|---|---|\n\n1. A peer waits\n2. It goes\n"
        },
        {"docs/A.md": "```\nA peer waits. It is\nserved\n```\n"},
    ],
)
def pages_have_one_sentence_a_line(tree):
    for path, text in tree.items():
        before = ""
        for line in page_lines(text) if path.endswith(".md") else ():
            item = re.match(r"\s*(?:[-*+] |\d+\. )", line)
            line = line[item.end() :] if item else line.strip()
            plain = "" if line.startswith("|") else re.sub(r"`[^`]*`", "`x`", line)
            title = re.match(r"\*\*[^*]+\*\* ?", plain)  # a title in bold stands before its first sentence
            plain = plain[title.end() :] if title else plain
            if any(not SHORT.search(plain[: found.start() + 2]) for found in END.finditer(plain)):
                yield path, f"{line[:60]}: more than one sentence in a line"
            if before and plain and not item and not re.search(r"[.:;!?][\"')*`]*$", before):
                yield path, f"{line[:60]}: goes on with the line before"
            before = plain


# Words that have a plain one in their place; the pages of users keep them out.
ODD = re.compile(
    r"\b(?:in vain|likewise|mended|goes? on|as it stands|(?:is|are) told|hears|stands? (?:in|still)|for good|dear"
    r"|(?:leaves?|left) out)\b",
    re.I,
)
FOR_USERS = "docs/tutorial/", "docs/howto/", "docs/explanation/", "docs/reference/"
WORDS_MAX, GENERATED = 3000, ("docs/reference/c-api.md", "docs/reference/options.md", "docs/reference/python-api.md")


@wall(
    bad=[
        {"docs/howto/a.md": "A peer waits in vain.\n"},
        {"docs/tutorial/a.md": "| what | The other peer goes on. |\n"},
    ],
    good=[
        {"docs/howto/a.md": "A peer continues.\n\n```text\nit goes on\n```\n"},
        {"docs/design/a.md": "A peer goes on.\n"},
    ],
)
def pages_for_users_have_plain_words(tree):
    for path, text in tree.items():
        for line in page_lines(text) if path.startswith(FOR_USERS) and path.endswith(".md") else ():
            if found := ODD.search(re.sub(r"`[^`]*`", "", line)):
                yield path, f"{line[:60]}: a plain word in place of {found.group()!r}"


@wall(
    bad=[{"docs/howto/a.md": "word " * 3001}],
    good=[{"docs/howto/a.md": "word " * 3000}, {"docs/reference/c-api.md": "word " * 3001}],
)
def pages_for_users_are_short(tree):
    for path, text in tree.items():
        words = len(text.split()) if path.startswith(FOR_USERS) and path not in GENERATED else 0
        if words > WORDS_MAX:
            yield path, f"{words} words, at most {WORDS_MAX}"


@wall(
    bad=[{"python/hivemind_c/a.py": "x = 1\n" + "y" * 121}, {"setup.py": "x" * 121}],
    good=[{"python/hivemind_c/a.py": "x" * 120 + "\n"}, {"csrc/core/a.c": "x" * 130}],
)
def lines_of_python_fit_a_window(tree):
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n") if path.endswith((".py", ".pyi")) else (), 1):
            if len(line) > PYTHON_COLUMNS:
                yield path, f"line {number} has {len(line)} characters, at most {PYTHON_COLUMNS}"


# ---- the paths that are exempt ----


def exempt_of(text):
    """{wall: its paths}; a path that ends with / is a whole folder."""
    walls = {}
    for line in text.split("\n"):
        if line.startswith("["):
            paths = walls.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            paths.append(line)
    return walls


def covers(paths, path):
    return any(path == one or one.endswith("/") and path.startswith(one) for one in paths)


def unused(paths, complaints):
    """The exempt paths that keep the wall by now."""
    return [one for one in paths if not any(covers([one], path) for path, _ in complaints)]


def grown(before, now):
    """The new paths of a list: those that no older entry covers, less those whose files have only moved."""
    more = [one for one in now if not covers(before, one)]
    moved = [one for one in before if one not in now and not (ROOT / one).exists()]
    return more[len(moved) :]


def history():
    """True if the commits since FIRST_COMMIT are here to be read."""
    shallow = run("git", "-C", ROOT, "rev-parse", "--is-shallow-repository")
    if shallow.stdout.strip() != "false":
        return False
    return run("git", "-C", ROOT, "merge-base", "--is-ancestor", FIRST_COMMIT, "HEAD").returncode == 0


@pytest.fixture(scope="module")
def tree():
    return tree_of(ROOT)


@pytest.mark.parametrize("name", WALLS)
def test_tree_keeps_the_wall(name, tree):
    paths = exempt_of(EXEMPT.read_text()).get(name, [])
    found = list(WALLS[name][0](tree))
    if bad := [f"{path}: {words}" for path, words in found if not covers(paths, path)]:
        pytest.fail("\n".join(["see docs/design/style.md", *bad]), pytrace=False)
    assert unused(paths, found) == [], f"clean by now: run `python {EXEMPT.with_name('test_prose.py')}`"


@pytest.mark.parametrize("name", WALLS)
def test_breach_of_the_wall_is_seen(name):
    check, bad, good = WALLS[name]
    assert bad
    for one in bad:
        assert list(check(one)), f"this should have been refused: {one}"
    for one in good:
        assert not list(check(one)), f"this should have been left alone: {one}"


def test_exempt_list_only_shrinks():
    text = EXEMPT.read_text()
    assert set(exempt_of(text)) <= set(WALLS)
    assert grown(["csrc/core/", "setup.py"], ["csrc/core/a.c", "setup.py"]) == []
    assert grown(["csrc/core/"], ["csrc/core/", "csrc/net/"]) == ["csrc/net/"]
    assert grown(["setup.py", "gone.py"], ["setup.py", "docs/"]) == []
    if not history():
        pytest.skip("the history is not here")
    commits = run(
        "git", "-C", ROOT, "log", "--first-parent", "--format=%H", "--", "tests/prose_exempt.txt"
    ).stdout.split()
    versions = [run("git", "-C", ROOT, "show", f"{one}:tests/prose_exempt.txt").stdout for one in commits]
    before = exempt_of(next((one for one in versions if one and one != text), text))
    more = {name: grown(before.get(name, []), paths) for name, paths in exempt_of(text).items()}
    assert {name: paths for name, paths in more.items() if paths} == {}


# ---- commits ----

VERBLESS = """a an the
    this that these those it its one two each every all any no nobody nothing who whom whose whoever what whatever
    why how when where which now also and or but of in on at by with without from under kept made told given""".split()


def is_imperative(subject):
    """True if a subject looks like "area: verb ...": by its form, not by its sense."""
    verb = re.match(r"[\w,./ -]+: ([a-z][\w'-]*)", subject)
    if not verb or verb[1] in VERBLESS:
        return False
    return re.search(r"(?<!e)ed$|ing$|[^su]s$", verb[1]) is None or verb[1] in ("bring", "string", "embed", "bias")


def test_form_of_a_subject_is_seen():
    for good in (
        "dht: keep goodbyes for 60 s",
        "core, net: move files",
        "match: need two",
        "csrc: pass it on",
        "dht: focus it",
    ):
        assert is_imperative(good)
    for bad in (
        "Who leaves is gone",
        "dht: goodbyes last",
        "dht: the store keeps it",
        "dht: added it",
        "dht: adding it",
        "dht: Keep it",
    ):
        assert not is_imperative(bad)


def test_subjects_of_commits_are_short_and_imperative():
    if not history():
        pytest.skip("the history is not here")
    log = run("git", "-C", ROOT, "log", "--no-merges", "--format=%h %s", f"{FIRST_COMMIT}~1..HEAD").stdout.strip()
    subjects = dict(line.split(" ", 1) for line in log.split("\n"))
    early = {"9e1f3e7", "55b54cc", "2963730", "2223dd7", "89ce070", "c7e7168", "9151c11"}  # written before this wall
    bad = {at: one for at, one in subjects.items() if len(one) > SUBJECT_LENGTH or not is_imperative(one)}
    assert {at: one for at, one in bad.items() if at[:7] not in early} == {}


def shrink():
    texts, text = tree_of(ROOT), EXEMPT.read_text()
    clean = {name: unused(paths, list(WALLS[name][0](texts))) for name, paths in exempt_of(text).items()}
    kept, name = [], ""
    for line in text.split("\n"):
        name = line.strip("[]") if line.startswith("[") else name
        if line not in clean.get(name, ()):
            kept.append(line)
    EXEMPT.write_text("\n".join(kept))


if __name__ == "__main__":
    shrink()
