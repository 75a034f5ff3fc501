"""hivemind-invite: makes the key of a closed swarm, invitations to it, and its list of denials."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Optional, Sequence

from hivemind_c import HivemindError, HivemindTimeoutError, HivemindValueError, Node, __version__, _invitation
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
    add("--name", default="", help="name that the monitor shows: at most 32 letters, digits and '-_.'")
    add("--deny", metavar="ID", help="denies an invitation and all peers that came by it, or a peer")
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


def make(options: argparse.Namespace) -> None:
    """Prints an invitation, and below it its ID as a comment of a shell."""
    key = _invitation.path_only(options.key, _invitation.KEY_VARIABLE)
    made = _invitation.invite(key, days=options.days, name=options.name)
    ends = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(made.ends))
    tell(f"INVITE={made.text}")
    tell(f"# {made.id}{' ' if made.name else ''}{made.name} ends {ends}")


def deny(options: argparse.Namespace) -> None:
    """Writes the list beside the key, and sends it to a peer, which passes it on."""
    path = _invitation.path_only(options.key, _invitation.KEY_VARIABLE)
    _invitation.deny(path, options.deny)
    tell(f"# denied {options.deny}; a peer that has the swarm's key cannot be denied")
    peers = _texts(",".join(options.initial_peers) or os.environ.get("INITIAL_PEERS", ""), "initial_peers")
    if not peers:
        raise HivemindValueError(
            "the list is beside the key, and no peer has it yet: run the command again with --initial_peers, or restart "
            "a peer or a hub that reads this file"
        )
    with Node(client_mode=True, initial_peers=peers, swarm_key=path, log_level="error") as node:
        node.wait_for_peers(1, timeout=WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while not (told := node.core.denials()[1]) and time.monotonic() < deadline:
            time.sleep(0.05)
    if not told:
        raise HivemindTimeoutError(f"no peer has taken the list within {WAIT_S:g} s; run the command again")
    tell("# the swarm has it, and passes it on within seconds")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.new is not None:
            if options.key is not None:
                parser().error("--new makes a key and nothing else: run hivemind-invite again to invite")
            _invitation.new_key(options.new)
            tell(f"# {options.new} holds the swarm's key: keep it secret")
        elif options.deny is not None:
            deny(options)
        else:
            make(options)
    except (HivemindError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
