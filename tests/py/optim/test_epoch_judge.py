"""A peer that does more harm than good says so: tables of epochs for each rule, and real peers for two rules."""

import logging
import threading
import time

import pytest

from hivemind_c import DHT
from hivemind_c.doctor.troubles import TROUBLES
from hivemind_c.optim import epoch_judge
from hivemind_c.optim.epoch_judge import AGAIN_S, LEAST, LEAST_S, MOST, RULES, EpochJudge, Situation
from epochs import FINE, epoch
from optim_support import Peer, backward, make, meet, network, together
from support import HERE, PATIENCE, free_port

BAD = {
    "alone": dict(outcome="alone", peers=1, members=0),
    "left_out": dict(outcome="left out", samples=0, lost_samples=64, why=("64 samples lost: late",)),
    "failing": dict(outcome="failed", members=0, why=("averaging gradients failed: nobody came",)),
    "lost": dict(samples=10, lost_samples=54, why=("54 samples lost: the gradient of this peer is not finite",)),
    "clock": dict(clock_s=-95.0),
    "thin": dict(part=0.1, reducing_s=18.0, computing_s=12.0),
}


def judged(*records, has_initial_peers=True, situation=Situation("run", 3)):
    """The judge, and what it said after each of them."""
    judge = EpochJudge(lambda: situation, has_initial_peers)
    return judge, [judge.look(record) for record in records]


def said(verdicts):
    return [verdict.code for some in verdicts for verdict in some]


def test_each_trouble_has_a_rule_and_a_reason():
    assert [rule.code for rule in RULES] == list(TROUBLES) == list(BAD)
    assert all(rule.reason for rule in RULES)


@pytest.mark.parametrize("code", BAD)
def test_bad_epochs_are_said_once_in_one_sentence(code):
    judge, verdicts = judged(*(epoch(i, **BAD[code]) for i in range(20)))
    assert [len(some) for some in verdicts] == [0] * (LEAST - 1) + [1] + [0] * 17
    (text,) = [verdict.text for some in verdicts for verdict in some]
    assert text.startswith(f"this peer {TROUBLES[code].about}: ") and text.endswith(TROUBLES[code].remedy)
    assert ". " not in text and judge.codes == (code,)


PATTERNS = {"bb": 0, "bgbgg": 0, "bgbgb": 1, "bggggb" * 4: 0, "gggggbbb": 1, "bbggb": 1, "g" * 20: 0}


@pytest.mark.parametrize("code", BAD)
@pytest.mark.parametrize("pattern, says", PATTERNS.items())
def test_three_of_five_epochs_make_a_trouble(code, pattern, says):
    _, verdicts = judged(*(epoch(i, **(BAD[code] if kind == "b" else {})) for i, kind in enumerate(pattern)))
    assert said(verdicts) == [code] * says


def test_trouble_that_has_passed_is_no_trouble():
    judge, _ = judged(*(epoch(i, **BAD["failing"]) for i in range(5)), *(epoch(5 + i) for i in range(3)))
    assert judge.codes == ()


def test_sentence_is_repeated_after_a_while():
    _, verdicts = judged(*(epoch(i, **BAD["clock"]) for i in range(200)))
    when = [i for i, some in enumerate(verdicts) if some]
    assert when[0] == LEAST - 1 and {b - a for a, b in zip(when, when[1:])} == {AGAIN_S / FINE.wall_s}


def test_short_epochs_are_judged_by_their_time():
    """A swarm that ends an epoch each 50 ms: a second of loneliness at the start says nothing."""
    lonely = dict(wall_s=0.05, **BAD["alone"])
    judge, verdicts = judged(*(epoch(i, **lonely) for i in range(20)), *(epoch(i, wall_s=0.05) for i in range(400)))
    assert said(verdicts) == [] and len(judge._window) <= MOST
    judge, verdicts = judged(*(epoch(i, **lonely) for i in range(400)))
    assert said(verdicts) == ["alone"] and abs([bool(some) for some in verdicts].index(True) * 0.05 - LEAST_S) < 0.2


def test_cost_of_a_record_does_not_grow_with_the_window():
    """Counted, not timed: each rule is asked once for each record."""
    asked = []
    judge, _ = judged()

    def counted(rule):
        return rule._replace(speaks=lambda record: bool(asked.append(1)) or rule.speaks(record))

    judge._rules = list(map(counted, judge._rules))
    for i in range(500):
        judge.look(epoch(i, wall_s=0.01))
    assert len(asked) == 500 * len(RULES)


@pytest.mark.parametrize(
    "situation, part",
    [(Situation("run", 0), "none of them is connected"), (Situation("run", 2), "none of them trains in 'run'")],
)
def test_lonely_peer_says_why(situation, part):
    _, verdicts = judged(*(epoch(i, **BAD["alone"]) for i in range(3)), situation=situation)
    assert part in verdicts[-1][0].text


def test_first_peer_of_a_run_may_be_alone():
    lonely = [epoch(i, **BAD["alone"]) for i in range(9)]
    assert said(judged(*lonely, has_initial_peers=False)[1]) == []
    judge, verdicts = judged(*lonely, situation=Situation("run", 0, is_initial=True))
    assert said(verdicts) == [] and judge.codes == ()


@pytest.mark.parametrize(
    "changed",
    [
        dict(BAD["thin"], part=None),  # a client reduces nothing
        dict(BAD["thin"], part=0.5),
        dict(BAD["thin"], reducing_s=4.0),
        dict(BAD["thin"], wall_s=2.0, reducing_s=1.5),  # so short that nobody waits long
        dict(clock_s=None),
        dict(clock_s=20.0),
        dict(lost_samples=60),
        dict(outcome="local"),
    ],
)
def test_small_troubles_are_not_said(changed):
    assert said(judged(*(epoch(i, **changed) for i in range(20)))[1]) == []


def test_background_averaging_of_a_thin_line_counts():
    late = dict(BAD["thin"], reducing_s=0.0, background_s=20.0, background_reducing_s=18.0)
    assert said(judged(*(epoch(i, **late) for i in range(3)))[1]) == ["thin"]


# ---- real peers ----


def warned(caplog, code):
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith(f"this peer {TROUBLES[code].about}: ")]


@pytest.mark.parametrize("reached", [True, False])
def test_peer_that_trains_alone_says_so(dhts, caplog, monkeypatch, reached):
    """It has the address of a peer: of one that is in another run, or of one that is not there."""
    monkeypatch.setattr(epoch_judge, "LEAST_S", 0.5)
    peers = dhts[0].get_visible_maddrs() if reached else [f"/ip4/127.0.0.1/tcp/{free_port()}"]
    with DHT(peers, host_maddrs=[HERE], start=True, ensure_bootstrap_success=False) as dht:
        model = network()
        optimizer = make(dht, model, run_id="misspelt")
        end = time.monotonic() + PATIENCE
        while not warned(caplog, "alone") and time.monotonic() < end:
            backward(model, 0, 32)
            optimizer.step()
            time.sleep(0.05)
        (text,) = warned(caplog, "alone")
        assert ("none of them trains in 'misspelt'" if reached else "none of them is connected") in text
        assert optimizer.reporter.news(6.0).troubles == ("alone",)
        optimizer.shutdown()


def test_peer_that_is_left_out_again_and_again_says_so(dhts, caplog, monkeypatch):
    """Its batches take longer than the other two wait for it."""
    caplog.set_level(logging.WARNING, "hivemind_c.optim")
    monkeypatch.setattr(epoch_judge, "LEAST_S", 0.5)
    options = dict(run_id="slow", target_batch_size=64, matchmaking_time=0.3)
    *quick, slow = [Peer(i, dhts[i], network(), **options) for i in range(3)]
    stop = threading.Event()

    def train(peer, pause):
        while not stop.is_set():
            peer.batch()
            time.sleep(pause)

    def watch():
        end = time.monotonic() + PATIENCE
        while "left_out" not in slow.optimizer.ledger.judge.codes and time.monotonic() < end:
            time.sleep(0.05)
        stop.set()

    try:
        meet(quick)
        together(watch, *(lambda peer=peer: train(peer, 0.05) for peer in quick), lambda: train(slow, 2.0))
        assert warned(caplog, "left_out"), [str(slow.optimizer.last_epoch), caplog.text[-2000:]]
        assert "left_out" in slow.optimizer.reporter.news(6.0).troubles
        assert not any("left_out" in peer.optimizer.ledger.judge.codes for peer in quick)
    finally:
        for peer in (*quick, slow):
            peer.optimizer.shutdown()
