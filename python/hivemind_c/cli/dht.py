"""hivemind-dht: a node of the DHT that others find each other through, and nothing else."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from typing import Any, Dict, Optional, Sequence

from hivemind_c import HivemindError, HivemindValueError, Node, __version__, _invitation
from hivemind_c._lightning.bootstrap import initial_peers
from hivemind_c.cli.signals import ended_by_signals
from hivemind_c.dht import DHT
from hivemind_c.utils.logging import FORMAT
from hivemind_c.utils.networking import reachable

logger = logging.getLogger("hivemind_c.cli")
MEET_S, SETTLE_S = 30.0, 1.5  #: longest time to meet the peers; without a new one for so long, all are met


class JsonFormatter(logging.Formatter):
    """One JSON object on each line; what a record has besides its text becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": record.created, "level": record.levelname.lower(), "logger": record.name, "event": getattr(record, "event", None)}
        line.update(getattr(record, "fields", {}))
        line["text"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in line.items() if value is not None})


def add_credentials(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--swarm_key", metavar="FILE", help="key of a closed swarm, as hivemind-invite --new makes it; by default the variable HIVEMIND_SWARM_KEY")
    parser.add_argument("--invite", metavar="FILE", help="a file with an invitation to a closed swarm; by default the variable INVITE")
    parser.add_argument("--closed", action="store_true", help="fail if there is neither a swarm key nor an invitation; by default the swarm is open then")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hivemind-dht", description="Runs a node of the DHT. It prints its addresses: give them to others as --initial_peers."
    )
    parser.add_argument("command", nargs="?", choices=["peers"], help="peers: list the peers of the swarm of --initial_peers, with the invitations that their certificates prove, and end")
    addresses: Dict[str, Any] = dict(action="extend", nargs="*", metavar="ADDRESS", default=[])
    parser.add_argument("--initial_peers", **addresses, help="where others are: multiaddrs or HOST:PORT, one that answers is enough; without it those of INITIAL_PEERS, and none begins a new swarm")
    parser.add_argument("--host_maddrs", **addresses, help="where to listen, e.g. 0.0.0.0:31337 or [::]:*; by default every interface, at a free port")
    parser.add_argument("--announce_maddrs", **addresses, help="addresses that other peers are given instead of those found out")
    parser.add_argument("--no_open_port", action="store_true", help="do not ask this machine's router to open the port")
    parser.add_argument("--identity_path", metavar="FILE", help="this node's key, made if missing: with it and a port of your choice the address stays the same")
    add_credentials(parser)
    parser.add_argument("--print_invite", action="store_true", help="prints an invitation too; one for seven days counts for all starts")
    parser.add_argument("--refresh_period", type=float, default=30, metavar="SECONDS", help="how often it tells how it is (default: %(default)s)")
    parser.add_argument("--use_ipfs", action="store_true", help="accepted, but peers are not looked up outside the swarm")
    parser.add_argument("--no_relay", action="store_true", help="accepted: connections are always direct")
    parser.add_argument("--use_auto_relay", action="store_true", help="accepted, but connections are always direct")
    parser.add_argument("--json", action="store_true", help="log lines as JSON objects")
    parser.add_argument("--version", action="version", version=f"hivemind_c {__version__}")
    return parser


def set_up_logs(as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def say(event: str, fields: Dict[str, Any], text: str) -> None:
    logger.info("%s", text, extra={"event": event, "fields": fields})


def heartbeat(dht: DHT) -> None:
    state = dht.state()
    fields = {name: state[name] for name in ("peers", "contacts", "records", "bytes")}
    say("heartbeat", fields, f"{state['peers']} peers, {state['contacts']} of them in the DHT's table, {state['records']} records of {state['bytes']} bytes kept")


def tell(line: str) -> None:
    """A line that others read, in one piece: unbuffered, print() writes a line and its end one after the other, and a log may come between."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show_peers(options: argparse.Namespace) -> None:
    """Lists the peers that this one meets, one a line: ID, address, and how its certificate proves that it is a member."""
    if not options.initial_peers:
        raise HivemindValueError("cannot list the peers of a swarm: give --initial_peers or INITIAL_PEERS with the address of one of them")
    with Node(
        client_mode=True,
        initial_peers=options.initial_peers,
        log_level="error",
        **_invitation.of_command(options.swarm_key, options.invite, options.closed),
    ) as node:
        node.wait_for_peers(1, MEET_S)
        met, until = -1, time.monotonic() + MEET_S
        while len(node.peers()) != met and time.monotonic() < until:  # peers name further ones
            met = len(node.peers())
            time.sleep(SETTLE_S)
        for peer in sorted(node.peers()):
            tell(" ".join((peer.peer_id, peer.address or "(only dials out)", peer.membership)).rstrip())


def serve(options: argparse.Namespace, ended: threading.Event) -> None:
    dht = DHT(
        options.initial_peers,
        start=True,
        host_maddrs=options.host_maddrs or None,
        announce_maddrs=options.announce_maddrs,
        identity_path=options.identity_path,
        open_port=not options.no_open_port,
        use_ipfs=options.use_ipfs,
        use_auto_relay=options.use_auto_relay,
        **_invitation.of_command(options.swarm_key, options.invite, options.closed),
    )
    try:
        addresses = reachable(dht.get_visible_maddrs())
        tell(" ".join(["--initial_peers", *addresses]))
        if options.print_invite and (invitation := dht.invitation_to_print("dht")):
            tell(invitation)
        say("ready", {"peer_id": dht.peer_id, "addresses": addresses}, "others join this node with the --initial_peers printed above")
        while not ended.is_set():
            dht.check_admission()
            heartbeat(dht)
            ended.wait(options.refresh_period)
    finally:
        dht.shutdown()
    say("ended", {}, "ended")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    if not 0 < options.refresh_period <= threading.TIMEOUT_MAX:
        parser().error("--refresh_period is a number of seconds above 0")
    set_up_logs(options.json)
    ended = ended_by_signals()
    try:
        options.initial_peers = list(initial_peers(options.initial_peers))
        if options.command == "peers":
            show_peers(options)
        else:
            serve(options, ended)
    except (HivemindError, ValueError, OSError) as error:
        logger.error("%s", error, extra={"event": "failed"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
