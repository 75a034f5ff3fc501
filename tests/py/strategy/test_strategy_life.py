"""A run with HivemindStrategy from its first line to its last: joining, checkpoints, callbacks, being interrupted."""

import gc
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import types

import pytest
import torch
from forking import LIGHTNING
from support import eventually, files, free_port, threads
from trainers import BATCH, NAMESPACES, data, fit, lightning, same, small, trainer

from hivemind_c import DHT, ConfigMismatchError, HivemindStrategy, HivemindTimeoutError, Optimizer
from hivemind_c._lightning import bootstrap
from hivemind_c._lightning.election import Election
from hivemind_c.dht import get_dht_time, news

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = "/ip4/127.0.0.1/tcp/0"
PEER = "/ip4/192.0.2.7/tcp/31337/p2p/12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"
TESTS = pathlib.Path(__file__).parents[1]
ENDLESS = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
from trainers import *
from hivemind_c import HivemindStrategy
class Tell(lightning().Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 6: print("going", flush=True)
fit(HivemindStrategy(BATCH, host_maddrs={HERE!r}, initial_peers=sys.argv[2]), max_epochs=-1, callbacks=[Tell()],
    default_root_dir=sys.argv[1])
print("what follows fit")
"""


@pytest.fixture
def swarm():
    """A DHT node that is there already, and holds the election of the run."""
    with DHT(start=True) as dht:
        election = Election(dht, "lightning_run")
        assert election.elected
        yield dht
        election.shutdown()


class Order(lightning().Callback):
    """Notes which samples came, by their first number."""

    def __init__(self):
        self.seen, self.places = [], []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.seen += batch[0][:, 0].tolist()
        self.places.append(
            (
                getattr(trainer.strategy, "is_elected", True),
                [callback.dirpath for callback in trainer.checkpoint_callbacks],
            )
        )


def saver(folder, **options):
    return lightning().callbacks.ModelCheckpoint(dirpath=folder, save_last=True, **options)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.ckpt"))


# ---- joining (defects 12, 19, 20) ----


@pytest.mark.parametrize(
    "given",
    [f"{PEER},{PEER}x", f" {PEER} , {PEER}x,", [PEER, PEER + "x"], (PEER, PEER + "x")],
    ids=["commas", "spaces", "list", "tuple"],
)
def test_12_initial_peers_may_be_a_string_or_a_list(given):
    assert bootstrap.initial_peers(given, {}) == (PEER, PEER + "x")


@pytest.mark.parametrize("variable", ["INITIAL_PEERS", "PL_INITIAL_PEERS"])
def test_12_both_variables_are_read_and_reach_the_dht(variable, monkeypatch, capsys):
    with DHT(start=True) as first:
        monkeypatch.setenv(variable, ",".join(first.get_visible_maddrs()))
        strategy = HivemindStrategy(BATCH, host_maddrs=HERE)
        try:
            assert strategy.dht._node.wait_for_peers(1, timeout=60)[0].peer_id == first.peer_id
        finally:
            strategy.dht.shutdown()
    assert "INITIAL_PEERS=" not in capsys.readouterr().out  # it joined, and invites nobody


def test_12_argument_goes_before_the_variables():
    both = {"INITIAL_PEERS": "a", "PL_INITIAL_PEERS": "b"}
    assert bootstrap.initial_peers("c", both) == ("c",) and bootstrap.initial_peers(None, both) == ("a",)
    assert bootstrap.initial_peers([], {"INITIAL_PEERS": " ", "PL_INITIAL_PEERS": "b"}) == ("b",)
    assert bootstrap.initial_peers(None, {}) == ()


def test_12_the_line_is_a_shells_and_in_a_notebook_a_cells():
    assert (
        bootstrap.join_line(["/a", "/b"], ["python", "train it.py", "--lr", "1"])
        == "INITIAL_PEERS=/a,/b python 'train it.py' --lr 1"
    )
    line = bootstrap.join_line(["/a"], ["python", "-m", "ipykernel_launcher", "-f", "x.json"])
    assert line == "%env INITIAL_PEERS=/a"


TRAIN = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
from trainers import *
from hivemind_c import HivemindStrategy
class Together(lightning().Callback):
    met = False
    def on_train_batch_end(self, trainer, *args):
        if not self.met and trainer.strategy.dht.state()["peers"]:
            print("met", sys.argv[1:], flush=True)
            self.met = True
        trainer.should_stop = os.path.exists("stop")
import os
fit(HivemindStrategy(BATCH), max_epochs=-1, callbacks=[Together()])
"""


def test_12_the_printed_line_works_when_it_is_pasted(tmp_path):
    (tmp_path / "train it.py").write_text(TRAIN)
    options = dict(
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, text=True
    )
    running = [subprocess.Popen([sys.executable, "-u", "train it.py", "an argument"], **options)]
    try:
        line = next(text for text in running[0].stdout if text.startswith("INITIAL_PEERS="))
        running.append(subprocess.Popen("exec env " + line, shell=True, **options))
        for one in running:
            said = [next(text for text in one.stdout if text.startswith(("met", "INITIAL_PEERS=")))]
            assert said == ["met ['an argument']\n"]  # and no second invitation
        (tmp_path / "stop").touch()
        assert [one.wait(200) for one in running] == [0, 0]
    finally:
        for one in running:
            one.kill()
            one.stdout.close()


def test_20_only_reachable_addresses_are_printed(capsys):
    strategy = HivemindStrategy(BATCH)
    try:
        addresses = strategy.dht.get_visible_maddrs()
    finally:
        strategy.dht.shutdown()
    told = re.search(r"^INITIAL_PEERS=(\S+) ", capsys.readouterr().out, re.M)[1].split(",")
    assert told and set(told) <= set(addresses)
    if any(not address.startswith(("/ip4/127.", "/ip6/::1/")) for address in addresses):
        assert not any("127.0.0.1" in address or "/ip6/::1/" in address for address in told)


@pytest.mark.parametrize(
    "words",
    [
        "--ckpt wave-preempted.ckpt --lr 1",
        "--lr 1 --ckpt_path=last",
        "--resume=runs/a.ckpt --lr 1",
        "--lr 1 --from runs/a.ckpt",
    ],
)
def test_printed_line_names_no_checkpoint(words):
    line = bootstrap.join_line(["/a"], ["python", "train.py", *words.split()])
    assert line == "INITIAL_PEERS=/a python train.py --lr 1"


@pytest.mark.parametrize("words", ["a.ckpt --lr 1", "--fast --out ckpt", "--save_ckpt --lr -1"])
def test_printed_line_keeps_all_else(words):
    assert bootstrap.join_line(["/a"], ["python", *words.split()]) == f"INITIAL_PEERS=/a python {words}"


def test_20_local_address_is_printed_if_there_is_no_other():
    here, there = "/ip4/127.0.0.1/tcp/1/p2p/x", "/ip4/192.0.2.1/tcp/1/p2p/x"
    assert bootstrap.reachable([here, there]) == [there] and bootstrap.reachable([here]) == [here]


def test_20_private_address_is_said_with_the_remedy():
    said = bootstrap._of_private(["/ip4/10.0.0.2/tcp/1/p2p/x"])
    assert "10.0.0.2 is a private address" in said and "announce_maddrs" in said
    for others in ("/ip4/8.8.8.8/tcp/1/p2p/x", "/ip4/127.0.0.1/tcp/1/p2p/x", "/dns4/a.example/tcp/1/p2p/x"):
        assert not bootstrap._of_private(["/ip4/10.0.0.2/tcp/1/p2p/x", others])


def test_19_each_dead_initial_peer_is_named_with_its_cause(caplog):
    with DHT(start=True) as other, socket.create_server(("127.0.0.1", 0)) as silent:
        refused = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{other.peer_id}"
        late = f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}/p2p/{other.peer_id}"
        wrong = re.sub(
            "/p2p/.*", "/p2p/12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo", other.get_visible_maddrs()[0]
        )
        strategy = HivemindStrategy(
            BATCH, host_maddrs=HERE, initial_peers=[refused, wrong, late], bootstrap_timeout=0.2
        )

        def told(address):
            place = "127.0.0.1:" + address.split("/")[4]
            return " ".join(
                record.getMessage() for record in caplog.records if f"initial peer {place} " in record.getMessage()
            )

        dht = strategy.dht
        try:
            assert eventually(lambda: all(map(told, (refused, wrong, late))))
        finally:
            dht.shutdown()
            strategy._dht = None
        assert "training begins alone" in caplog.text
        assert "nothing listens" in told(refused) and f"is {other.peer_id}, not" in told(wrong)
        assert "answer" in told(late) or "time" in told(late)
        _, made = fit(strategy, max_epochs=1)
        assert made.strategy.global_epoch == 4


def test_19_late_initial_peer_is_found_during_training(tmp_path):
    options = dict(start=True, host_maddrs=f"/ip4/127.0.0.1/tcp/{free_port()}", identity_path=tmp_path / "key")
    with DHT(**options) as before:
        address = before.get_visible_maddrs()
    strategy = HivemindStrategy(BATCH, host_maddrs=HERE, initial_peers=address, bootstrap_timeout=0.1)
    dht = strategy.dht
    try:
        assert not dht.state()["peers"]
        with DHT(**options):
            assert eventually(lambda: dht.state()["peers"] == 1)
    finally:
        dht.shutdown()


# ---- many peers, one disk, one data set (defect 15) ----


def test_15_another_peer_is_elected_when_the_first_is_gone():
    with DHT(start=True) as a:
        first = Election(a, "run", lease=12.0)
        with (
            DHT(a.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90) as b,
            DHT(a.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90) as c,
        ):
            others = [Election(b, "run", lease=12.0), Election(c, "run", lease=12.0)]
            assert first.elected and not any(other.elected for other in others)
            assert Election(b, "another run").elected
            first.shutdown()
            a.shutdown()
            assert eventually(lambda: sum(other.elected for other in others) == 1)
            for other in others:
                other.shutdown()


class Store:
    """A DHT of two peers, with one value for all; while `fails` is set it does not answer."""

    def __init__(self):
        self.value, self.end, self.fails = None, 0.0, False

    def of(self, peer_id):
        def get(key, latest):
            if self.fails:
                raise HivemindTimeoutError("nobody answered")
            return None if self.value is None or get_dht_time() >= self.end else types.SimpleNamespace(value=self.value)

        def store(key, value, end):
            self.value, self.end = value, end

        return types.SimpleNamespace(peer_id=peer_id, get=get, store=store)


def test_15_one_of_two_that_claim_at_one_moment_gives_way_soon():
    store = Store()
    first = Election(store.of("a"), "run", lease=30.0)
    store.value = None  # the second one looked before the first had stored
    second = Election(store.of("b"), "run", lease=30.0)
    assert first.elected and second.elected
    first.look()  # as the strategy does before it chooses seeds and folders
    assert not first.elected and second.elected
    first.shutdown()
    second.shutdown()


def test_15_election_goes_on_after_a_dht_that_did_not_answer():
    store = Store()
    first = Election(store.of("a"), "run", lease=0.6)
    store.fails = True
    assert first.elected
    assert eventually(lambda: not first.elected)  # its lease has ended, and another peer may have taken it
    store.fails = False
    assert eventually(lambda: first.elected)
    first.shutdown()


def test_15_elected_peer_writes_in_place_and_others_beside(tmp_path, swarm):
    order = Order()
    _, made = fit(
        HivemindStrategy(BATCH, host_maddrs=HERE, initial_peers=swarm.get_visible_maddrs()),
        callbacks=[saver(tmp_path), order],
        enable_checkpointing=True,
    )
    (elected, (place,)) = order.places[0]
    assert not elected and re.fullmatch(rf"{tmp_path}/peer-\w{{8}}", place)
    assert files_below(tmp_path) and all(name.startswith("peer-") for name in files_below(tmp_path))
    assert made.checkpoint_callback.dirpath == str(tmp_path)


def test_15_a_peer_alone_is_elected_and_writes_where_it_was_told(tmp_path):
    order = Order()
    fit(HivemindStrategy(BATCH, host_maddrs=HERE), callbacks=[saver(tmp_path), order], enable_checkpointing=True)
    assert all(place == (True, [str(tmp_path)]) for place in order.places) and "last.ckpt" in files_below(tmp_path)


def test_15_elected_peer_alone_writes_if_so_wished(tmp_path, swarm):
    options = dict(host_maddrs=HERE, checkpoints="elected")
    fit(
        HivemindStrategy(BATCH, initial_peers=swarm.get_visible_maddrs(), **options),
        callbacks=[saver(tmp_path)],
        enable_checkpointing=True,
    )
    assert files_below(tmp_path) == []
    fit(HivemindStrategy(BATCH, **options), callbacks=[saver(tmp_path)], enable_checkpointing=True)
    assert "last.ckpt" in files_below(tmp_path)


class Elected(lightning().Callback):
    """The files that the elected peer writes on the same disk, before this one comes to it."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            (self.folder / "epoch=0-step=4.ckpt").write_text("the elected peer's")


def test_15_other_peers_remove_no_file_of_the_elected_one(tmp_path, swarm):
    options = dict(host_maddrs=HERE, checkpoints="elected")
    save = lightning().callbacks.ModelCheckpoint(dirpath=tmp_path)
    fit(
        HivemindStrategy(10_000, initial_peers=swarm.get_visible_maddrs(), **options),
        callbacks=[save, Elected(tmp_path)],
        enable_checkpointing=True,
    )
    assert files_below(tmp_path) == ["epoch=0-step=4.ckpt"]
    own = tmp_path / "alone"
    fit(
        HivemindStrategy(10_000, **options),
        callbacks=[lightning().callbacks.ModelCheckpoint(dirpath=own)],
        enable_checkpointing=True,
    )
    assert files_below(own) == ["epoch=1-step=8.ckpt"]  # who writes clears up what it wrote


def test_15_joiner_reads_the_data_in_its_own_order(swarm):
    orders = {}
    for name, options in {"plain": None, "first": {}, "joins": {"initial_peers": swarm.get_visible_maddrs()},
                          "keeps": {"initial_peers": swarm.get_visible_maddrs(), "reseed": False}}.items():  # fmt: skip
        order = Order()
        fit(
            "auto" if options is None else HivemindStrategy(10_000, host_maddrs=HERE, **options),
            callbacks=[order],
            max_epochs=1,
        )
        orders[name] = order.seen
    assert orders["plain"] == orders["first"] == orders["keeps"] != orders["joins"]
    assert sorted(orders["joins"]) == sorted(orders["plain"])


# ---- Lightning's life around it ----


def module_with_schedule():
    def schedule(optimizer):
        return {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), "interval": "step"}

    return small(scheduler=schedule, optimizer=lambda p: torch.optim.AdamW(p, lr=0.01))


@pytest.mark.parametrize("options", [{}, {"offload_optimizer": True}], ids=["plain", "offload"])
def test_resumed_run_continues_as_if_never_stopped(tmp_path, options):
    def part(until, **more):
        strategy = HivemindStrategy(2 * BATCH, host_maddrs=HERE, **options)
        module = module_with_schedule()
        if options:
            strategy._scheduler_fn = lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5)
            module = small(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01))
        rates = []

        class Rates(lightning().Callback):
            def on_train_batch_end(self, trainer, *args):
                rates.append(trainer.optimizers[0].param_groups[0]["lr"])

        module, made = fit(
            strategy,
            module,
            loader=data(shuffle=False),
            max_epochs=until,
            callbacks=[Rates(), saver(tmp_path)],
            enable_checkpointing=True,
            **more,
        )
        return module, rates, made.strategy.global_epoch

    whole, rates, epoch = part(6)
    for path in tmp_path.glob("*.ckpt"):
        path.unlink()
    _, begun, _ = part(3)
    resumed, rest, same_epoch = part(6, ckpt_path=tmp_path / "last.ckpt")
    assert same(whole, resumed) and begun + rest == rates and same_epoch == epoch


def test_a_checkpoint_serves_without_the_swarm(tmp_path):
    module, _ = fit(
        HivemindStrategy(BATCH, host_maddrs=HERE),
        module_with_schedule(),
        callbacks=[saver(tmp_path)],
        enable_checkpointing=True,
    )
    plain = module_with_schedule()
    trainer(max_epochs=3).fit(plain, data(), ckpt_path=tmp_path / "last.ckpt")
    again = type(module).load_from_checkpoint(tmp_path / "last.ckpt")
    assert same(module, again)


def test_early_stopping_testing_and_predicting_work(tmp_path):
    stop = lightning().callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0)
    module, made = (
        small(),
        trainer(
            HivemindStrategy(BATCH, host_maddrs=HERE),
            max_epochs=50,
            callbacks=[stop, saver(tmp_path)],
            enable_checkpointing=True,
        ),
    )
    made.fit(module, data(), data(shuffle=False))
    assert 1 < made.current_epoch < 5
    assert made.test(module, data(shuffle=False), ckpt_path="best")[0]["test_loss"] < 1
    assert made.validate(module, data(shuffle=False))[0]["val_loss"] < 1


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_trainer_that_only_tests_starts_no_swarm(name, capsys):
    pl = lightning(name)
    made = trainer(HivemindStrategy(BATCH), pl)
    made.test(small(pl), data(), verbose=False)
    assert made.strategy._dht is None and "INITIAL_PEERS" not in capsys.readouterr().out


def test_fit_may_be_called_twice_and_leaves_nothing_running():
    fit(HivemindStrategy(BATCH, host_maddrs=HERE))
    gc.collect()
    before = threads(), files()
    module, made = fit(HivemindStrategy(BATCH, host_maddrs=HERE))
    assert made.strategy.global_epoch == 8
    made.fit_loop.max_epochs = 5
    made.fit(module, data())
    assert made.strategy.global_epoch == 12  # a new swarm began, for three epochs of four batches
    assert eventually(lambda: threads() <= before[0])
    gc.collect()  # a Trainer and its loops hold one another
    assert eventually(lambda: files() <= before[1] + 8)


def test_error_in_training_reaches_the_user_and_stops_all():
    module = small()

    def fail(*args):
        raise ZeroDivisionError("the user's own")

    module.training_step = fail
    before = threads()
    with pytest.raises(ZeroDivisionError, match="the user's own"):
        fit(HivemindStrategy(BATCH, host_maddrs=HERE), module)
    assert eventually(lambda: threads() <= before)


# ---- being interrupted ----


def test_preempted_trainer_saves_leaves_and_can_resume(program, tmp_path):
    with DHT(start=True) as watcher:
        running = program(ENDLESS, tmp_path, watcher.get_visible_maddrs()[0], imports=LIGHTNING)
        assert running.line() == "going"
        assert eventually(lambda: watcher.state()["peers"] == 1)
        running.process.send_signal(signal.SIGTERM)
        code, out, errors = running.finish(100)
        assert eventually(lambda: watcher.state()["peers"] == 0), "it did not say goodbye"
    assert (code, out.count("what follows fit")) == (0, 0)  # as docs/howto/checkpoints.md says
    assert "ckpt_path=" in errors and "Traceback" not in errors
    (path,) = tmp_path.glob("*.ckpt")
    assert path.name == "lightning_run-preempted.ckpt"
    steps = torch.load(path, weights_only=False)["global_step"]
    _, made = fit(HivemindStrategy(BATCH, host_maddrs=HERE), ckpt_path=path, max_steps=steps + 4, max_epochs=-1)
    assert made.strategy.global_epoch == steps + 4


def test_preempted_trainer_reports_a_save_only_if_it_wrote(tmp_path, swarm, caplog):
    """If another peer is elected to write, it says that nothing was written."""

    class Preempted(lightning().Callback):
        def on_train_batch_end(self, trainer, *args):
            raise lightning().utilities.exceptions.SIGTERMException

    options = dict(host_maddrs=HERE, checkpoints="elected")
    for peers, said in ((swarm.get_visible_maddrs(), "nothing was written"), (None, "lightning_run-preempted.ckpt")):
        caplog.clear()
        with pytest.raises(SystemExit):
            fit(
                HivemindStrategy(BATCH, initial_peers=peers, **options),
                callbacks=[saver(tmp_path), Preempted()],
                enable_checkpointing=True,
            )
        assert said in caplog.text and ("ckpt_path=" in caplog.text) == (peers is None)
        assert (tmp_path / "lightning_run-preempted.ckpt").exists() == (peers is None)


def test_control_c_ends_it_soon_and_politely(program, tmp_path):
    with DHT(start=True) as watcher:
        running = program(ENDLESS, tmp_path, watcher.get_visible_maddrs()[0], imports=LIGHTNING)
        assert running.line() == "going"
        running.process.send_signal(signal.SIGINT)
        code, out, errors = running.finish(100)
        assert eventually(lambda: watcher.state()["peers"] == 0), "it did not say goodbye"
    assert code == 1 and "Traceback" not in errors and "what follows fit" not in out
    assert not list(tmp_path.rglob("*.ckpt"))


class Batches(lightning().Callback):
    n = 0

    def on_train_batch_start(self, *args):
        self.n += 1


def test_fit_refuses_another_setup_before_training():
    """It names the setting and both values, and the next fit with the run's setup works."""
    first = DHT(host_maddrs=[HERE], start=True)
    module = small()
    swarm = Optimizer(
        dht=first, run_id="setups", target_batch_size=BATCH, batch_size_per_step=BATCH,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
    )  # fmt: skip
    try:
        module.net(torch.randn(BATCH, 8)).square().mean().backward()
        swarm.step()
        assert eventually(lambda: any(told.setup for _, told, _ in news.gather(first, "setups")))
        batches = Batches()
        with pytest.raises(ConfigMismatchError, match="optimizer is Adam here and SGD there"):
            strategy = HivemindStrategy(
                BATCH, run_id="setups", host_maddrs=HERE, initial_peers=first.get_visible_maddrs()
            )
            other = small(optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
            fit(strategy, other, callbacks=[batches])
        assert batches.n == 0
    finally:
        swarm.shutdown()
        first.shutdown()
