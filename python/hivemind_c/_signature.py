"""Options of a call by name: signatures that show all of them to help() and to tools, and an error for unknown ones."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, Iterable, TypeVar, get_type_hints

Init = TypeVar("Init", bound=Callable[..., None])


def shows_options_of(taker: type, but: Iterable[str] = ()) -> Callable[[Init], Init]:
    """A decorator of an __init__ that passes its **options on to the class `taker`. Its signature shows the options of `taker` instead, without those in `but`,
    which the __init__ sets itself."""
    hidden = {"self", *but}

    def show(init: Init) -> Init:
        own = inspect.signature(init).parameters
        types = get_type_hints(taker.__init__)  # type: ignore[misc]
        shown = [p for p in own.values() if p.kind is not p.VAR_KEYWORD]
        for p in inspect.signature(taker).parameters.values():
            if p.name not in own and p.name not in hidden:
                shown.append(p.replace(kind=p.KEYWORD_ONLY, annotation=types.get(p.name, p.annotation)))
        init.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return init

    return show


def hides_options(init: Init) -> Init:
    """A decorator of an __init__ whose **options have no effect, and are there for programs of hivemind.

    Its signature is without them.
    """
    signature = inspect.signature(init)
    shown = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    init.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return init


def unknown_option(where: str, option: str, known: Iterable[str]) -> TypeError:
    """The error for an option that is not there, with the name that is most like it."""
    names = sorted(known)
    near = difflib.get_close_matches(option, names, 1)
    return TypeError(
        f"{where}: there is no option {option!r}; "
        + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}")
    )


def names_options(init: Init) -> Init:
    """A decorator of an __init__ without **options. An unknown option is a TypeError that names the nearest one."""
    where = init.__qualname__.partition(".")[0]
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def check(self: Any, *args: Any, **options: Any) -> None:
        for option in options:
            if option not in known:
                raise unknown_option(where, option, known)
        init(self, *args, **options)

    return check  # type: ignore[return-value]
