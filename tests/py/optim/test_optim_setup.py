"""The setup of a run: a peer with another setup is not averaged, and a sentence names the setting and both values."""

import itertools
import logging
import threading
import time

import msgpack
import pytest
import torch

import hivemind_c as hivemind
from forking import TORCH
from hivemind_c.dht import news
from hivemind_c.optim import setup_watch
from hivemind_c.optim.setup import (
    BYTES_MAX,
    FIELD_MAX,
    LINES_MAX,
    VALUE_MAX,
    RunSetup,
    difference,
    in_words,
    judge,
    parse_setup,
    run_setup,
    shortened,
)
from hivemind_c.optim.setup_fields import number, options_of, scheduled_by, setup_of
from optim_support import Peer, flat, meet, network, together
from support import PATIENCE, eventually

RUNS = itertools.count()


def setup(**fields):
    return run_setup({"target_batch_size": 32, "optimizer": "SGD", **fields}.items())


# ---- the value ----


def test_setup_comes_back_from_its_bytes():
    one = setup(weight_decay=0.1, betas=(0.9, 0.999))
    assert parse_setup(one.packed()) == one
    assert len(one.digest) == 16 and one.digest != setup(weight_decay=0.2).digest


def test_difference_names_field_and_both_values():
    found = difference(setup(weight_decay=0.1), setup(weight_decay=0, target_batch_size=64))
    assert found == [("target_batch_size", "32", "64"), ("weight_decay", "0.1", "0")]
    assert in_words(found) == "target_batch_size is 32 here and 64 there; weight_decay is 0.1 here and 0 there"
    assert difference(setup(), setup()) == []


def test_difference_counts_options_that_one_side_lacks():
    found = difference(setup(momentum=0.9), setup(optimizer="Adam", betas=(0.9, 0.99)))
    assert in_words(found) == "optimizer is SGD here and Adam there; 2 more settings differ"
    assert in_words(difference(setup(momentum=0.9), setup())) == "momentum is 0.9 here and absent there"


@pytest.mark.parametrize("text", ["x" * 1000, "a\nb", "tab\there", "\x1b[31m", "ж" * 90, "\ud800"])
def test_shortened_text_is_printable_and_short(text):
    short = shortened(text, 60)
    assert len(short.encode()) <= 60 and short.isprintable()
    assert short == shortened(text, 60) != shortened(text + ".", 60)


@pytest.mark.parametrize("n", [0, 10, 100, 10000])
def test_setup_is_bounded_and_differs_wherever_settings_do(n):
    pairs = [("target_batch_size", 32)] + [(f"option {i} " + "o" * 50, "v" * 50) for i in range(n)]
    one, other = run_setup(pairs), run_setup([*pairs[:-1], (pairs[-1][0], "another")])
    assert len(one.packed()) <= BYTES_MAX and len(one.fields) <= LINES_MAX
    assert parse_setup(one.packed()) == one != other
    assert one.fields[0] == ("target_batch_size", "32")


HOSTILE = {
    "no bytes": None,
    "a text": "optimizer: SGD\n",
    "nothing": b"",
    "too much": b"field: value\n" * 200,
    "too many lines": b"".join(b"field %d: 1\n" % i for i in range(LINES_MAX + 1)),
    "no end": b"optimizer: SGD",
    "no value": b"optimizer\n",
    "no field": b": SGD\n",
    "an empty line": b"optimizer: SGD\n\n",
    "a long field": b"f" * (FIELD_MAX + 1) + b": 1\n",
    "a long value": b"optimizer: " + b"v" * (VALUE_MAX + 1) + b"\n",
    "a control character": b"optimizer: \x1b[2J\n",
    "a carriage return": b"optimizer: SGD\rAdam\n",
    "a separator of lines": "optimizer: a\u2028b\n".encode(),
    "a reversed text": "optimizer: \u202eDGS\n".encode(),
    "no UTF-8": b"optimizer: \xff\n",
    "a field twice": b"optimizer: SGD\noptimizer: Adam\n",
}


@pytest.mark.parametrize("packed", HOSTILE.values(), ids=HOSTILE)
def test_hostile_setup_is_refused(packed):
    with pytest.raises(ValueError, match="^a (setup|line of a setup) "):
        parse_setup(packed)


def test_verdict_follows_the_most_common_other_setup():
    mine, a, b = setup(), setup(weight_decay=1), setup(weight_decay=2)
    assert not judge(mine, {}).is_alone
    assert judge(mine, {"1": a, "2": b, "3": a}).common == a
    assert judge(mine, {"1": a, "2": b, "3": a}).is_alone
    verdict = judge(mine, {"1": a, "2": mine, "3": a, "4": a})
    assert verdict.alike == 1 and not verdict.is_alone and verdict.differing == {"1": a, "3": a, "4": a}
    assert judge(mine, {"1": a, "2": b}).common == judge(mine, {"2": b, "1": a}).common


# ---- what is in it ----


def fields_of(make=lambda p: torch.optim.AdamW(p, lr=0.1), scheduler=None):
    inner = make([torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(4))])
    return dict(options_of(inner.param_groups, scheduled_by(scheduler and scheduler(inner))))


def test_learning_rates_and_ways_of_a_device_are_no_difference():
    assert fields_of() == fields_of(lambda p: torch.optim.AdamW(p, lr=0.2, foreach=False))
    assert fields_of() == fields_of(scheduler=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10))
    assert fields_of()["weight_decay"] == "0.01" and fields_of()["betas"] == "(0.9, 0.999)"
    assert fields_of() != fields_of(lambda p: torch.optim.AdamW(p, lr=0.1, eps=1e-6))


def test_options_that_the_scheduler_cycles_are_left_out():
    def cycle(o):
        return torch.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=9)

    assert "betas" not in fields_of(scheduler=cycle) and "weight_decay" in fields_of(scheduler=cycle)
    chained = fields_of(
        scheduler=lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.ConstantLR(o), cycle(o)], [3]
        )
    )
    assert "betas" not in chained
    plain = fields_of(
        scheduler=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=9, cycle_momentum=False)
    )
    assert "betas" in plain


class DecayWarmup:
    """A scheduler of a program's own."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        for group in self.optimizer.param_groups:
            group["weight_decay"] += 0.1

    def state_dict(self):
        return {}


def test_options_that_a_scheduler_of_ones_own_names_are_left_out():
    assert "weight_decay" not in fields_of(scheduler=DecayWarmup) and "betas" in fields_of(scheduler=DecayWarmup)


def test_groups_with_different_options_are_told_in_their_order():
    fields = fields_of(lambda p: torch.optim.SGD([{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.5}], lr=1))
    assert fields["weight_decay"] == "0, 0.5 in 2 groups" and fields["momentum"] == "0"


def test_equal_values_of_other_types_are_written_alike():
    assert number(0) == number(0.0) == "0" and number(1.0) == "1" and number(True) == "True"
    assert number((0.9, 1)) == number([0.9, 1.0]) and number(torch.tensor(0.5)) == "0.5"
    assert number(object()) == "object"


@pytest.fixture
def swarm(dhts):
    """swarm(index, ...) makes a peer of one run; all are shut down when the test ends."""
    made, run = [], f"setups {next(RUNS)}"

    def start(index, **options):
        made.append(
            Peer(index, dhts[index], network(), **{"run_id": run, "target_batch_size": 32, **options})
        )
        return made[-1]

    yield start
    for one in made:
        one.optimizer.shutdown()


def weight_decay(peer, value):
    for group in peer.optimizer.param_groups:
        group["weight_decay"] = value


def wait_until_told(peer, dht, n=1):
    """Until others can read what n peers are set up like."""
    eventually(lambda: len(setup_watch.read_setups(dht, peer.optimizer.run_id)) >= n)


def test_setup_of_an_optimizer_names_settings_of_the_run(swarm):
    fields = dict(setup_of(swarm(0, max_grad_norm=1.0).optimizer).fields)
    assert fields["target_batch_size"] == "32" and fields["optimizer"] == "SGD" and fields["weight_decay"] == "0.01"
    assert fields["parameters"].startswith("4 with 387 values, digest ") and fields["max_grad_norm"] == "1"
    assert not {"lr", "batch_size_per_step", "client_mode", "auxiliary", "reuse_grad_buffers"} & fields.keys()


def test_purposeful_differences_make_no_other_setup(swarm):
    one = swarm(0)
    other = swarm(1, batch_size_per_step=8, reuse_grad_buffers=True, scheduler="cosine", matchmaking_time=3.0)
    assert setup_of(one.optimizer) == setup_of(other.optimizer)


# ---- joiners ----

STORIES = {
    "optimizer": (dict(optimizer="adamw"), "optimizer is AdamW here and SGD there"),
    "target": (dict(target_batch_size=64), "target_batch_size is 64 here and 32 there"),
    "local updates": (dict(use_local_updates=True), "use_local_updates is True here and False there"),
}


@pytest.mark.parametrize("story", STORIES)
def test_joiner_that_differs_refuses_to_train(swarm, dhts, story):
    options, sentence = STORIES[story]
    first = swarm(0)
    first.train(1)
    wait_until_told(first, dhts[1])
    joiner = swarm(1, **options)
    before = flat(joiner.model)
    for _ in range(2):
        with pytest.raises(hivemind.ConfigMismatchError, match=sentence) as caught:
            joiner.batch()
    assert (caught.value.field, caught.value.mine, caught.value.theirs) == (
        sentence.split()[0], sentence.split()[2], sentence.split()[5]
    )  # fmt: skip
    assert torch.equal(flat(joiner.model), before) and joiner.optimizer.local_epoch == 0
    first.train(3)
    assert first.optimizer.tracker.global_progress.num_peers == 1


def test_joiner_with_an_equal_peer_trains_despite_liars(swarm, dhts, caplog):
    first = swarm(0)
    first.train(1)
    for liar in range(2, 4):  # they claim to have been there first
        publish(dhts[liar], first.optimizer.run_id, setup(optimizer="Adam").packed(), joined=1.0)
    wait_until_told(first, dhts[1], 3)
    joiner = swarm(1)
    with caplog.at_level(logging.WARNING):
        meet([first, joiner])
        together(lambda: first.train(4), lambda: joiner.train(4))
    assert [line for line in caplog.messages if "is not averaged with peer" in line and "Adam" in line]
    assert joiner.optimizer.setups.established


def publish(dht, run_id, packed, joined=0.0):
    """The record of a peer that says this of itself."""
    said = news.News("1", "liar", "trainer", 1.0, 60.0, 3, 32, 5, 1.0, None, 0, 0, (), setup=packed, joined=joined)
    stored = dht.core.dht_store(
        news.key_of(run_id, dht.peer_id).encode(),
        msgpack.packb(news.subkey_of(dht.peer_id)),
        news.write_news(said),
        60000,
    )
    stored.result(PATIENCE)


def test_joiner_ignores_hostile_setups(swarm, dhts):
    joiner = swarm(1)
    run = joiner.optimizer.run_id
    publish(dhts[2], run, b"optimizer: \x1b[2J\n")
    publish(dhts[3], run, b"x" * BYTES_MAX)
    assert setup_watch.read_setups(dhts[1], run) == {}
    joiner.train(2)


def test_news_with_a_wrong_setup_is_refused():
    fine = dict(
        version="1", name="n", role="trainer", time=1.0, lease=1.0, epoch=0, target=1, samples=0, speed=0.0, loss=None,
        rounds=0, failures=0, errors=[]
    )  # fmt: skip
    assert news.read_news(fine).setup == b""  # a record of an older version
    assert news.read_news({**fine, "setup": b"a: b\n", "joined": 2.0}).setup == b"a: b\n"
    for wrong in ({"setup": b"x" * (BYTES_MAX + 1)}, {"setup": "text"}, {"joined": float("nan")}, {"joined": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            news.read_news({**fine, **wrong})


def test_joiner_may_train_with_a_warning(swarm, dhts, caplog):
    first = swarm(0)
    first.train(1)
    wait_until_told(first, dhts[1])
    joiner = swarm(1, target_batch_size=64, config_mismatch="warn")
    with caplog.at_level(logging.WARNING):
        joiner.batch()
        assert joiner.optimizer.setups.presented == first.optimizer.setups.presented
        meet([first, joiner])
        together(lambda: first.train(4), lambda: joiner.train(4))
    told = [line for line in caplog.messages if "target_batch_size is 64 here and 32 there" in line]
    assert len(told) == 1 and "config_mismatch='warn'" in told[0]
    assert joiner.optimizer.setups.established  # they have averaged


def test_unknown_policy_is_refused(dhts):
    with pytest.raises(ValueError, match="config_mismatch must be one of 'error', 'warn', not 'ignore'"):
        Peer(0, dhts[0], network(), run_id="policy", target_batch_size=32, config_mismatch="ignore")


def test_of_two_that_begin_together_the_later_one_refuses(swarm):
    peers = [swarm(0), swarm(1, optimizer="adamw")]
    refused = []

    def train(peer):
        try:
            peer.train(3)
        except hivemind.ConfigMismatchError as error:
            refused.append((peer, error))

    for peer in peers:
        peer.optimizer.setups._others = dict  # neither knows of the other before both train
        peer.batch()
        del peer.optimizer.setups._others
    for peer, other in zip(peers, reversed(peers)):
        wait_until_told(peer, other.dht)
    together(*(lambda peer=peer: train(peer) for peer in peers))
    later = max(peers, key=lambda peer: peer.optimizer.setups.joined)
    assert [peer for peer, _ in refused] == [later]
    assert "optimizer is " in str(refused[0][1])


def test_auxiliary_peer_follows_the_setup_of_the_run(swarm, dhts):
    first, second = swarm(0, target_batch_size=64), swarm(1, target_batch_size=64)
    meet([first, second])
    together(lambda: first.train(1), lambda: second.train(1))
    wait_until_told(first, dhts[2], 2)
    helper = swarm(2, target_batch_size=64, optimizer="adamw", auxiliary=True, batch_size_per_step=None)
    stop = threading.Event()

    def help_them():
        while not stop.is_set():
            helper.optimizer.step()
            time.sleep(0.02)

    def train():
        try:
            together(lambda: first.train(4), lambda: second.train(4))
        finally:
            stop.set()

    together(help_them, train)
    assert helper.optimizer.setups.presented == first.optimizer.setups.presented
    assert helper.optimizer.setups.published == b""


# ---- while peers train ----


def groups_of(peer):
    """The groups in which a peer averages gradients from now on, as sets of IDs."""
    found, averager = [], peer.optimizer.grad_averager
    inner = averager.average_loaded

    def average(*args, **kwargs):
        members = inner(*args, **kwargs)
        found.append({str(one) for one in members})
        return members

    averager.average_loaded = average
    return found


def test_weight_decay_changed_on_two_of_three_parts_the_third(swarm, caplog):
    peers = [swarm(i, target_batch_size=48, matchmaking_time=4.0) for i in range(3)]
    meet(peers)
    together(*(lambda peer=peer: peer.train(2) for peer in peers))
    old, *changed = peers
    ids = [str(peer.dht.peer_id) for peer in peers]
    for peer in changed:
        weight_decay(peer, 0.5)
    with caplog.at_level(logging.INFO, "hivemind_c"):
        together(*(lambda peer=peer: peer.train(3) for peer in peers))  # their groups may have formed before the change
        groups = [groups_of(peer) for peer in peers]
        together(*(lambda peer=peer: peer.train(6) for peer in changed), lambda: old.train(4))
    assert {ids[1], ids[2]} in groups[1] and {ids[1], ids[2]} in groups[2]
    # the third is in no group before it has taken over the others' setup, and says so
    took_over = [line for line in caplog.messages if "brings other settings" in line]
    assert bool(groups[0]) <= bool(took_over) == (old.optimizer.param_groups[0]["weight_decay"] == 0.5)
    changes = [line for line in caplog.messages if "has changed: weight_decay was 0.01 and is 0.5" in line]
    assert len(changes) == 2 + len(took_over)
    for here, there in (("0.01", "0.5"), ("0.5", "0.01")):  # at both sides
        sentence = f"it has weight_decay: {there} where this peer has weight_decay: {here}"
        assert any(sentence in line for line in caplog.messages)


def test_setup_that_is_alike_again_is_told_once(swarm, caplog):
    peers = [swarm(i, matchmaking_time=3.0) for i in range(2)]
    meet(peers)
    together(*(lambda peer=peer: peer.train(2) for peer in peers))
    with caplog.at_level(logging.INFO, "hivemind_c"):
        weight_decay(peers[1], 0.5)
        assert peers[1].optimizer.setups.renew()
        weight_decay(peers[1], 0.01)
        assert peers[1].optimizer.setups.renew() and not peers[1].optimizer.setups.renew()
        together(*(lambda peer=peer: peer.train(4) for peer in peers))
    assert sum("is again what it was at first" in line for line in caplog.messages) == 1


# ---- the state ----


def test_state_carries_the_setup_and_older_states_load(swarm):
    one = swarm(0)
    one.train(1)
    averager = one.optimizer.state_averager
    metadata, tensors, _ = averager.get_current_state()
    assert parse_setup(metadata["setup"]) == setup_of(one.optimizer)
    averager.set_current_state({name: value for name, value in metadata.items() if name != "setup"}, tensors)
    averager.set_current_state(metadata, tensors)


def test_state_of_another_setup_is_refused_or_told(swarm, caplog):
    one = swarm(0)
    averager = one.optimizer.state_averager
    metadata, tensors, _ = averager.get_current_state()
    before = flat(one.model)
    fields = dict(setup_of(one.optimizer).fields)

    def of(**changes):
        return {**metadata, "setup": RunSetup(tuple({**fields, **changes}.items())).packed()}

    with pytest.raises(hivemind.ConfigMismatchError, match="weight_decay is 0.01 here and 0.5 there, where a hub"):
        averager.set_current_state(of(weight_decay="0.5"), tensors)  # nobody else trains
    one.train(1)
    with pytest.raises(ValueError, match="another setup: target_batch_size is 32 here and 64 there"):
        averager.set_current_state(of(target_batch_size="64"), tensors)
    with pytest.raises(ValueError, match="printable"):
        averager.set_current_state({**metadata, "setup": b"optimizer: \x07\n"}, tensors)
    assert not torch.equal(flat(one.model), before)  # it is its own
    with caplog.at_level(logging.WARNING):
        averager.set_current_state(of(weight_decay="0.5"), tensors)
    assert any("brings other settings" in line and "weight_decay is 0.01 here" in line for line in caplog.messages)
    assert torch.equal(flat(one.model), before)


# ---- the three stories, as real processes ----

TRAINER = """
    import logging, sys, threading, time, torch
    import hivemind_c as hivemind
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peers, kind, target, samples, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    model = torch.nn.Linear(8, 1)
    dht = hivemind.DHT([peers] if peers else None, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, wait_timeout=30)
    print(dht.get_visible_maddrs()[0], flush=True)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="story", target_batch_size=target, batch_size_per_step=16, matchmaking_time=3.0,
        optimizer=getattr(torch.optim, kind)(model.parameters(), lr=0.001),
    )
    change = []  # the epoch in which weight decay changes
    threading.Thread(target=lambda: change.extend(map(int, sys.stdin)), daemon=True).start()
    company = False
    try:
        while optimizer.local_epoch < epochs:
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
            if optimizer.tracker.global_progress.num_peers == samples and not company:
                company = True
                print("together", optimizer.local_epoch, flush=True)
            if change and optimizer.local_epoch >= change[0]:
                change.clear()
                optimizer.param_groups[0]["weight_decay"] = 0.5
        print("ended", flush=True)
    except hivemind.ConfigMismatchError as error:
        print("refused:", error, flush=True)
    optimizer.shutdown()
    dht.shutdown()
"""


def lines_until(running, *beginnings):
    """The lines that a program prints, up to the first one that begins so."""
    found = []
    while not found or not found[-1].startswith(beginnings):
        found.append(running.line())
        assert running.process.poll() is None or found[-1], running.process.stderr.read()
    return found


@pytest.mark.parametrize(
    "kind, target, sentence",
    [
        ("Adam", 128, "optimizer is Adam here and SGD there"),
        ("SGD", 256, "target_batch_size is 256 here and 128 there"),
    ],
)
def test_process_with_another_setup_ends_with_a_sentence(program, kind, target, sentence):
    first = program(TRAINER, "", "SGD", 128, 1, 10000, imports=TORCH)
    address = first.line()
    lines_until(first, "together")
    told = lines_until(program(TRAINER, address, kind, target, 9, 10000, imports=TORCH), "refused", "ended")
    assert sentence in told[-1] and told[-1].startswith("refused: cannot join the run: ")


def test_weight_decay_of_two_processes_is_told_to_all_three(program):
    peers = [program(TRAINER, "", "SGD", 320, 3, 10000, imports=TORCH)]
    address = peers[0].line()
    peers += [program(TRAINER, address, "SGD", 320, 3, 10000, imports=TORCH) for _ in range(2)]
    for one in peers[1:]:
        one.line()
    epoch = max(int(lines_until(one, "together")[-1].split()[1]) for one in peers) + 8
    for one in peers[1:]:
        one.say(str(epoch))
    for one in peers[1:]:
        told = lines_until(one, "WARNING the setup of this peer has changed")
        assert "weight_decay was 0 and is 0.5; it is averaged only with peers that change alike" in told[-1]
    while "weight_decay: 0.5 where this peer has weight_decay: 0" not in peers[0].line():
        assert peers[0].process.poll() is None
