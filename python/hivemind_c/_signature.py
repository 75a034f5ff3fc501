"""Signatures that show what **options are passed on to: for help(), and for tools that read them."""

from __future__ import annotations

import inspect
from typing import Callable, Iterable, TypeVar, get_type_hints

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
