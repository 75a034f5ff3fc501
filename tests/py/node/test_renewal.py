"""A renewed invitation counts without a restart, and a bad file of it changes nothing."""

import time

import pytest

import _hivemind_c
from hivemind_c import HivemindError, _invitation, _renewal, invite
from hivemind_c.cli import invite as command
from forking import TORCH
from support import eventually

pytestmark = pytest.mark.usefixtures("no_variables")
GRACE = 3600
#: a trainer that waits for a line, joins, and trains until the swarm does not admit it
TRAINER = """
import sys, torch
from hivemind_c import DHT, HivemindPermissionError, Optimizer
address, path = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
dht = DHT([address], start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"], invite=path)
print(dht.peer_id, flush=True)
model = torch.nn.Linear(4, 1)
optimizer = Optimizer(
    dht=dht, run_id="renewed", params=model.parameters(), optimizer=lambda params: torch.optim.SGD(params, lr=0.01),
    target_batch_size=64, batch_size_per_step=16, matchmaking_time=0.5, averaging_timeout=10,
)
told = -1
try:
    while True:
        model(torch.ones(16, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch != told:
            told = optimizer.local_epoch
            print("epoch", told, flush=True)
except HivemindPermissionError as error:
    print("refused", error.cause, error, flush=True)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(_renewal, "STILL_S", 0.1)


def ending_in(key, seconds, before=None):
    """(text, end) of an invitation that counts for some seconds from now."""
    end = int(time.time()) - GRACE + seconds
    return _hivemind_c.invite_new(key.read_text().strip(), end, "lab-3", before)[0], end + GRACE


def write(path, text):
    """Replaces the file, as an editor does."""
    draft = path.with_suffix(".new")
    draft.write_text(text + "\n")
    draft.chmod(0o600)
    draft.replace(path)


def lines_of(program, words, timeout=120):
    """Reads lines up to one that begins with these words."""
    until, line = time.monotonic() + timeout, None
    while time.monotonic() < until and line != "":
        line = program.line()
        if line.startswith(words):
            return line
    pytest.fail(f"{words!r} was not printed: {program.finish()}")


def test_renewed_trainer_goes_on_and_another_one_ends(dht, key, program, tmp_path):
    first = dht(swarm_key=key)
    files = [tmp_path / "renewed", tmp_path / "ends"]
    renewed, ends = [program(TRAINER, *first.get_visible_maddrs(), file, imports=TORCH) for file in files]
    for trainer in (renewed, ends):
        lines_of(trainer, "ready")
    made = [ending_in(key, 20) for _ in files]
    for trainer, file, (text, _) in zip((renewed, ends), files, made):
        write(file, text)
        trainer.say("join")
    peers = [lines_of(trainer, "12D3KooW") for trainer in (renewed, ends)]
    epoch = int(lines_of(renewed, "epoch").split()[1])
    write(files[0], ending_in(key, 7200, made[0][0])[0])
    refusal = lines_of(ends, "refused")
    assert refusal.startswith("refused invitation_ended") and "not in the swarm any more" in refusal
    while time.time() < made[0][1] + 2:  # until no connection of before is of use
        epoch = int(lines_of(renewed, "epoch").split()[1])
    for _ in range(3):
        assert int(lines_of(renewed, "epoch").split()[1]) > epoch
    peer = peers[0]
    assert eventually(lambda: {one.peer_id for one in first._node.peers()} == {peer}, 60)
    assert eventually(lambda: answers(first._node, peer), 60)


def answers(node, peer):
    try:
        return node.echo(peer, b"still here", timeout=10) == b"still here"
    except HivemindError:
        return False


def renewed_file(key, tmp_path, seconds=7200):
    """(path, text) of an invitation in a file, and its renewed text."""
    text = ending_in(key, 3600)[0]
    path = tmp_path / "invitation"
    write(path, text)
    return path, text, ending_in(key, seconds, text)[0]


def told(caplog, words):
    return [one for one in caplog.messages if words in one]


def is_in_use(node, text):
    return node._config["invite"].reveal() == text


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("cut", "it is cut"),
        ("empty", "holds no swarm key and no invitation"),
        ("large", "holds no swarm key and no invitation"),
        ("key", "is not an invitation"),
        ("other swarm", "to another swarm"),
        ("other identity", "ask for the renewed one"),
        ("ended", "ended at"),
        ("link", "has become a link"),
        ("lost link", "has become a link"),
        ("readable", "chmod 600"),
        ("folder", "not a regular file"),
    ],
)
def test_bad_file_is_one_sentence_and_changes_nothing(node, key, tmp_path, caplog, wrong, words):
    path, before, renewed = renewed_file(key, tmp_path)
    caplog.set_level("INFO", "hivemind_c")
    guest = node(invite=path)
    other = tmp_path / "other.key"
    _invitation.new_key(other)
    texts = {
        "cut": renewed[:-3],
        "empty": "",
        "large": "a" * 5000,
        "key": key.read_text(),
        "other swarm": invite(other).text,
        "other identity": ending_in(key, 7200)[0],
        "ended": ending_in(key, -60, before)[0],
    }
    if wrong in texts:
        write(path, texts[wrong])
    elif wrong == "readable":
        write(path, renewed)
        path.chmod(0o644)
    else:
        path.unlink()
        write(tmp_path / "there", renewed)
        if wrong == "folder":
            path.mkdir()
        else:
            path.symlink_to(tmp_path / ("there" if wrong == "link" else "nowhere"))
    assert eventually(lambda: told(caplog, words)), caplog.text
    time.sleep(2.5)
    assert len(told(caplog, "stays in use")) == 1 and is_in_use(guest, before)
    assert renewed[8:40] not in caplog.text and before[8:40] not in caplog.text
    guest.check_admission()
    if wrong == "readable":
        path.chmod(0o600)
    else:
        if wrong == "folder":
            path.rmdir()
        write(path, renewed)
    assert eventually(lambda: is_in_use(guest, renewed)), caplog.text
    assert eventually(lambda: told(caplog, "is renewed: it ends 2"))


def test_file_that_is_gone_changes_nothing(node, key, tmp_path, caplog):
    path, before, renewed = renewed_file(key, tmp_path)
    guest = node(invite=path)
    path.unlink()
    time.sleep(2.5)
    assert not told(caplog, "cannot read") and is_in_use(guest, before)
    write(path, renewed)
    assert eventually(lambda: is_in_use(guest, renewed))


def test_link_from_the_start_is_followed(node, key, tmp_path):
    """As Kubernetes mounts secrets: it replaces the folder behind a link."""
    path, before, renewed = renewed_file(key, tmp_path)
    for number, text in (("1", before), ("2", renewed)):
        (tmp_path / number).mkdir()
        write(tmp_path / number / "invitation", text)
    path.unlink()
    path.symlink_to(tmp_path / "data" / "invitation")
    (tmp_path / "data").symlink_to("1")
    guest = node(invite=path)
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").replace(tmp_path / "data")
    assert eventually(lambda: is_in_use(guest, renewed))


def test_nodes_of_one_dht_renew_together(dht, key, tmp_path):
    path, before, renewed = renewed_file(key, tmp_path)
    first = dht(swarm_key=key)
    guest = dht(first.get_visible_maddrs(), invite=path)
    early = guest.client_node()
    try:
        write(path, renewed)
        assert eventually(lambda: early._renewal._text == guest._node._renewal._text == renewed)
        late = guest.client_node()  # made with what the DHT was given
        try:
            assert is_in_use(late, renewed) and late.wait_for_peers(1, timeout=60)
        finally:
            late.shutdown()
    finally:
        early.shutdown()


def test_file_that_changes_before_the_start_counts(node, key, tmp_path):
    path, before, renewed = renewed_file(key, tmp_path)
    guest = node(invite=path, start=False)
    write(path, renewed)
    guest.start()
    assert eventually(lambda: is_in_use(guest, renewed))


def test_output_of_renew_is_a_renewed_file(node, key, tmp_path, capsys):
    path = tmp_path / "ada.invite"
    for arguments in (["--name", "ada"], ["--renew", "ada", "--days", "30"]):
        assert command.main([str(key), *arguments]) == 0
        write(path, capsys.readouterr().out)
        if arguments[0] == "--name":
            guest = node(invite=path)
    renewed = invite(key, name="ada")
    assert eventually(lambda: is_in_use(guest, renewed.text)) and renewed.ends > time.time() + 29 * 86400


def test_text_and_key_are_not_renewed(node, key, tmp_path):
    path, before, renewed = renewed_file(key, tmp_path)
    assert node(invite=before)._renewal.look() is None
    holder = node(swarm_key=key, invite=path)
    assert holder._renewal is None
    with pytest.raises(HivemindError, match="this node has none"):
        holder.core.renew(renewed)
    with pytest.raises(HivemindError, match="this node has none"):
        node().core.renew(renewed)


def test_renewed_proof_is_published(node, key, tmp_path):
    path, before, renewed = renewed_file(key, tmp_path)
    guest = node(invite=path)
    proof = guest.core.proof()
    write(path, renewed)
    assert eventually(lambda: guest.core.proof() != proof)
    assert guest.core.proved(guest.core.proof(), guest.peer_id) == guest.membership
