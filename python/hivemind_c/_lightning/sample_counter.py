"""How many samples a batch has, and in which of its elements they are counted."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, List, NamedTuple, Optional, Set

import torch
from torch.nn.utils.rnn import PackedSequence

from hivemind_c._lightning.namespaces import misconfigured, part

logger = logging.getLogger("hivemind_c.strategy")
REMEDY = "if that is wrong, give HivemindStrategy(batch_size=...)"


class Size(NamedTuple):
    """A number of samples, and the element of the batch in which they were counted."""

    samples: int
    where: str  #: the element, as Python would write it
    how: str  #: of what the samples are counted


def say(strategy: Any, text: str) -> None:
    """One line for people: where the program's logging shows it, else as Lightning shows its own."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(text)
    else:
        part(strategy._names[0], "utilities.rank_zero.rank_zero_info")(text)


class SampleCounter:
    """Counts the samples of each batch in the element in which it counted the first, and logs once which that is.

    Args:
        strategy: The HivemindStrategy.
    """

    def __init__(self, strategy: Any):
        self._strategy = strategy
        self._said = False
        self._list: Optional[str] = None  # the list that has one element for each sample, if the samples are counted so

    def count(self, batch: Any) -> int:
        """Returns the number of samples in a batch. Raises MisconfigurationException if the batch does not show it.

        Args:
            batch: The batch.
        """
        try:
            sizes = self._sizes(batch, "batch", set())
            found = [next(sizes, None)] if self._said else list(sizes)
        except RecursionError:
            found = []
        if not found or found[0] is None:
            raise misconfigured(
                self._strategy,
                f"how many samples are in a batch? It cannot be seen in {type(batch).__name__}, which holds no tensor "
                "with a dimension: write HivemindStrategy(batch_size=...)",
            )
        if not self._said:
            self._say(found)
        return found[0].samples

    def _say(self, found: List[Any]) -> None:
        first, self._said = found[0], True
        if first.how.startswith("the length"):
            self._list = first.where
        text = f"the first batch has {first.samples} samples, counted as {first.how} of {first.where}"
        other = next((size for size in found if size.samples != first.samples), None)
        if other is None:
            say(self._strategy, f"{text}; {REMEDY}")
        else:
            logger.warning("%s, but %s of %s is %d; %s", text, other.how, other.where, other.samples, REMEDY)

    def _sizes(self, thing: Any, name: str, beside: Set[int]) -> Iterator[Size]:
        """Possible numbers of samples, the likeliest first. beside: the lengths of the elements beside this one."""
        if isinstance(thing, PackedSequence):
            yield Size(int(thing.batch_sizes[0]), name, "the batch size")
        elif isinstance(thing, torch.Tensor) or hasattr(thing, "shape") and hasattr(thing, "dtype"):
            if len(thing.shape):
                yield Size(int(thing.shape[0]), name, "the first dimension")
        elif isinstance(thing, (str, bytes, Iterator)):
            return
        elif isinstance(thing, Mapping):
            yield from self._of_parts({f"{name}[{key!r}]": value for key, value in thing.items()})
        elif isinstance(thing, (list, tuple)) and self._is_one_of_each(thing, name, beside):
            yield Size(len(thing), name, "the length")
        elif isinstance(thing, Iterable):
            yield from self._of_parts({f"{name}[{i}]": value for i, value in enumerate(thing)})
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            yield from self._of_parts(
                {f"{name}.{field.name}": getattr(thing, field.name) for field in dataclasses.fields(thing)}
            )

    def _of_parts(self, parts: "dict[str, Any]") -> Iterator[Size]:
        for name, value in parts.items():
            beside = set() if self._said else {_length(other) for where, other in parts.items() if where != name}
            yield from self._sizes(value, name, beside)

    def _is_one_of_each(self, things: Any, name: str, beside: Set[int]) -> bool:
        """True if the list has a tensor for each sample: images of unequal size, for example."""
        if self._said:
            return name == self._list
        if not things or not all(isinstance(thing, torch.Tensor) and thing.ndim for thing in things):
            return False
        firsts = {thing.shape[0] for thing in things}
        if len({(thing.ndim, thing.dtype) for thing in things}) > 1:
            return False
        if len(things) in beside and not firsts & beside:  # labels beside it have its length
            return True
        unequal = len({thing.shape for thing in things}) > 1
        images = things[0].ndim == 3 and firsts <= {1, 3, 4}
        return unequal and (len(firsts) > 1 or images) and not firsts & beside


def _length(thing: Any) -> int:
    """The length by which an element is compared with those beside it; -1: it has none."""
    if isinstance(thing, torch.Tensor):
        return int(thing.shape[0]) if thing.ndim else -1
    return len(thing) if isinstance(thing, (list, tuple)) else -1


class CountingIterator(Iterator):
    """An iterator over batches that counts their samples.

    Args:
        inner: The iterator.
        counter: Counts the samples of one batch.
    """

    def __init__(self, inner: Any, counter: SampleCounter):
        self._inner, self._counter, self.samples = inner, counter, 0

    def __next__(self) -> Any:
        taken = next(self._inner)
        self.samples += self._counter.count(taken[0])
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


def is_dataloader_iter(thing: Any) -> bool:
    return type(thing).__name__ == "_DataFetcherWrapper"
