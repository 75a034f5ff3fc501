"""Docstrings of public classes and functions: a summary line, and "Args:" with one argument a line, as in the code."""

import importlib
import inspect
import re

import pytest

PARTS = "averaging", "compression", "dht", "optim", "strategy", "utils"
PACKAGES = "hivemind_c", *(f"hivemind_c.{name}" for name in PARTS)
LINE = re.compile(r"    (\*{0,2}\w+): [A-Z0-9\"].*[.]")


def public():
    """{name: class or function} of all that the packages export and this project wrote."""
    modules = map(importlib.import_module, PACKAGES)
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    ours = {name: one for name, one in found.items() if getattr(one, "__module__", "").startswith("hivemind_c")}
    return {name: one for name, one in ours.items() if inspect.isclass(one) or inspect.isfunction(one)}


def own_arguments(function):
    """The arguments that a function names itself, in their order, whatever signature it shows."""
    code = inspect.unwrap(function).__code__
    positional, all_named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names, rest = list(code.co_varnames[:all_named]), list(code.co_varnames[all_named:])
    more = ["*" + rest.pop(0)] if code.co_flags & inspect.CO_VARARGS else []
    last = ["**" + rest.pop(0)] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return [name for name in names[:positional] + more + names[positional:] + last if name not in ("self", "cls")]


def complaint(docstring, arguments):
    """The rule that a docstring breaks, or None."""
    text = inspect.cleandoc(docstring or "")
    summary, *rest = text.split("\n")
    if not summary.endswith((".", ")")) or rest[:1] not in ([], [""]):
        return "the first line must be a whole sentence, and an empty line must follow"
    lines = text.split("\nArgs:\n")[1].split("\n") if "\nArgs:\n" in text else []
    named = [match and match[1] for match in map(LINE.fullmatch, lines)]
    return None if named == arguments else f"Args must have one line for each of {arguments}, not {lines}"


def parts_of(kind):
    """(name, docstring, arguments) of a public class and of each public method and property in it."""
    init = vars(kind).get("__init__")
    made_by_hand = inspect.isfunction(init) and not hasattr(kind, "__dataclass_fields__")
    yield kind.__name__, kind.__doc__, own_arguments(init) if made_by_hand else []
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{kind.__name__}.{name}", member.__doc__, []
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(function):
            yield f"{kind.__name__}.{name}", function.__doc__, own_arguments(function)


def complaints(one):
    if inspect.isfunction(one):
        parts = [(one.__name__, one.__doc__, own_arguments(one))]
    else:
        kinds = (kind for kind in one.__mro__ if kind.__module__.startswith("hivemind_c"))
        parts = [part for kind in kinds if not kind.__name__.startswith("_") for part in parts_of(kind)]
    found = ((name, complaint(docstring, arguments)) for name, docstring, arguments in parts)
    return [f"{name}: {text}" for name, text in found if text]


@pytest.mark.parametrize("name", sorted(public()))
def test_docstring_names_each_argument(name):
    assert complaints(public()[name]) == []


class Good:
    """Does nothing.

    Args:
        first: Seconds to wait.
        *others: More of them.
        last: True if it is the last.
    """

    def __init__(self, first, *others, last=False):
        pass

    @property
    def size(self):
        """Number of values."""


class Bad(Good):
    """Does nothing
    at all."""

    def undocumented(self):
        pass

    def forgets(self, one, two):
        """Does nothing.

        Args:
            one: Seconds to wait.
        """

    def says_it_in_a_sentence(self, one):
        """Does nothing. one: seconds to wait."""


def test_wrong_docstrings_are_refused():
    assert not [text for _, docstring, args in parts_of(Good) if (text := complaint(docstring, args))]
    bad = [name for name, docstring, args in parts_of(Bad) if complaint(docstring, args)]
    assert bad == ["Bad", "Bad.undocumented", "Bad.forgets", "Bad.says_it_in_a_sentence"]
