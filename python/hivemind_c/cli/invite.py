"""hivemind-invite: makes the key of a closed swarm, and invitations to it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Optional, Sequence

from hivemind_c import HivemindError, __version__, _invitation
from hivemind_c.cli.dht import tell


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
    add("--version", action="version", version=f"hivemind_c {__version__}")
    return parser


def make(options: argparse.Namespace) -> None:
    """Prints an invitation, and below it its ID as a comment of a shell."""
    key = _invitation.path_only(options.key, _invitation.KEY_VARIABLE)
    made = _invitation.invite(key, days=options.days, name=options.name)
    ends = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(made.ends))
    tell(f"INVITE={made.text}")
    tell(f"# {made.id}{' ' if made.name else ''}{made.name} ends {ends}")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.new is not None:
            if options.key is not None:
                parser().error("--new makes a key and nothing else: run hivemind-invite again to invite")
            _invitation.new_key(options.new)
            tell(f"# {options.new} holds the swarm's key: keep it secret")
        else:
            make(options)
    except (HivemindError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
