"""hivemind-invite: the key of a closed swarm, invitations to it, the record of them, and the list of denials."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Optional, Sequence, Tuple

from hivemind_c import HivemindError, HivemindTimeoutError, HivemindValueError, Node, __version__
from hivemind_c import _invitation, _issued, _kept
from hivemind_c._denials import denied_in
from hivemind_c.cli.dht import tell
from hivemind_c.node import _texts

WAIT_S = 15.0  #: longest wait for a peer, and for its receipt


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hivemind-invite",
        description="Makes the key of a closed swarm, and invitations to it. Peers with the key or an invitation train "
        "together; all others are refused.",
    )
    add = parser.add_argument
    add("key", nargs="?", metavar="FILE", help="the swarm's key; by default that of the variable HIVEMIND_SWARM_KEY")
    add("--new", metavar="FILE", help="makes a new swarm key in this file, which must not exist")
    add("--days", type=float, default=7, help="days for which the invitation counts (default: %(default)g)")
    add("--name", default="", help="name that the monitor shows, which has one invitation at a time: at most 32 letters, digits and '-_.'")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true", help="shows the invitations that were issued beside this key")
    only.add_argument("--renew", metavar="NAME", help="gives the invitation of this name or ID another end")
    only.add_argument("--deny", metavar="NAME", help="denies the invitations of this name or ID with all their peers, or a peer by its ID")
    only.add_argument("--allow", metavar="NAME", help="takes such a denial back")
    add(
        "--initial_peers",
        action="extend",
        nargs="+",
        metavar="ADDRESS",
        default=[],
        help="peers that are sent the list of denials; by default those of the variable INITIAL_PEERS",
    )
    add("--version", action="version", version=f"hivemind_c {__version__}")
    return parser


def as_time(moment: Optional[float]) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def path_of(options: argparse.Namespace) -> Optional[str]:
    """The path of the key, which a command line may name; the key itself may not be there."""
    return _invitation.path_only(options.key, _invitation.KEY_VARIABLE)


def make(options: argparse.Namespace) -> None:
    """Prints an invitation, and below it its ID as a comment of a shell."""
    renewed = options.renew is not None
    made = _issued.invite(path_of(options), days=options.days, name=options.renew if renewed else options.name, renew=renewed)
    tell(f"INVITE={made.text}")
    tell(f"# {made.id}{' ' if made.name else ''}{made.name} ends {as_time(made.ends)}")


def show(options: argparse.Namespace) -> None:
    """Prints the record, and what is denied besides."""
    record = _issued.Record(_issued.key_of(path_of(options)))
    denied, newest = denied_in(record.denials.read()), record.newest()
    for one in newest.values():
        states = ["denied"] * (one.id in denied) + ["ended"] * (one.ends <= time.time())
        tell(
            f"{one.id} {one.name or '-'} ends {as_time(one.ends)}, issued {as_time(one.issued)} by {one.by}"
            + "".join(f", {state}" for state in states)
        )
    for number in denied:
        if number not in newest:
            tell(f"{number} - denied")


def exchange(record: _issued.Record, peers: Sequence[str], path: Optional[str]) -> Tuple[int, str]:
    """Exchanges the list with the initial peers, and keeps what they have.

    Returns how many have returned all of it, and why another one has not.

    Args:
        record: The record and the list.
        peers: The initial peers.
        path: Path of the key.
    """
    with Node(client_mode=True, initial_peers=peers, swarm_key=path, log_level="error") as node:
        deadline = time.monotonic() + WAIT_S
        while True:
            denials, has, lacks, why = node.core.denials()
            if (has and not lacks) or time.monotonic() >= deadline:
                break
            time.sleep(0.05)
    record.denials.write(denials, _kept.WAIT_S)
    return has, "" if has and not lacks else why or "none answers"


def change(options: argparse.Namespace) -> None:
    """Changes the list beside the key, and gives it to the initial peers, which pass it on."""
    path = path_of(options)
    record = _issued.Record(_issued.key_of(path))
    peers = _texts(",".join(options.initial_peers) or os.environ.get("INITIAL_PEERS", ""), "initial_peers")
    if options.deny is not None:
        numbers = record.deny(options.deny)
        tell(f"# denied {' '.join(numbers)}; a peer that has the swarm's key cannot be denied")
    else:
        if peers:  # another holder may have denied it
            exchange(record, peers, path)
        numbers = record.allow(options.allow)
        tell(f"# allowed {' '.join(numbers)} again")
    if not peers:
        raise HivemindValueError(
            "the list is beside the key, and only peers that read this file have it: run the command again with "
            "--initial_peers"
        )
    has, why = exchange(record, peers, path)
    if why:
        raise HivemindTimeoutError(
            f"the list is beside the key, and not all initial peers have returned it within {WAIT_S:g} s: {why}; run the "
            "command again, or name peers that are there"
        )
    whose = "the initial peer has" if has == 1 else f"{has} initial peers have"
    tell(f"# {whose} returned the list, and it reaches all members within seconds")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.new is not None:
            if options.key is not None:
                parser().error("--new makes a key and nothing else: run hivemind-invite again to invite")
            _invitation.new_key(options.new)
            tell(f"# {options.new} holds the swarm's key: keep it secret")
        elif options.list:
            show(options)
        elif options.deny is not None or options.allow is not None:
            change(options)
        else:
            make(options)
    except (HivemindError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
