"""The tables of docs/reference/options.md, made from signatures and docstrings: scripts/options.py writes them."""

from __future__ import annotations

import inspect
import pathlib
import re
from typing import Any, Dict

import hivemind_c

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/reference/options.md"
CLASSES = "Optimizer", "DHT", "DecentralizedAverager", "ProgressTracker"


def said(made: Any) -> Dict[str, str]:
    """The text of each option under "Args:"."""
    lines = re.split(r"\nArgs:\n", inspect.getdoc(made) or "")[1].splitlines()
    found: Dict[str, str] = {}
    for line in lines:
        if match := re.fullmatch(r"    (\w+): (.*)", line):
            found[match[1]] = match[2]
    return found


def shown(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "-"
    is_codec = isinstance(default, hivemind_c.CompressionBase)
    return f"`{type(default).__name__}()`" if is_codec else f"`{default!r}`"


def table(name: str) -> str:
    made = getattr(hivemind_c, name)
    texts = said(made)
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option, parameter in inspect.signature(made.__init__).parameters.items():
        if option != "self":
            text = texts[option].replace("|", "\\|")
            rows.append(f"| `{option}` | {shown(parameter.default)} | {text} |")
    return "\n".join(rows)


def filled(page: str) -> str:
    """The page with its tables made anew."""
    for name in CLASSES:
        page, count = re.subn(
            rf"(?s)(<!-- {name} -->\n\n)\| option .*?(?=\n\n|\n?\Z)", lambda m: m[1] + table(name), page
        )
        assert count == 1, f"the page has no table of {name}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
