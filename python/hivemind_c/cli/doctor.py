"""hivemind-doctor: can this machine take part in a swarm, and if not, why?"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from typing import Any, Optional, Sequence

from hivemind_c import __version__
from hivemind_c.cli.dht import add_credentials
from hivemind_c.doctor import FAULT, NOTE, OK, WARNING, Finding, Settings, diagnose, records, replays

SIGNS = {OK: ("✓", "32"), NOTE: ("·", "2"), WARNING: ("!", "33"), FAULT: ("✗", "1;31")}  #: the codes are of ANSI colours
TIMEOUTS = 0.5, 60.0  #: the least and the largest --timeout


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hivemind-doctor",
        description="Looks at this machine, its network and the swarm, and says for each thing that is wrong its cause "
        "and what to do. Exit code 1: something will not work.",
    )
    several: Any = dict(action="extend", nargs="+", metavar="ADDRESS", default=[])
    add = parser.add_argument
    add("--initial_peers", **several, help="peers to dial; without it those of INITIAL_PEERS")
    add("--host_maddrs", **several, help="where the peer will listen; every interface, a free port by default")
    add("--announce_maddrs", **several, help="addresses that other peers are given instead of those found out")
    add("--identity_path", metavar="FILE", help="the file with the peer's key")
    add("--client_mode", action="store_true", help="the peer will only dial out")
    add("--run_id", "--experiment_prefix", metavar="NAME", help="looks at this run's peers: versions, clocks, failing rounds")
    add("--timeout", type=float, default=6.0, metavar="SECONDS", help="time for a peer to answer, or to dial back (default: %(default)s)")
    add("--records", metavar="DIR", help="shows what peers recorded in this folder (HIVEMIND_RECORD), side by side by time, and looks at nothing else")
    add("--replay", metavar="FOLDER", help="gives the events that peers recorded in this folder (HIVEMIND_RECORD) to this build, says where it decides otherwise, and looks at nothing else; exit code 1: somewhere it does")
    add_credentials(parser)
    add("--verbose", action="store_true", help="also the list behind a finding, such as the known holes of gRPC")
    add("--json", action="store_true", help="a JSON object for each finding, with its list")
    add("--version", action="version", version=f"hivemind_c {__version__}")
    return parser


def show_records(folder: str, as_json: bool) -> int:
    """Prints the table of the records in a folder. Returns the exit code."""
    try:
        lines = records.read(folder)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        for row in map(json.dumps, lines) if as_json else records.table(lines):
            print(row)
    except BrokenPipeError:  # as for `head`
        sys.stdout = None
    return 0


def show_replays(folder: str, as_json: bool) -> int:
    """Replays the records in a folder, and prints what came of each. Returns the exit code: 1 if a decision differs."""
    try:
        found = []
        for one in replays.replays(folder):
            found.append(one)
            print(json.dumps(one._asdict()) if as_json else replays.words(one), flush=True)
    except BrokenPipeError:  # as for `head`
        sys.stdout = None
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all(one.is_alike for one in found) else 1


def lines_of(finding: Finding, width: Optional[int], verbose: bool, colours: bool) -> str:
    """Returns a finding for a terminal.

    Args:
        finding: The finding.
        width: Columns of the terminal; None: the text is not wrapped.
        verbose: Whether its details follow.
        colours: Whether the sign and the name are coloured.
    """
    sign, code = SIGNS[finding.level]
    head = f"{sign} {finding.name:<15} "
    lines = [finding.text, *(f"- {detail}" for detail in finding.details if verbose)]
    if width:  # the text stays right of the names
        room = max(width - len(head), 20)
        lines = [part for line in lines for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False)]
    shown = f"\033[{code}m{head}\033[0m" if colours else head
    return shown + f"\n{' ' * len(head)}".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    if not TIMEOUTS[0] <= options.timeout <= TIMEOUTS[1]:
        parser().error(f"--timeout is a number of seconds from {TIMEOUTS[0]:g} to {TIMEOUTS[1]:g}")
    if options.records is not None:
        return show_records(options.records, options.json)
    if options.replay is not None:
        return show_replays(options.replay, options.json)
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    colours = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def tell(finding: Finding) -> None:
        print(json.dumps(finding._asdict()) if options.json else lines_of(finding, width, options.verbose, colours), flush=True)

    settings = Settings(
        [part for peers in options.initial_peers for part in peers.split(",") if part],
        options.host_maddrs,
        options.announce_maddrs,
        options.identity_path,
        options.client_mode,
        options.run_id,
        options.timeout,
        swarm_key=options.swarm_key,
        invite=options.invite,
    )
    found = diagnose(settings, tell)
    faults = sum(finding.level == FAULT for finding in found)
    warnings = sum(finding.level == WARNING for finding in found)
    if not options.json:
        count = f"{faults} fault{'' if faults == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"
        print(f"\n{count}" if faults or warnings else "\nnothing is wrong")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
