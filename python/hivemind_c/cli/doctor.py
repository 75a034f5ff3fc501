"""hivemind-doctor: can this machine take part in a swarm, and if not, why?"""

from __future__ import annotations

import json
import sys
from typing import List, Optional

from hivemind_c.cli._typer import rich, run, typer
from hivemind_c.doctor import records, replays
from hivemind_c.doctor import FAULT, NOTE, OK, WARNING, Finding, Settings, diagnose

SEVERAL = "--initial_peers", "--host_maddrs", "--announce_maddrs"
SIGNS = {OK: ("✓", "green"), NOTE: ("·", "dim"), WARNING: ("!", "yellow"), FAULT: ("✗", "bold red")}


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


app = typer.Typer(add_completion=False)


@app.command(help="Looks at this machine, its network and the swarm, and says for each thing that is wrong its cause and what to do. Exit code 1: something will not work.")
def doctor(
    initial_peers: List[str] = typer.Option([], "--initial_peers", help="peers to dial; without it those of INITIAL_PEERS"),
    host_maddrs: List[str] = typer.Option([], "--host_maddrs", help="where the peer will listen; every interface, a free port by default"),
    announce_maddrs: List[str] = typer.Option([], "--announce_maddrs", help="addresses that other peers are given instead of those found out"),
    identity_path: Optional[str] = typer.Option(None, "--identity_path", help="the file with the peer's key"),
    client_mode: bool = typer.Option(False, "--client_mode", help="the peer will only dial out"),
    run_id: Optional[str] = typer.Option(None, "--run_id", "--experiment_prefix", help="looks at this run's peers: versions, clocks, failing rounds"),
    timeout: float = typer.Option(6.0, "--timeout", min=0.5, max=60.0, help="seconds for a peer to answer, or to dial back"),
    records_of: Optional[str] = typer.Option(None, "--records", help="shows what peers recorded in this folder (HIVEMIND_RECORD), side by side by time, and looks at nothing else"),
    replay_of: Optional[str] = typer.Option(None, "--replay", metavar="FOLDER", help="gives the events that peers recorded in this folder (HIVEMIND_RECORD) to this build, says where it decides otherwise, and looks at nothing else; exit code 1: somewhere it does"),
    swarm_key: Optional[str] = typer.Option(None, "--swarm_key", metavar="FILE", help="the file with the key of a closed swarm; without it HIVEMIND_SWARM_KEY"),
    invite: Optional[str] = typer.Option(None, "--invite", metavar="FILE", help="a file with the peer's invitation; without it INVITE"),
    as_json: bool = typer.Option(False, "--json", help="a JSON object for each finding"),
) -> int:
    if records_of is not None:
        return show_records(records_of, as_json)
    if replay_of is not None:
        return show_replays(replay_of, as_json)
    console = rich.get_console()

    def tell(finding: Finding) -> None:
        if as_json:
            print(json.dumps(finding._asdict()), flush=True)
        else:
            sign, style = SIGNS[finding.level]
            line = rich.text.Text.assemble((f"{sign} {finding.name:<15} ", style), finding.text)
            console.print(line, soft_wrap=not console.is_terminal)

    settings = Settings([part for peers in initial_peers for part in peers.split(",") if part], host_maddrs, announce_maddrs, identity_path, client_mode, run_id, timeout, swarm_key=swarm_key, invite=invite)
    found = diagnose(settings, tell)
    faults = sum(finding.level == FAULT for finding in found)
    if not as_json:
        warnings = sum(finding.level == WARNING for finding in found)
        console.print(f"\n{faults} faults, {warnings} warnings" if faults or warnings else "\nnothing is wrong", style="bold")
    return 1 if faults else 0


def main() -> int:
    return run(app, SEVERAL)


if __name__ == "__main__":
    sys.exit(main())
