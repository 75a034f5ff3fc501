"""The pages of the API: made from the docstrings and the header of today, whole, and with ranges that hold."""

import inspect
import itertools
import os
import re
import subprocess
import sys

import pytest
import torch
from support import module_of
from test_book import ROOT

import hivemind_c

api, c_api = module_of(ROOT / "scripts/api.py"), module_of(ROOT / "scripts/c_api.py")
CLASSES = """HivemindStrategy Optimizer DHT DecentralizedAverager GradientAverager TrainingStateAverager ProgressTracker
PowerSGDGradientAverager DiLoCoOptimizer SizeAdaptiveCompression RoleAdaptiveCompression PerTensorCompression
ErrorFeedback""".split()
MEASURED = "`int`", "`float`", "`str`", "`Addresses`"
number = itertools.count()


def test_tables_are_made_of_todays_docstrings():
    options, others = (page.read_text() for page in api.PAGES)
    assert api.filled(options) == options and api.filled(others) == others, "run make pages"
    changed = options.replace("| Where to listen", "| Where to wait")
    assert changed != options and api.filled(changed) == options


def test_every_command_and_option_has_a_row():
    project = (ROOT / "pyproject.toml").read_text()
    commands = re.findall(r"(?m)^(hivemind-\w+) = ", project)
    page = api.PAGES[0].read_text()
    assert len(commands) == 5 and sorted(re.findall(r"<!-- (hivemind-\w+) -->\n\n\|", page)) == sorted(commands)
    for command in commands:
        module = command.removeprefix("hivemind-")
        done = subprocess.run(
            [sys.executable, "-m", f"hivemind_c.cli.{module}", "--help"],
            capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "300"},
        )  # fmt: skip
        section = page.split(f"<!-- {command} -->")[1].split("<!-- end -->")[0]
        told = set(re.findall(r"(?m)^[\s│*]*(--[a-z]\w*)", done.stdout)) - {"--help"}
        assert told and [option for option in sorted(told) if f"`{option}" not in section] == [], command


def test_each_class_has_one_table_and_an_example():
    options, text = (page.read_text() for page in api.PAGES)
    assert sorted(re.findall(r"<!-- (\w+) -->\n\n\|", options + text)) == sorted(CLASSES)
    for name in CLASSES:
        section = re.search(rf"(?ms)^##+ {name}\n(.*?)(?=^##|\Z)", text)[1]
        assert "```python" in section, name
    plain = {name for name in hivemind_c.compression.__all__ if re.search(r"Compression$|Quantization$", name)}
    assert [name for name in plain if f"`{name}`" not in text and name not in CLASSES] == []


def classes_below(name):
    """The classes whose arguments a class takes, one after the other."""
    while name := api.TAKES.get(name):
        yield name


def test_every_argument_has_a_row_and_numbers_have_a_range():
    for name in CLASSES:
        kind = api.kind_of(name)
        known = inspect.signature(kind.__init__).parameters
        table = api.rows(kind)
        shown = {row[0].strip("`") for row in table if not row[0].startswith("`*")}
        taken = {row[0].strip("`") for one in classes_below(name) for row in api.rows(api.kind_of(one))}
        assert shown <= set(known) - {"self"} <= shown | taken, name
        for argument, shown, unit, default, meaning in table:
            argument = argument.strip("`")
            if argument.startswith("*"):
                continue
            assert shown and default and meaning and argument in known, (name, argument)
            if shown in MEASURED and not api.without_effect(meaning):
                assert unit, f"{name}: {argument} needs a unit and a range in scripts/api.py"


def outside(unit, argument):
    """Numbers, or texts, that a range excludes."""
    if "bytes of text" in unit:
        return ["x" * (int(re.search(r"to (\d+)", unit)[1]) + 1)]
    unit = unit.replace(",", "").replace("2^32 - 2", str(2**32 - 2)).replace("2^48", str(2**48))
    out = [-1] if re.search(r"\b0 (?:to|or more)", unit) else []
    out += [0] if re.search(r"> 0|> `|\b1 (?:or more|to)", unit) else []
    out += [int(most[1]) + 1] if (most := re.search(r"(?:to|up to) (\d+)$", unit)) else []
    out += [7 * 86400 + 1] if "week" in unit else []
    out += [10**7] if "million" in unit else []
    out += [2**64 * 2] if "2^64" in unit else []
    return [0.5] if argument == "fast" else out


def cases():
    for name in ("Optimizer", "DecentralizedAverager", "ProgressTracker", "DHT", "PowerSGDGradientAverager"):
        for argument, _, unit, *_ in api.rows(api.kind_of(name)):
            argument = argument.strip("`")
            yield from ((name, argument, value) for value in outside(unit, argument))


def make(name, dht, **options):
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    own = options.pop("prefix", options.pop("run_id", f"api{next(number)}"))
    if name == "DHT":
        return hivemind_c.DHT(start=True, **options)
    if name == "DecentralizedAverager":
        return hivemind_c.DecentralizedAverager([torch.zeros(2)], dht, prefix=own, start=True, **options)
    if name == "ProgressTracker":
        return hivemind_c.ProgressTracker(dht, own, **{"target_batch_size": 8, "start": True, **options})
    if name == "PowerSGDGradientAverager":
        return hivemind_c.PowerSGDGradientAverager([weight], dht=dht, prefix=own, **{"averager_rank": 1, **options})
    options = {"target_batch_size": 8, "batch_size_per_step": 2, **options}
    return hivemind_c.Optimizer(dht=dht, run_id=own, optimizer=torch.optim.SGD([weight], lr=0.1), **options)


def test_numbers_outside_their_ranges_are_refused(dht):
    found, node = list(cases()), dht()
    assert len(found) >= 40
    for name, argument, value in found:
        with pytest.raises((ValueError, OverflowError, hivemind_c.HivemindError)):
            make(name, node, **{argument: value}).shutdown()
            pytest.fail(f"{name}({argument}={value!r}) was accepted, against the range in scripts/api.py")


def test_c_page_is_made_of_todays_header():
    header = c_api.HEADER.read_text()
    assert c_api.page(header) == c_api.PAGE.read_text(), "run make pages"
    changed = header.replace("Stops a hive within 2 s", "Stops a hive within 3 s")
    assert changed != header and c_api.page(changed) != c_api.page(header)


def test_c_page_has_every_function_with_its_words():
    header = c_api.HEADER.read_text()
    declared = set(re.findall(r"(?m)^(?!typedef| |/).*?\b(hv_\w+)\(", header))
    entries = {one.name: one for one in c_api.entries(header)}
    assert len(declared) >= 40 and declared <= set(entries)
    silent = [name for name in declared if not entries[name].words]
    assert silent == [], "a function of hivemind_c.h needs a comment of its own"
