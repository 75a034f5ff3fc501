"""hivemind-hub: a reachable machine that keeps runs together: entrance, monitor, keeper of the state, and averager."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import pathlib
import sys
import threading
from typing import Any, List, Optional, Sequence

from hivemind_c import HivemindError, __version__, _invitation
from hivemind_c._lightning.bootstrap import initial_peers
from hivemind_c._kept import state_folder
from hivemind_c.cli.dht import add_credentials, set_up_logs, tell
from hivemind_c.cli.signals import ended_by_signals
from hivemind_c.dht import DHT
from hivemind_c.hub.run import HubOptions, HubRun
from hivemind_c.hub.sizes import budget_of, parse_bytes
from hivemind_c.monitor.gather import Gatherer
from hivemind_c.monitor.history import History, own_key
from hivemind_c.monitor.watch import Watch
from hivemind_c.optim.names import run_name
from hivemind_c.utils.networking import reachable

logger = logging.getLogger("hivemind_c.hub")
PORT = 31337
CHECK_S = 5.0  #: seconds between two looks whether a closed swarm admits the hub
MEGABIT = 125_000  #: bytes


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hivemind-hub",
        description="Keeps runs together on a small machine that peers can reach: they find each other through it, it "
        "shows how a run goes, averages for peers that nobody can dial, and keeps the state. It needs no torch.",
    )
    several: Any = dict(action="extend", nargs="+", metavar="ADDRESS", default=[])
    add = parser.add_argument
    add("--run_id", action="append", required=True, metavar="NAME", help="the run's name; may be given several times")
    add("--host", default="0.0.0.0", help="the interface to listen on; by default every one")
    add("--port", type=int, default=PORT, help="the port to listen on (default: %(default)s)")
    add("--maddrs", "--host_maddrs", **several, help="where to listen, as multiaddrs, in place of --host and --port")
    add("--announce_maddrs", **several, help="addresses that other peers are given instead of those found out")
    add("--no_open_port", action="store_true", help="do not ask this machine's router to open the port")
    add("--initial_peers", **several, help="peers or other hubs of the run; without it those of INITIAL_PEERS, and none begins a new swarm")
    add("--identity", "--identity_path", metavar="FILE", help="the hub's key; by default one in the state folder")
    add_credentials(parser)
    add("--print_invite", action="store_true", help="prints an invitation too; one for seven days counts for all starts")
    add("--memory", default="1G", metavar="SIZE", help="memory of the hub (default: %(default)s)")
    add("--checkpoints", metavar="DIR", help="keeps the newest states there; by default in memory only")
    add("--keep", type=int, default=3, metavar="N", help="checkpoints of each run that stay (default: %(default)s)")
    add("--state_every", type=int, default=1, metavar="N", help="swarm epochs between two states (default: %(default)s)")
    add("--bandwidth", type=float, default=0.0, metavar="MBIT", help="this machine's link in Mbit/s, if known")
    add("--upload_mbit", type=float, metavar="MBIT", help="most Mbit/s that averages and states of the hub send")
    add("--web", type=int, metavar="PORT", help="serves the page of the first run there, of each next run one port up")
    add("--web_host", default="127.0.0.1", help="the interface of the page (default: %(default)s)")
    add("--history", metavar="DIR", help="keeps the page's curves there; 'none': in memory only")
    add("--json", action="store_true", help="log lines as JSON objects")
    add("--version", action="version", version=f"hivemind_c {__version__}")
    return parser


def check(options: argparse.Namespace) -> None:
    """Raises ValueError if an option is of no use."""
    for name, least in (("keep", 1), ("state_every", 1), ("bandwidth", 0)):
        if not getattr(options, name) >= least:
            raise ValueError(f"cannot start the hub: --{name} must be {least} or more")
    if not 0 <= options.port < 1 << 16:
        raise ValueError("cannot start the hub: --port must be a number from 0 to 65535")
    if options.web and not 0 < options.web <= 65536 - len(options.run_id):  # each run has a page, one port up
        raise ValueError(
            "cannot start the hub: --web must be a number from 0 to 65535, for the page of the last run too"
        )
    names = [run_name(run) for run in options.run_id]
    if len(set(names)) < len(names):
        raise ValueError("cannot start the hub: --run_id names one run twice; give each run once")


def listen_at(host: str, port: int) -> str:
    """Returns the multiaddr of an interface."""
    return f"/ip6/{host}/tcp/{port}" if ":" in host else f"/ip4/{host}/tcp/{port}"


def hold(path: str) -> Any:
    """Returns the key file, locked: no other hub of this machine has the key while it is open.

    Args:
        path: The file. It exists.
    """
    file = open(path, "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"cannot start the hub: another process has the key {path}; give --identity another file, because peers "
            "take two hubs with one key for one"
        ) from None
    return file


def same_key(peer_id: str, own: Sequence[str], given: Sequence[str]) -> List[str]:
    """Returns the initial peers that have this hub's key and are not this hub.

    Args:
        peer_id: ID of this hub.
        own: Addresses of this hub.
        given: Addresses of initial peers.
    """
    parts = [part for text in given for part in text.split(",")]
    return [part for part in parts if part.endswith(f"/p2p/{peer_id}") and part not in own]


class Service:
    """The hub: one node, and for each run a monitor and a HubRun."""

    def __init__(self, options: argparse.Namespace):
        check(options)
        budget = budget_of(parse_bytes(options.memory), len(options.run_id))
        options.initial_peers = list(initial_peers(options.initial_peers))
        self._options = options
        self._watches: List[Watch] = []
        self._servers: List[Any] = []
        self._runs: List[HubRun] = []
        self._lock: Any  # as long as the hub lives, no other process has its key
        key, self._lock = (options.identity, None) if options.identity else own_key()
        self._dht = DHT(
            options.initial_peers,
            start=False,
            host_maddrs=options.maddrs or listen_at(options.host, options.port),
            announce_maddrs=options.announce_maddrs,
            identity_path=key,
            open_port=not options.no_open_port,
            upload_mbit=options.upload_mbit,
            ensure_bootstrap_success=False,
            **_invitation.of_command(options.swarm_key, options.invite, options.closed),
        )
        # all that strangers could fill is within this limit, too
        self._dht._node._config["memory_limit"] = parse_bytes(options.memory)
        self._dht.run_in_background()
        try:
            folder = pathlib.Path(options.checkpoints) if options.checkpoints else None
            shared = HubOptions(budget, options.state_every, folder, options.keep, options.bandwidth * MEGABIT)
            if options.identity:
                self._lock = hold(options.identity)
            for address in same_key(self._dht.peer_id, self._dht.get_visible_maddrs(), options.initial_peers):
                logger.warning(
                    "the initial peer %s has the key of this hub, which does not ask it: if it is another hub, give "
                    "one of both another --identity, because peers take two hubs with one key for one; without another "
                    "initial peer this hub is alone until a peer joins it",
                    address,
                )
            self.join = "INITIAL_PEERS=" + ",".join(reachable(self._dht.get_visible_maddrs()))
            invitation = self._dht.invitation_to_print("hub") if options.print_invite else ""
            words = list(filter(None, (invitation, self.join)))
            tell(" ".join(words))
            tell("\n".join(f"%env {word}" for word in words))  # the same for a cell of a notebook
            for number, run_id in enumerate(options.run_id):
                self._add(run_id, number, shared)
        except BaseException:
            self.close()
            raise
        logger.info("this hub can serve %s", budget.in_words())

    def _add(self, run_id: str, number: int, shared: HubOptions) -> None:
        run = HubRun(self._dht, run_id, shared)
        self._runs.append(run)
        watch = Watch(Gatherer(self._dht, run_id), History(self._history_of(run_id), run_id))
        self._watches.append(watch)
        if self._options.web is not None:
            from hivemind_c.monitor.web import Server

            port = self._options.web + number if self._options.web else 0
            server = Server(lambda: watch.latest, watch.points, self.join, self._options.web_host, port)
            self._servers.append(server)
            tell(f"WEB={server.address}")
        run.start()

    def _history_of(self, run_id: str) -> Optional[str]:
        given = self._options.history
        folder = state_folder() if given is None else pathlib.Path(given)
        if given == "none":
            return None
        with contextlib.suppress(OSError):  # the history says that it cannot be opened
            folder.mkdir(parents=True, exist_ok=True)
        return str(folder / f"hub-{pathlib.Path(run_id).name}.db")

    def serve(self, ended: threading.Event) -> None:
        """Serves until ended is set.

        Args:
            ended: The end.
        """
        threads = [threading.Thread(target=watch.run, args=(ended,), daemon=True) for watch in self._watches]
        for thread in threads:
            thread.start()
        while not ended.wait(CHECK_S):
            self._dht.check_admission()
        for thread in threads:
            thread.join(5)

    def close(self) -> None:
        """Leaves the swarm. Checkpoints are on disk already."""
        for run in self._runs:
            run.end()
        for server in self._servers:
            server.close()
        self._dht.shutdown()
        for run in self._runs:
            run.close()
        for watch in self._watches:
            watch.close()
        if self._lock is not None:
            self._lock.close()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parser().parse_args(arguments)
    set_up_logs(options.json)
    ended = ended_by_signals()
    try:
        service = Service(options)
    except (HivemindError, ValueError, OSError) as error:
        logger.error("%s", error)
        return 1
    except ImportError as error:
        logger.error("cannot serve the page: %s is not installed; install hivemind_c's wheel with [monitor]", error.name)
        return 1
    try:
        service.serve(ended)
    except HivemindError as error:
        logger.error("%s", error)
        return 1
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
