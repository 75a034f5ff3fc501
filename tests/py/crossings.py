"""Counts the crossings between Python and C of one Optimizer: calls of the core, reads of what it has, calls from it.

Only the thread of the counter and the late lane's count, and no creation of an object.
"""

import inspect
import sys
import threading
import types

import _hivemind_c

from hivemind_c.optim.lineage import Lineage

KINDS = {kind for kind in vars(_hivemind_c).values() if isinstance(kind, type)}


class Seen:
    """An object of the core, which tells a list of each attribute that is read."""

    def __init__(self, core, crossed):
        self.core, self._crossed = core, crossed

    def __getattr__(self, name):
        if isinstance(inspect.getattr_static(type(self.core), name), types.GetSetDescriptorType):
            self._crossed(f"{type(self.core).__name__}.{name}")
        return getattr(self.core, name)


class Crossings:
    """A context in which crossings are counted: `made` has their names, in order.

    Args:
        optimizer: An Optimizer. It records nothing (HIVEMIND_RECORD), or that counts, too.
    """

    def __init__(self, optimizer):
        self.made, self._optimizer, self._undo = [], optimizer, []
        self._thread = None

    def __enter__(self):
        self._thread = threading.current_thread()
        one, driver = self._optimizer, self._optimizer.driver
        seen = Seen(driver.machine, self._crossed)
        for holder, name in ((driver, "machine"), (driver.hands, "_machine"), (driver.notices, "_machine")):
            self._replace(holder, name, seen)
        self._replace(one.ledger, "samples", Seen(one.ledger.samples, self._crossed))
        self._replace(Lineage, "mark", property(lambda lineage: self._mark(lineage)))
        threading.setprofile(self._saw)
        sys.setprofile(self._saw)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)
        while self._undo:
            self._undo.pop()()

    def _replace(self, holder, name, value):
        had, before = name in vars(holder), getattr(holder, name)
        setattr(holder, name, value)
        self._undo.append(lambda: setattr(holder, name, before) if had else delattr(holder, name))

    def _mark(self, lineage):
        self._crossed("Lineage.mark")
        return _hivemind_c.Lineage.mark.__get__(lineage)

    def _crossed(self, name):
        if sys.getprofile() == self._saw:
            self.made.append(name)

    def _saw(self, frame, event, what):
        """Called at each call of a thread."""
        thread = threading.current_thread()
        background = getattr(getattr(thread, "_target", None), "__self__", None)
        if thread is not self._thread and background is not self._optimizer.state_averager.background:
            sys.setprofile(None)  # another thread, begun meanwhile
        elif event == "c_call" and (name := name_in_core(what)):
            self.made.append(name)
        elif event == "call" and frame.f_code is Lineage.digest.__code__:
            self.made.append("Lineage.digest")


def name_in_core(function):
    """The name of a function of the core, or None."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        return function.__name__ if owner is _hivemind_c else None
    of = next((kind for kind in type(owner).__mro__ if kind in KINDS), None)
    return f"{of.__name__}.{function.__name__}" if of else None
