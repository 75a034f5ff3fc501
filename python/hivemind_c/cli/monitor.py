"""hivemind-monitor: where a run's peers find each other, and where people see how it goes."""

from __future__ import annotations

import logging
import pathlib
import sys
import threading
from typing import Any, Dict, List, Optional

from hivemind_c import HivemindError, HivemindPermissionError, _invitation
from hivemind_c._lightning.bootstrap import initial_peers as of_environment
from hivemind_c.cli._typer import rich, run, typer
from hivemind_c.cli.dht import tell
from hivemind_c.cli.signals import ended_by_signals
from hivemind_c.dht import DHT
from hivemind_c.utils.logging import FORMAT
from hivemind_c.utils.networking import reachable

logger = logging.getLogger("hivemind_c.monitor")
SEVERAL = "--initial_peers", "--host_maddrs", "--announce_maddrs", "--dht_listen_on"
SWITCHES = "--client_mode", "--average", "--store_checkpoints", "--use_ipfs", "--use_google_dns", "--no_relay", "--use_auto_relay"
PORT = 31337
OLD = "accepted, and means nothing to a monitor here"

app = typer.Typer(add_completion=False)


def start(initial_peers: List[str], host_maddrs: List[str], announce_maddrs: List[str], identity_path: str, client_mode: bool, open_port: bool, **credentials: Any) -> DHT:
    """Without an address to listen on: port 31337, or a free one if that is taken."""
    options: Dict[str, Any] = dict(start=True, announce_maddrs=announce_maddrs, identity_path=identity_path, client_mode=client_mode, open_port=open_port, ensure_bootstrap_success=False, **credentials)
    if host_maddrs or client_mode:
        return DHT(initial_peers, host_maddrs=host_maddrs, **options)
    try:
        return DHT(initial_peers, host_maddrs=f"/ip4/0.0.0.0/tcp/{PORT}", **options)
    except HivemindError as error:
        if error.status != "IN_USE":
            raise
        logger.warning("port %d is taken: this monitor listens on a free port, and its address changes with each start; give --host_maddrs to keep one", PORT)
        return DHT(initial_peers, host_maddrs="/ip4/0.0.0.0/tcp/0", **options)


class Admission:
    """Ends the monitor if a closed swarm does not admit it any more."""

    def __init__(self, dht: DHT, ended: threading.Event):
        self._dht, self._ended = dht, ended
        self.error: Optional[HivemindPermissionError] = None

    def look(self, now: Any) -> None:
        try:
            self._dht.check_admission()
        except HivemindPermissionError as error:
            self.error = error
            self._ended.set()

    def close(self) -> None:
        pass


def watch(dht: DHT, options: Any, ended: threading.Event) -> None:
    from hivemind_c.monitor.gather import Gatherer
    from hivemind_c.monitor.history import History
    from hivemind_c.monitor.sinks import Sinks
    from hivemind_c.monitor.view import draw
    from hivemind_c.monitor.watch import Watch

    watching = Watch(Gatherer(dht, options.run_id, options.target), History(options.history, options.run_id), options.period)
    server = hub = None
    admission = Admission(dht, ended)
    watching.add(admission)
    try:
        if options.hub is not None:
            from hivemind_c.hub.run import HubRun

            hub = HubRun(dht, options.run_id, options.hub)
            hub.start()
            logger.info("this hub can serve %s", options.hub.budget.in_words())
        sinks = Sinks()
        if options.tensorboard:
            sinks.tensorboard(options.tensorboard)
        if options.wandb:
            sinks.wandb(options.wandb, options.run_id)
        if not options.live:
            sinks.add(lambda epoch, known: logger.info("swarm epoch %d: %s", epoch, ", ".join(f"{name} {value:.6g}" for name, value in known.items())), lambda: None)
        watching.add(sinks)
        if options.every:
            from hivemind_c.monitor.checkpoints import Saver

            watching.add(Saver(dht, options.run_id, options.every, options.folder))
        if options.web is not None:
            from hivemind_c.monitor.web import Server

            server = Server(lambda: watching.latest, watching.points, options.join, options.host, options.web)
            tell(f"WEB={server.address}")
        if not options.live:
            watching.run(ended)
        else:
            from rich.live import Live

            with Live(console=rich.get_console(), auto_refresh=False, screen=False) as live:
                watching.add(type("Screen", (), {"look": lambda self, now: live.update(draw(now, options.join), refresh=True), "close": lambda self: None})())
                watching.run(ended)
    finally:
        if server is not None:
            server.close()
        if hub is not None:
            hub.end()
            dht.shutdown()
            hub.close()
        watching.close()
    if admission.error is not None:
        raise admission.error


@app.command(help="The coordinator of a run: peers find each other through it, and it shows how the run goes. It trains nothing and needs no GPU; several may run.")
def monitor(
    run_id: str = typer.Option(..., "--run_id", "--experiment_prefix", help="the run's name, as the trainers have it"),
    initial_peers: List[str] = typer.Option([], "--initial_peers", help="peers of a swarm that is there already; without it those of INITIAL_PEERS"),
    host_maddrs: List[str] = typer.Option([], "--host_maddrs", "--dht_listen_on", help=f"where to listen; every interface, port {PORT} by default"),
    announce_maddrs: List[str] = typer.Option([], "--announce_maddrs", help="addresses that other peers are given instead of those found out"),
    identity_path: Optional[str] = typer.Option(None, "--identity_path", help="the file with this monitor's key; by default one in ~/.local/state/hivemind_c"),
    client_mode: bool = typer.Option(False, "--client_mode/--no_client_mode", help="only dial out: it watches, and peers do not find each other through it"),
    open_port: bool = typer.Option(True, "--open_port/--no_open_port", help="ask this machine's router to open the port"),
    swarm_key: Optional[str] = typer.Option(None, "--swarm_key", metavar="FILE", help="key of a closed swarm; by default the variable HIVEMIND_SWARM_KEY"),
    invite: Optional[str] = typer.Option(None, "--invite", metavar="FILE", help="a file with an invitation to a closed swarm; by default the variable INVITE"),
    closed: bool = typer.Option(False, "--closed", help="fail if there is neither a swarm key nor an invitation; by default the swarm is open then"),
    target_batch_size: Optional[int] = typer.Option(None, "--target_batch_size", min=1, help="samples of a swarm epoch; by default what the trainers say"),
    average: bool = typer.Option(False, "--average/--no_average", help="is a hub, too: averages for peers that nobody can dial, and keeps the state; hivemind-hub has more options"),
    memory: str = typer.Option("1G", "--memory", metavar="SIZE", help="memory of the hub"),
    checkpoints: Optional[str] = typer.Option(None, "--checkpoints", metavar="DIR", help="the hub keeps the newest states there, without torch"),
    web: Optional[int] = typer.Option(None, "--web", min=0, max=65535, metavar="PORT", help="serves the page there, with /metrics for Prometheus; 0: a free port"),
    web_host: str = typer.Option("127.0.0.1", "--web_host", help="who may see the page: this machine only by default; 0.0.0.0: everybody who reaches it"),
    tensorboard: Optional[str] = typer.Option(None, "--tensorboard", metavar="DIR", help="writes each swarm epoch's figures there"),
    wandb_project: Optional[str] = typer.Option(None, "--wandb_project", help="sends each swarm epoch's figures to Weights & Biases"),
    every: int = typer.Option(0, "--save_checkpoint_step_interval", min=0, help="saves the swarm's state every so many swarm epochs; 0: never"),
    store_checkpoints: bool = typer.Option(True, "--store_checkpoints/--no_store_checkpoints", help="whether it does so"),
    folder: str = typer.Option("checkpoints", "--checkpoint_dir", help="where to"),
    history: Optional[str] = typer.Option(None, "--history", metavar="FILE", help="keeps what it saw; by default in ~/.local/state/hivemind_c; 'none': in memory only"),
    refresh_period: float = typer.Option(0.5, "--refresh_period", min=0.1, help="seconds between two looks"),
    live: Optional[bool] = typer.Option(None, "--live/--no-live", help="the live view; by default where there is a terminal"),
    batch_size_lead: int = typer.Option(0, "--batch_size_lead", help=OLD),
    bandwidth: float = typer.Option(0.0, "--bandwidth", help=OLD),
    averaging_timeout: float = typer.Option(0.0, "--averaging_timeout", "--averaging_expiration", help=OLD),
    matchmaking_time: float = typer.Option(0.0, "--matchmaking_time", help=OLD),
    target_group_size: int = typer.Option(0, "--target_group_size", help=OLD),
    statistics_expiration: float = typer.Option(0.0, "--statistics_expiration", help=OLD),
    use_ipfs: bool = typer.Option(False, "--use_ipfs/--no_use_ipfs", help=OLD),
    no_relay: bool = typer.Option(False, "--no_relay/--no_no_relay", help=OLD),
    use_auto_relay: bool = typer.Option(False, "--use_auto_relay/--no_use_auto_relay", help=OLD),
    use_google_dns: bool = typer.Option(False, "--use_google_dns/--no_use_google_dns", help=OLD),
    monitor_ip: Optional[str] = typer.Option(None, "--monitor_ip", help=OLD),
    model_config_path: Optional[str] = typer.Option(None, "--model_config_path", help=OLD),
    repo_url: Optional[str] = typer.Option(None, "--repo_url", help=OLD),
    local_path: Optional[str] = typer.Option(None, "--local_path", "--repo_path", help=OLD),
    upload_interval: float = typer.Option(0.0, "--upload_interval", help=OLD),
) -> int:
    from types import SimpleNamespace

    from hivemind_c._kept import state_folder
    from hivemind_c.monitor.history import own_key
    from hivemind_c.monitor.sinks import Missing
    from hivemind_c.optim.names import run_name

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=FORMAT)
    if monitor_ip:
        logger.warning("ignoring --monitor_ip: if others reach this monitor by another address, give --announce_maddrs /ip4/%s/tcp/%d", monitor_ip, PORT)
    if repo_url or upload_interval:
        logger.warning("not uploading checkpoints: this monitor writes files to --checkpoint_dir; upload them with a program of your own")
    ended = ended_by_signals()
    try:
        name = pathlib.Path(run_name(run_id)).name  # a folder is nobody's to choose by the name of a run
        kept = None if history == "none" else history or str(state_folder() / f"{name}.db")
        key, _held = (identity_path, None) if identity_path else own_key()
        hub_options = None
        if average:
            from hivemind_c.hub.run import HubOptions
            from hivemind_c.hub.sizes import budget_of, parse_bytes

            if client_mode:
                raise ValueError("--average needs a monitor that peers can dial: remove --client_mode")
            budget = budget_of(parse_bytes(memory), 1)
            hub_options = HubOptions(budget, 1, pathlib.Path(checkpoints) if checkpoints else None, 3, 0.0)
        initial_peers = list(of_environment(initial_peers))
        dht = start(initial_peers, host_maddrs, announce_maddrs, key, client_mode, open_port, **_invitation.of_command(swarm_key, invite, closed))
        try:
            join = "INITIAL_PEERS=" + ",".join(reachable(dht.get_visible_maddrs()) or initial_peers)
            tell(" ".join(filter(None, (dht.invitation_to_print("monitor"), join))))
            options = SimpleNamespace(
                run_id=run_id, target=target_batch_size, history=kept, period=refresh_period, tensorboard=tensorboard, wandb=wandb_project,
                every=every if store_checkpoints else 0, folder=folder,
                hub=hub_options, web=web, host=web_host, join=join, live=sys.stdout.isatty() if live is None else live,
            )  # fmt: skip
            watch(dht, options, ended)
        finally:
            dht.shutdown()
    except (HivemindError, ValueError, TypeError, OSError, Missing) as error:
        logger.error("%s", error)
        return 1
    return 0


def main() -> int:
    return run(app, SEVERAL, SWITCHES)


if __name__ == "__main__":
    sys.exit(main())
