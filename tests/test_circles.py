"""No two C files call each other, directly or by a detour."""

from test_tidy import needed, objects, told

__all__ = ["objects"]  # the fixture

ONE_MACHINE = "core/agree/council"  # the agreement inside a round, one machine in three files


def called_by(objects):
    """{file: the files whose functions it calls}."""
    there = {}
    for name, path in objects.items():
        there |= dict.fromkeys(told("nm", "-g", "--defined-only", "-j", path).split(), name)
    return {name: {there[one] for one in needed(path) if one in there} - {name} for name, path in objects.items()}


def in_circles(callees):
    """The files that reach themselves over the files that they call."""
    found = set()
    for name in callees:
        reached, rest = set(), set(callees[name])
        while rest:
            one = rest.pop()
            reached.add(one)
            rest |= callees[one] - reached
        if name in reached:
            found.add(name)
    return found


def test_circle_is_seen():
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}}) == {"a", "b", "c"}
    assert in_circles({"a": {"b"}, "b": set()}) == set()


def test_no_two_files_call_each_other(objects):
    callees = called_by(objects)
    assert len(callees["core/node"]) > 5
    assert {name for name in in_circles(callees) if not name.startswith(ONE_MACHINE)} == set()
