"""Sentences and figures on pages that the code decides: each is compared with the code."""

import inspect
import json
import re

import pytest
from test_book import ROOT

from hivemind_c import HivemindStrategy, Optimizer
from hivemind_c.averaging import checks
from hivemind_c.optim.builder import averager_options


def page(name):
    return (ROOT / name).read_text()


def constant(path, name):
    return int(re.search(rf"(?m)^#define {name} (\d+)", page(path))[1])


def default_of(kind, name):
    return inspect.signature(kind.__init__).parameters[name].default


def stall_of(kind):
    """The seconds that a member may stall a round, by this class's defaults."""

    class Peer:
        matchmaking_time = default_of(kind, "matchmaking_time")
        dht = client_mode = auxiliary = shutdown_timeout = None

    return averager_options(Peer(), None, None, None)["next_chunk_timeout"]


def test_stall_times_are_those_of_each_class():
    told = re.search(
        r"`sender_timeout`, if a round was under way: (\d+) s with HivemindStrategy, (\d+) s with Optimizer, (\d+) s",
        page("docs/explanation/coming-and-going.md"),
    )
    assert [float(s) for s in told.groups()] == [stall_of(HivemindStrategy), stall_of(Optimizer), checks.STALL]


def test_groups_size_is_the_cores():
    most = constant("csrc/core/msg.h", "HV_MATCH_MEMBERS_MAX")
    assert f"one group, of {most} members at most" in page("docs/explanation/how-it-works.md")


@pytest.mark.parametrize("name", ["docs/reference/glossary.md", "docs/design/lineage.md"])
def test_stamp_has_the_bytes_of_the_code(name):
    (bits,) = re.findall(r"uint(\d+)_t stamp;", page("csrc/core/average/average.h"))
    assert f"| stamp | {int(bits) // 8} bytes " in page(name)


def test_install_page_lists_the_packages_of_the_build():
    listed = re.findall(r"(?m)^apt-get install (.+)$", page("docs/howto/install.md"))
    (apt,) = re.findall(r'(?m)^APT = "(.+)"$', page("setup.py"))
    assert listed == [apt]
    installed = set(re.findall(r"\blib\w+-dev\b", page("scripts/setup.sh"))) - {"libcmocka-dev"}  # of tests alone
    assert installed == set(re.findall(r"\blib\w+-dev\b", apt))


def test_pages_say_that_addresses_follow_the_machine():
    """tests/unit/net/transport/test_roam.c and tests/partition show it."""
    assert "hv_moves_set_addrs" in page("csrc/core/peers/moves.h")
    assert "the peer announces that one within seconds" in page("docs/howto/unreliable-machines.md")
    assert "The node announces its new addresses" in page("docs/explanation/coming-and-going.md")


# Nobody owns the name on PyPI: somebody else could.
def test_nothing_installs_hivemind_c_by_its_name():
    by_name = re.compile(r"pip install(?!.*--no-index)[^`\n]*?(?<![\w/.])hivemind_c(?![\w-])")
    assert by_name.search("pip install -q hivemind_c") and by_name.search("pip install 'hivemind_c[monitor]' x")
    assert not by_name.search('pip install "$(ls dist/hivemind_c-*.whl)[monitor]"')
    suffixes, found = (".md", ".ipynb", ".py", ".sh", ".sbatch", ".yaml", ".yml", ".toml"), []
    for folder in ("docs", "examples", "python", "scripts", "packaging", ".github", "benchmarks"):
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    for path in [*found, ROOT / "README.md", ROOT / "Dockerfile"]:
        assert not by_name.search(path.read_text()), path
    assert 'PACKAGE = "hivemind_c"' not in (ROOT / "examples/gpu_report.ipynb").read_text()


def test_pages_count_no_lines_of_examples():
    for path in sorted((ROOT / "examples").rglob("README.md")):
        for file, lines in re.findall(r"\]\((\w+\.py)\)[^.\n]*?\b(\d+) lines", path.read_text()):
            assert len((path.parent / file).read_text().splitlines()) == int(lines), path


def test_no_design_page_says_its_first_sentence_twice():
    for path in sorted((ROOT / "docs").rglob("*.md")):
        opening = path.read_text().split("\n", 2)[-1].split("\n## ")[0].split("\n```")[0].lower()
        words = re.findall(r"[^\W_]+", re.sub(r"(?m)^\|.*$", "", opening))
        runs = [" ".join(words[at : at + 8]) for at in range(len(words) - 7)]
        assert len(set(runs)) == len(runs), f"{path.name}: the words before its first heading repeat themselves"


def test_readmes_figures_are_those_of_the_chart():
    """How much faster several peers are: their number times the ratio that the row `scaling` measured."""
    ratios = json.loads((ROOT / "benchmarks/plots/scaling.json").read_text())["ratios"]
    row = r"(?m)^\| (two|four) \| ([\d.]+) times \| ([\d.]+) times \| ([\d.]+) times \|$"
    shown = re.findall(row, page("README.md"))
    assert [words[0] for words in shown] == ["two", "four"]
    for word, *times in shown:
        number = {"two": 2, "four": 4}[word]
        measured = [number * ratios[f"delayed_{mbit}_{number}"] for mbit in (20, 100, 1000)]
        assert [float(one) for one in times] == [round(one, 1) for one in measured]


def test_readme_is_read_aloud_in_three_minutes():
    text = re.sub(r"```.*?```|!\[.*?\]\(.*?\)|\]\([^)]*\)|[|#\-\[\]`*]", " ", page("README.md"), flags=re.S)
    assert len(text.split()) <= 500
    assert "missed |" not in text
