"""Lists, tuples and dicts within each other, as a flat row of their values and back."""

from __future__ import annotations

from typing import Any, Callable, Iterator


def is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


def _inner(value: Any) -> Any:
    """The values of one level, in order: those of a dict by their keys. None: the value is no such structure."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return value if isinstance(value, (list, tuple)) else None


def _like(structure: Any, inner: list) -> Any:
    if isinstance(structure, dict):
        made = dict(zip(sorted(structure), inner))
        return {key: made[key] for key in structure}
    return type(structure)(*inner) if is_namedtuple(structure) else type(structure)(inner)


def nested_flatten(structure: Any) -> Iterator[Any]:
    """Yields the values of nested lists, tuples and dicts. Those of a dict come in the order of its sorted keys.

    Args:
        structure: The nested structure.
    """
    inner = _inner(structure)
    if inner is None:
        yield structure
        return
    for value in inner:
        yield from nested_flatten(value)


def nested_pack(flat: Any, structure: Any) -> Any:
    """Returns values in a structure like another one. Raises ValueError if their numbers differ.

    Args:
        flat: The values.
        structure: A structure with the wanted form.
    """
    values = list(flat)
    wanted = sum(1 for _ in nested_flatten(structure))
    if len(values) != wanted:
        raise ValueError(f"nested_pack got {len(values)} values for a structure of {wanted}: give as many of each")
    row = iter(values)

    def packed(part: Any) -> Any:
        inner = _inner(part)
        return next(row) if inner is None else _like(part, [packed(value) for value in inner])

    return packed(structure)


def nested_compare(one: Any, other: Any) -> bool:
    """True if two structures have the same form, whatever their values.

    Args:
        one: A structure.
        other: Another structure.
    """
    first, second = _inner(one), _inner(other)
    if first is None or second is None:
        return first is None and second is None
    if isinstance(one, dict) != isinstance(other, dict) or isinstance(one, dict) and set(one) != set(other):
        return False
    alike = isinstance(one, dict) or isinstance(one, list) == isinstance(other, list)
    return alike and len(first) == len(second) and all(map(nested_compare, first, second))


def nested_map(function: Callable[..., Any], *structures: Any) -> Any:
    """Returns a structure of the results of a function. Raises ValueError if the structures differ in form.

    Args:
        function: A function with one argument for each structure.
        *structures: Structures of the same form.
    """
    if not structures:
        raise ValueError("nested_map got no structure: give at least one behind the function")
    if not all(nested_compare(structures[0], other) for other in structures[1:]):
        raise ValueError(
            "nested_map got structures that differ: give lists, tuples and dicts of the same kinds, lengths and keys"
        )
    return nested_pack(map(function, *map(nested_flatten, structures)), structures[0])


__all__ = ["is_namedtuple", "nested_compare", "nested_flatten", "nested_map", "nested_pack"]
