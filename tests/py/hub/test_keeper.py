"""The keeper of a run's state: it keeps states in memory and on disk, byte for byte."""

import errno
import logging
import threading

import msgpack
import pytest
import torch

from hivemind_c import BFloat16Compression, Float16Compression, NoCompression
from hivemind_c.averaging.image import Image
from hivemind_c.averaging.state import StateSharing
from hivemind_c.hub import files
from hivemind_c.hub.files import MAGIC, Checkpoints, read_image, write_image
from hivemind_c.hub.keeper import Keeper, Training
from hivemind_c.hub.sizes import budget_of, in_words, parse_bytes

IMAGE = Image(7, b"metadata", (b"abcd" * 5, b"", b"xyz"), ((0, 1, False), (0, 0, False), (0, 0, True)))
TENSORS = [torch.arange(1000.0) / 7, torch.tensor([1, 2, 3]), torch.zeros(0), torch.rand(3, 5, dtype=torch.float64)]
LINEAGE = bytes(range(16))


@pytest.fixture
def keeper(dhts):
    """keeper(...) makes one of the run "run", whose trainers are in epoch 10, on a node of its own."""
    node, now = dhts[1].core, Training(10, b"")
    return lambda size_max=1 << 30, every=1, kept=None: Keeper(node, "run", size_max, every, kept, lambda: now)


@pytest.fixture
def sharing(dhts):
    """A trainer's offers."""
    made = StateSharing(dhts[0], "run_state_averager", declare_period=1)
    yield made
    made.withdraw(at_once=True)
    dhts[1].core.state_withdraw(b"run_state_averager", True).exception()


def look(keeper):
    """Looks until the keeper has taken a state."""
    for _ in range(100):
        if keeper._look():
            return keeper.held
    raise AssertionError("no state came")


@pytest.mark.parametrize("compression", [NoCompression(), Float16Compression(), BFloat16Compression()])
def test_state_is_donated_under_the_same_digest(dhts, sharing, keeper, compression):
    sharing.compression = compression
    digest = sharing.offer(5, TENSORS, {"lineage": LINEAGE}, lineage=LINEAGE, n_own=1)
    image = look(keeper())
    assert (image.epoch, image.lineage, image.size) == (5, LINEAGE, sum(t.nbytes for t in TENSORS))
    parts = tuple((part, *kind) for part, kind in zip(image.parts, image.kinds))
    offered = keeper()._node.state_offer(b"run_state_averager", 5, image.metadata, parts, 1.0, 1000, LINEAGE)
    assert offered.result() == digest
    sharing.withdraw(at_once=True)
    loaded = StateSharing(dhts[2], "run_state_averager").load(20)
    assert all(torch.equal(a.to(b.dtype), b) for a, b in zip(loaded.tensors[1:], TENSORS[1:]))
    assert torch.allclose(loaded.tensors[0], TENSORS[0], rtol=0.01)


def test_keeper_waits_for_every_nth_epoch(sharing, keeper):
    keeps = keeper(every=3)
    sharing.offer(4, TENSORS)
    look(keeps)
    sharing.offer(6, TENSORS)
    assert not keeps._look() and keeps.held.epoch == 4
    sharing.offer(7, TENSORS)
    assert look(keeps).epoch == 7


def test_too_large_state_is_one_sentence_in_the_log(sharing, keeper, caplog):
    sharing.offer(5, TENSORS)
    keeps = keeper(size_max=4000)
    with caplog.at_level(logging.WARNING, "hivemind_c.hub"):
        assert not keeps._look() and not keeps._look() and keeps.held is None
    (line,) = [one.getMessage() for one in caplog.records if one.name == "hivemind_c.hub"]
    assert "larger than 4 KB: give it more --memory" in line


def test_full_disk_is_one_sentence_and_the_state_stays(sharing, keeper, caplog, tmp_path, monkeypatch):
    keeps, ended = keeper(kept=Checkpoints(tmp_path, "run", 2)), threading.Event()
    monkeypatch.setattr(files, "write_image", full)
    with caplog.at_level(logging.WARNING, "hivemind_c.hub"):
        for epoch in (5, 6):
            sharing.offer(epoch, TENSORS)
            look(keeps)
    assert [one.getMessage().partition(";")[0] for one in caplog.records if one.name == "hivemind_c.hub"] == [
        "run: no checkpoint was written: No space left on device"
    ]
    assert keeps.held.epoch == 6 and list(tmp_path.iterdir()) == [] and not ended.is_set()


def full(file, run_id, image):
    file.write(b"some of it")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_newest_whole_checkpoint_is_read_and_old_ones_go(tmp_path, caplog):
    kept = Checkpoints(tmp_path, "a/run", 2)
    for epoch in (7, 9, 10):
        kept.save(IMAGE._replace(epoch=epoch))
    Checkpoints(tmp_path, "run", 2).save(IMAGE._replace(epoch=99))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a%2Frun-10.state", "a%2Frun-9.state", "run-99.state"]
    (tmp_path / "a%2Frun-10.state").write_bytes((tmp_path / "a%2Frun-10.state").read_bytes()[:-1])
    image = kept.newest(1000)
    assert image.epoch == 9 and tuple(map(bytes, image.parts)) == IMAGE.parts and image.kinds == IMAGE.kinds
    assert "a%2Frun-10.state" in caplog.text and Checkpoints(tmp_path, "none", 2).newest(1000) is None


def test_written_checkpoint_stays_beside_unreadable_ones(tmp_path):
    for epoch in (90, 91):
        (tmp_path / f"run-{epoch}.state").write_bytes(b"damaged")
    kept = Checkpoints(tmp_path, "run", 2)
    assert kept.newest(1000) is None
    for epoch in (7, 8, 9):
        assert kept.save(IMAGE._replace(epoch=epoch)).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"run-{epoch}.state" for epoch in (8, 9, 90, 91)]
    again = Checkpoints(tmp_path, "run", 1)  # has read nothing
    assert again.save(IMAGE._replace(epoch=10)).exists() and again.newest(1000).epoch == 10


def test_drafts_of_a_killed_hub_are_removed_at_start(tmp_path):
    for name in ("run-7.part", "other-7.part", "run-seven.part"):
        (tmp_path / name).write_bytes(b"cut short")
    Checkpoints(tmp_path, "run", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-7.part", "run-seven.part"]


@pytest.mark.parametrize("at", [0, 8, 20, 60, -40, -1])
def test_changed_byte_in_a_checkpoint_is_refused(tmp_path, at):
    path = Checkpoints(tmp_path, "run", 1).save(IMAGE)
    found = bytearray(path.read_bytes())
    found[at] ^= 1
    path.write_bytes(found)
    with pytest.raises(ValueError):
        read_image(path, "run", 1000)


def test_checkpoint_of_another_run_or_size_is_refused(tmp_path):
    path = Checkpoints(tmp_path, "run", 1).save(IMAGE)
    with pytest.raises(ValueError, match="of another run"):
        read_image(path, "other", 1000)
    with pytest.raises(ValueError, match="larger than --memory"):
        read_image(path, "run", 22)
    for changed in ({"epoch": -1}, {"metadata": "text"}, {"kinds": ((0, 300, False),) * 3}):
        with open(path, "wb") as file:
            write_image(file, "run", IMAGE._replace(**changed))
        with pytest.raises(ValueError, match="out of their bounds"):
            read_image(path, "run", 1000)
    path.write_bytes(MAGIC + (1 << 40).to_bytes(8, "little") + msgpack.packb({}) + bytes(64))
    with pytest.raises(ValueError, match="its header is too long"):
        read_image(path, "run", 1000)


def test_memory_is_read_and_written_as_people_do():
    read = [parse_bytes(text) for text in ("2G", "512 mb", "1.5GiB", "700")]
    assert read == [2 * 10**9, 512 * 10**6, 1500 * 10**6, 700]
    assert [in_words(count) for count in (999, 999_600, 1_500_000_000)] == ["999 bytes", "1 MB", "1.5 GB"]
    for text in ("", "-1", "2X", "1e9", "1" * 99):
        with pytest.raises(ValueError, match="such as 2G"):
            parse_bytes(text)
    assert budget_of(4 * 10**9, 2).state < 10**9 and "Adam" in budget_of(4 * 10**9, 2).in_words()
    with pytest.raises(ValueError, match="--memory must be"):
        budget_of(1000, 1)
