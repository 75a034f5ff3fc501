"""The book: built without a warning, no dead link; its tables are the code's (test_docs.py runs what it shows)."""

import html
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import hivemind_c

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "examples").rglob("README.md"),
        *(ROOT / "benchmarks").rglob("README.md"),
    ]
)
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def blocks(page, language="python"):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("book") / "site"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/book.py", target], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return target


def test_the_book_is_built_without_a_warning(site):
    assert (site / "index.html").exists()
    for page in PAGES:
        path = page.relative_to(ROOT)
        built = site / (path.parent / "index.html" if path.name == "README.md" else path.with_suffix(".html"))
        assert built.exists(), f"{path} is no chapter: add it to mkdocs.yml"


def test_book_has_no_dead_link_and_fetches_nothing(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        for link in re.findall(r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"', text):
            path = link.split("#")[0].split("?")[0]
            if path and not re.match(r"[a-z]+:|//", path) and page.name != "404.html":
                assert (page.parent / path).resolve().exists(), f"{page.relative_to(site)}: {link}"
        for link in re.findall(r'<(?:link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"', text):
            assert not re.match(r"https?:|//", link), f"{page.relative_to(site)} fetches {link}"


def test_a_dead_link_is_an_error(tmp_path, capsys):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import book
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    book.lay_out(tmp_path / "pages")
    page = tmp_path / "pages/docs/explanation/how-it-works.md"
    page.write_text(page.read_text() + "\n[dead](NOWHERE.md) [deader](../design/matchmaking.md#nowhere)\n")
    config = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(
        config.replace("build/book", str(tmp_path / "pages")).replace("build/site", str(tmp_path / "site"))
    )
    assert book.build(tmp_path / "mkdocs.yml") != 0
    told = capsys.readouterr().err
    assert "NOWHERE.md" in told and "#nowhere" in told


READERS = re.compile(r"^For (?:people|everybody|contributors|programmers)\b")


def first_sentence(page):
    """The first line of a page below its title."""
    title, empty, line = page.splitlines()[:3]
    return line if title.startswith("# ") and not empty else ""


def test_first_sentence_of_each_page_names_its_readers():
    pages = {page: first_sentence(page.read_text()) for page in (ROOT / "docs").rglob("*.md")}
    assert len(pages) >= 30 and not [page.name for page, line in pages.items() if not READERS.search(line)]
    assert not READERS.search(first_sentence("# A page\n\nIt is about words.\n"))


#: questions of a newcomer: the page that answers, and words of the answer
ANSWERS = {
    "which port": ("docs/howto/open-a-port.md", "A peer listens on one TCP port"),
    "which batch size": ("docs/howto/choose-settings.md", "Begin with the largest batch"),
    "how many bytes an epoch": ("docs/howto/choose-settings.md", "## Bytes on the line"),
    "what a joiner downloads": ("docs/howto/choose-settings.md", "## What a joining peer downloads"),
    "what happens when I press Ctrl-C": ("docs/howto/unreliable-machines.md", "Ctrl-C or SIGTERM"),
    "what a stranger can do": ("docs/explanation/security-model.md", "## May strangers join?"),
    "how a group forms": ("docs/design/matchmaking.md", "# How groups form"),
    "which options change the mathematics": ("docs/howto/choose-settings.md", "## Options that change the mathematics"),
    "does it work with my GPU": ("docs/howto/install.md", "| AMD, Intel GPU | untested"),
    "which torch versions": ("docs/howto/install.md", "torch 2.6 to 2.14"),
    "what if my machine sleeps": ("docs/howto/unreliable-machines.md", "A machine that wakes up continues by itself"),
    "how do I resume": ("docs/howto/unreliable-machines.md", "**Resume all of it**"),
    "how do I leave": ("docs/howto/unreliable-machines.md", "**Stop a loop of your own**"),
    "two runs on one machine": ("docs/howto/open-a-port.md", "| two runs of different models |"),
    "how do I see who trains": ("docs/howto/monitor.md", "- **Peers** report"),
    "what does an idle peer cost": ("docs/howto/choose-settings.md", "## What an idle peer costs"),
    "where a clone and a wheel come from": ("docs/howto/questions.md", "### Where do I get a clone and a wheel?\n"),
    "does it run in WSL2": ("docs/howto/questions.md", "### Does it run in WSL2?\n"),
    "torch without CUDA": ("docs/howto/questions.md", "### How do I get torch without CUDA for make?\n"),
    "which machine starts first": ("docs/howto/questions.md", "### Which machine starts first?\n"),
    "a private address of a cloud machine": (
        "docs/howto/questions.md",
        "### The line has a private address. What do I write?\n",
    ),
    "two PCs behind one router and a cloud peer": (
        "docs/howto/questions.md",
        "### Two PCs behind one router and a cloud peer: how?\n",
    ),
    "carrier NAT and IPv6": ("docs/howto/questions.md", "### What about carrier NAT and IPv6?\n"),
    "validation": ("docs/howto/questions.md", "### How does validation work?\n"),
    "iterable data sets and samplers": ("docs/howto/questions.md", "### Do iterable data sets and samplers work?\n"),
    "bf16": ("docs/howto/questions.md", "### Does bf16 work?\n"),
    "W&B and other loggers": ("docs/howto/questions.md", "### One W&B run or several?\n"),
    "callbacks": ("docs/howto/questions.md", "### Do my callbacks work?\n"),
    "resuming": ("docs/howto/questions.md", "### How do I resume?\n"),
    "the largest model at the defaults": (
        "docs/howto/questions.md",
        "### What is the largest model at the defaults?\n",
    ),
    "an upload slower than the download": (
        "docs/howto/questions.md",
        "### My upload is slower than my download. Does that matter?\n",
    ),
    "most peers": ("docs/howto/questions.md", "### How many peers at most?\n"),
    "the loss of each mode": ("docs/howto/questions.md", "### What does each mode do to the loss?\n"),
    "the cost of egress": ("docs/howto/questions.md", "### What does egress cost?\n"),
    "notices that are not SIGTERM": (
        "docs/howto/questions.md",
        "### My provider gives a notice that is not SIGTERM. What do I do?\n",
    ),
    "restarting by itself": ("docs/howto/questions.md", "### How do I restart a trainer by itself?\n"),
}


def anchor(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def test_each_question_has_an_entry_in_the_index():
    index = (ROOT / "docs/index.md").read_text()
    titles = re.findall(r"(?m)^### (.*)$", (ROOT / "docs/howto/questions.md").read_text())
    assert len(titles) >= 18 and not [title for title in titles if f"questions.md#{anchor(title)})" not in index]


def clicks(start):
    """{page: links that lead there from the start, at least}."""
    found, edge = {start: 0}, [start]
    while edge:
        page = edge.pop(0)
        for link in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target.exists() and target not in found:
                found[target] = found[page] + 1
                edge.append(target)
    return found


def test_answers_are_at_most_three_clicks_away():
    away = clicks(ROOT / "README.md")
    for question, (page, words) in ANSWERS.items():
        assert words in (ROOT / page).read_text(), question
        assert away[ROOT / page] <= 3, question
    assert not [page for page in (ROOT / "docs").rglob("*.md") if away.get(page, 9) > 3]


def test_pictures_are_all_shown_and_fetch_nothing():
    pages = "".join(page.read_text() for page in PAGES)
    pictures = list((ROOT / "docs/pictures").iterdir())
    assert len(pictures) >= 5
    for picture in pictures:
        assert f"pictures/{picture.name})" in pages and picture.stat().st_size < 300_000, picture
        if picture.suffix == ".svg":
            assert not re.search(r"(?:url\(|href=|src=)[\"']?(?:https?:)?//", picture.read_text()), (
                f"{picture} fetches something"
            )


def test_front_page_pictures_are_short_and_show_a_swarm():
    demo, quickstart = ((ROOT / f"docs/pictures/{name}.svg").read_text() for name in ("demo", "quickstart"))
    lines = set(re.findall(r"url\(#terminal-demo-line-(\d+)\)", demo))
    assert 8 <= len(lines) <= 14 and "all&#160;of&#160;it&#160;worked" in demo
    count, target = re.search(r"swarm=(\d+)/(\d+)&#160;samples", quickstart).groups()
    assert 0 < int(count) < int(target) and "peers=3" in quickstart


FACTOR = 2  #: between a time on a picture and on its page
UNITS = {"seconds": 1, "minutes": 60}
NUMBERS = "no", "one", "two", "three", "four", "five"


def apart(shown, said):
    """True if a time is not within the factor of the times that a page says."""
    return not min(said) / FACTOR <= shown <= max(said) * FACTOR


def seconds_of(picture):
    """The last time of a terminal's picture."""
    text = html.unescape(re.sub(r"<[^>]+>", " ", picture)).replace("\xa0", " ")
    return max(float(found) for found in re.findall(r"(\d+\.\d\d) s\b", text))


# A picture that was taken on a busy machine frightens: a joiner that trains a minute later, where it takes seconds.
def test_demo_picture_takes_as_long_as_its_page_says():
    first, last, unit = re.search(r"make demo +# (\d+) to (\d+) (\w+)", (ROOT / "README.md").read_text()).groups()
    shown = seconds_of((ROOT / "docs/pictures/demo.svg").read_text())
    assert not apart(shown, [int(n) * UNITS[unit] for n in (first, last)]), shown


def test_picture_behind_nats_takes_as_long_as_its_page_says():
    text = (ROOT / "docs/howto/run-a-hub.md").read_text()
    said = re.search(r"`make demo-nat` in a clone .* in (half a minute|\w+ minutes):", text)[1]
    minutes = 0.5 if said == "half a minute" else NUMBERS.index(said.split()[0])
    shown = seconds_of((ROOT / "docs/pictures/demo-nat.svg").read_text())
    assert not apart(shown, [60 * minutes]), shown


def test_time_of_a_picture_is_its_last():
    picture = "<text>&#160;0.00&#160;s</text><text>143.86 s</text><text>21.5 MB</text>"
    assert seconds_of(picture) == 143.86
    assert apart(143.86, [20, 40]) and apart(9.9, [20, 40]) and not apart(79, [20, 40]) and not apart(10, [20, 40])


def described(made):
    """The options under "Args:" in help(made), one line each, and those that the code has."""
    text = inspect.getdoc(made)
    summary, blank, *_ = text.splitlines()
    assert summary.endswith((".", ")")) and not blank, f"{made.__name__}: a summary line, then an empty one"
    lines = text.split("\nArgs:\n")[1].splitlines()
    said = [re.fullmatch(r"    (\*{0,2}\w+): [A-Z\"].*[.]", line) for line in lines]
    assert all(said), f"{made.__name__}: not one option: {[line for line, match in zip(lines, said) if not match]}"
    marks = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    known = list(inspect.signature(made.__init__).parameters.values())[1:]
    return [match[1] for match in said], [marks.get(one.kind, "") + one.name for one in known]


def test_help_of_optimizer_describes_each_option_in_one_line():
    said, known = described(hivemind_c.Optimizer)
    assert said == known


def test_help_of_strategy_describes_its_own_options_only():
    said, known = described(hivemind_c.HivemindStrategy)
    own = len(said) - 1
    assert said[own] == "**optimizer_kwargs" and said[:own] == known[:own]
    assert known[own:] and set(known[own:]) <= set(described(hivemind_c.Optimizer)[0])


def test_a_missing_option_in_help_is_seen():
    class Made:
        """Makes something.

        Args:
            one: A number.
        """

        def __init__(self, one, two):
            pass

    assert described(Made) == (["one"], ["one", "two"])


def test_the_commands_have_the_options_that_pages_name():
    for program in ("monitor", "doctor"):
        told = subprocess.run(
            [sys.executable, "-m", f"hivemind_c.cli.{program}", "--help"],
            capture_output=True,
            text=True,
            env={**ENV, "COLUMNS": "250"},
        ).stdout
        for page in PAGES:
            for line in re.findall(rf"hivemind-{program} (--[^`\n]*)", page.read_text()):
                for option in re.findall(r"(--[a-z_]+)", line):
                    assert option in told, f"{page.name}: {option} of hivemind-{program}"


def test_sequence_pictures_are_those_of_the_script(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/sequences.py", tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs/pictures").glob("sequence-*.svg")}
    assert len(drawn) == 4 and drawn == kept, "run make pages"
