"""Closed swarms: members find each other, all others get one sentence, and no secret is shown."""

import copy
import os
import pickle
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import _hivemind_c
import hivemind_c
from hivemind_c import (
    DHT,
    HivemindError,
    HivemindPermissionError,
    HivemindValueError,
    Node,
    _invitation,
    _variables,
    get_dht_time,
    invite,
)
from hivemind_c.cli import invite as command
from support import HERE, PATIENCE, eventually

GRACE = 3600


pytestmark = pytest.mark.usefixtures("no_variables")


def ending_in(key, seconds, name=""):
    """The text of an invitation that counts for some seconds from now."""
    text = key.read_text().strip()
    return _hivemind_c.invite_new(text, int(time.time()) - GRACE + seconds, name, None)[0]


def refused(call, cause="not_invited"):
    with pytest.raises(HivemindPermissionError) as caught:
        call()
    assert caught.value.status == "NOT_ADMITTED" and caught.value.cause == cause
    return str(caught.value)


# ---- members and strangers ----


def test_holder_guest_and_client_share_a_dht(dht, key):
    made = invite(key, name="lab-3")
    first = dht(swarm_key=key)
    guest = dht(first.get_visible_maddrs(), invite=made.text)
    client = dht(guest.get_visible_maddrs(), invite=made.text, client_mode=True)
    assert client.store("place", 7, get_dht_time() + 60)
    assert first.get("place", latest=True).value == 7
    assert first.membership == "holder" and guest.membership == f"{made.id} lab-3"


def test_stranger_is_told_why_and_does_not_start(dht, key):
    first = dht(swarm_key=key)
    began = time.monotonic()
    text = refused(lambda: dht(first.get_visible_maddrs(), startup_timeout=10 * PATIENCE))
    assert "this swarm is closed" in text and "INVITE" in text and "holder of its key" in text
    assert time.monotonic() - began < PATIENCE


def test_member_of_another_swarm_does_not_start(dht, key, tmp_path):
    _invitation.new_key(tmp_path / "other.key")
    first = dht(swarm_key=key)
    assert "same swarm key" in refused(lambda: dht(first.get_visible_maddrs(), swarm_key=tmp_path / "other.key"))


def test_guest_does_not_join_an_open_swarm(dht, key):
    first = dht()
    refused(lambda: dht(first.get_visible_maddrs(), invite=invite(key).text))


def test_open_swarm_stays_open(pair):
    assert pair[0].membership == ""
    pair[0].check_admission()


def test_guest_joins_if_one_initial_peer_is_of_its_swarm(dht, key):
    stranger, first = dht(), dht(swarm_key=key)
    both = [*stranger.get_visible_maddrs(), *first.get_visible_maddrs()]
    assert dht(both, invite=invite(key).text).membership.startswith("inv-")


def test_stranger_reads_and_sends_nothing(node, key):
    first = node(swarm_key=key)
    stranger = node(initial_peers=first.addresses)
    refused(lambda: stranger.wait_for_peers(1, timeout=60))
    refused(stranger.check_admission)
    assert first.peers() == [] and stranger.peers() == []
    first.check_admission()


def test_averager_of_a_client_joins_by_the_invitation_of_its_dht(dht, key):
    first = dht(swarm_key=key)
    node = first.client_node()
    try:
        assert node.wait_for_peers(1, timeout=60) and node.membership == "holder"
    finally:
        node.shutdown()


def test_peers_show_memberships_by_their_certificates(node, key):
    first = node(swarm_key=key)
    made = [invite(key, name="lab-1"), invite(key)]
    listens = node(invite=made[0].text, initial_peers=first.addresses)
    dials = node(None, invite=made[1].text, initial_peers=first.addresses, client_mode=True)
    wanted = {listens.peer_id: f"{made[0].id} lab-1", dials.peer_id: made[1].id}
    assert eventually(lambda: {peer.peer_id: peer.membership for peer in first.peers()} == wanted, 60)
    assert eventually(lambda: first.peer_id in {peer.peer_id for peer in dials.peers()}, 60)
    assert {peer.membership for peer in dials.peers() if peer.peer_id == first.peer_id} == {"holder"}
    asking = [sys.executable, "-m", "hivemind_c.cli.dht", "peers", "--swarm_key", str(key), "--initial_peers"]
    listed = subprocess.run([*asking, *first.addresses], capture_output=True, text=True, timeout=120)
    assert listed.returncode == 0, listed.stderr
    lines = [line.split(" ", 2) for line in listed.stdout.splitlines()]
    shown = {peer: membership for peer, _, membership in lines}
    assert shown[first.peer_id] == "holder" and shown[listens.peer_id] == f"{made[0].id} lab-1"


def test_peers_of_an_open_swarm_have_no_membership(pair):
    assert {peer.membership for peer in pair[0].peers()} == {""}


# ---- closed=True ----


def test_closed_peer_without_credentials_does_not_start(key, monkeypatch, caplog):
    monkeypatch.setenv("HIVEMIND_SWARMKEY", str(key))  # misspelt
    for start in (
        lambda: Node(HERE, start=False, closed=True),
        lambda: DHT(host_maddrs=HERE, start=False, closed=True),
        lambda: _invitation.kept(None, None, True),
        lambda: _invitation.of_command(None, None, True),
    ):
        with pytest.raises(HivemindValueError, match="HIVEMIND_SWARMKEY.*is HIVEMIND_SWARM_KEY meant") as caught:
            start()
        assert str(key) not in str(caught.value)
    monkeypatch.delenv("HIVEMIND_SWARMKEY")
    with pytest.raises(HivemindValueError, match="neither a swarm key nor an invitation"):
        Node(HERE, start=False, closed=True)
    assert Node(HERE, start=False, closed=True, swarm_key=key)._config["swarm_key"]
    monkeypatch.setenv("INVITE", invite(key).text)
    assert Node(HERE, start=False, closed=True)._config["invite"]


@pytest.mark.parametrize("command", ["dht", "hub", "monitor"])
def test_command_with_closed_does_not_open(command, tmp_path):
    hub = ["--run_id", "r", "--port", "0", "--identity", str(tmp_path / "key")]
    arguments = {"dht": [], "hub": hub, "monitor": ["--run_id", "r"]}[command]
    ran = subprocess.run(
        [sys.executable, "-m", f"hivemind_c.cli.{command}", "--closed", *arguments],
        env={**os.environ, "HIVEMIND_SWARMKEY": "x"}, capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode != 0 and "neither a swarm key nor an invitation" in ran.stdout + ran.stderr


def test_variable_that_begins_like_ours_is_named_once(monkeypatch, caplog):
    names = ["HIVEMIND_SWARMKEY", "HIVEMIND_INVITE", "INVITATION", "hivemind_swarm_key"]
    for name in [*names, "HIVEMIND_SERVICE_HOST", "HIVEMIND_PORT_31337_TCP", "HIVEMIND_COLORS", "HIVEMIND_NAME"]:
        monkeypatch.setenv(name, "secret-value")
    _variables._told.clear()
    with caplog.at_level("WARNING", "hivemind_c"):
        for _ in range(2):
            Node(HERE, start=False)
    told = [record.getMessage() for record in caplog.records if "reads no such variable" in record.getMessage()]
    assert len(told) == len(names) and all(any(name in text for text in told) for name in names)
    assert "secret-value" not in caplog.text
    found = subprocess.run([sys.executable, "-m", "hivemind_c.cli.doctor"], capture_output=True, text=True, timeout=120)
    assert "HIVEMIND_SWARMKEY" in found.stdout + found.stderr


# ---- ends ----


def test_ended_invitation_does_not_start(key):
    text = refused(lambda: Node(HERE, invite=ending_in(key, -60)), "invitation_ended")
    assert text.count("UTC") == 2 and "set the clock" in text


def test_member_is_refused_when_its_invitation_ends(node, key):
    first = node(swarm_key=key)
    guest = node(invite=ending_in(key, 4), initial_peers=first.addresses)
    assert guest.wait_for_peers(1, timeout=60)
    guest.check_admission()
    for _ in range(600):
        try:
            guest.check_admission()
        except HivemindPermissionError:
            break
        time.sleep(0.1)
    assert "not in the swarm any more" in refused(guest.check_admission, "invitation_ended")
    with pytest.raises(HivemindError):
        guest.echo(first.peer_id, b"?", timeout=10)
    for _ in range(600):
        if not first.peers():
            break
        time.sleep(0.1)
    assert first.peers() == []


# ---- where keys and invitations come from ----


def test_variables_count_where_nothing_is_given(dht, key, monkeypatch):
    made = invite(key)
    monkeypatch.setenv("HIVEMIND_SWARM_KEY", key.read_text())  # as Kubernetes gives it, with the line's end
    first = dht()
    monkeypatch.setenv("HIVEMIND_SWARM_KEY", str(key))
    assert dht(first.get_visible_maddrs()).membership == "holder"
    monkeypatch.delenv("HIVEMIND_SWARM_KEY")
    monkeypatch.setenv("INVITE", made.text)
    assert dht(first.get_visible_maddrs()).membership == made.id


@pytest.mark.parametrize("variable", ["INVITE", "HIVEMIND_SWARM_KEY"])
@pytest.mark.parametrize("value", ["", " ", "\n", "/no/such/file"])
def test_variable_without_a_secret_is_an_error(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(HivemindError, match=variable):
        Node(HERE, start=False)


def test_bad_texts_are_errors_that_do_not_show_them(key, tmp_path):
    text = invite(key).text
    for wrong in (f" {text}", f"{text} ", text[:-1], text[4:], text.replace("hvi1", "hvi9"), f"{text}\n\n", text[:20]):
        with pytest.raises(HivemindError) as caught:
            Node(HERE, invite=wrong, start=False)
        assert text[8:40] not in str(caught.value)
    for wrong in (key.read_text().strip()[:-2], text, 3, b"bytes"):
        with pytest.raises((HivemindError, TypeError)) as caught:
            Node(HERE, swarm_key=wrong, start=False)
        assert text[8:40] not in str(caught.value)
    _invitation.new_key(tmp_path / "other.key")
    with pytest.raises(HivemindValueError, match="two swarms"):
        Node(HERE, invite=text, swarm_key=tmp_path / "other.key", start=False)


@pytest.mark.parametrize("form", ['"{}"', "'{}'", "INVITE={}", 'INVITE="{}"', "export INVITE={}", '"INVITE={}"\n'])
def test_quotes_and_a_name_around_a_secret_are_taken_off(form, key, tmp_path, monkeypatch):
    made = invite(key)
    monkeypatch.setenv("INVITE", form.format(made.text))
    if form.startswith('"INVITE'):
        form = "INVITE={}\n"  # a quote before the name is no form that a shell leaves behind
    file = tmp_path / "invitation"
    file.write_text(form.format(made.text))
    file.chmod(0o600)
    assert Node(HERE, invite=file, start=False)._config["invite"].reveal() == made.text
    assert Node(HERE, invite=form.format(made.text), start=False)._config["invite"].reveal() == made.text
    monkeypatch.setenv("HIVEMIND_SWARM_KEY", f"'{key}'")
    assert Node(HERE, start=False, invite=made.text)._config["swarm_key"].path == str(key)


@pytest.mark.parametrize(
    "form", ["{} # lab-3", "INVITE={} HIVEMIND=1", "--invite {}", "/home/{}", "'{}", "\x07{}", "{}/", "xhvi1{}", "[{}]"]
)
@pytest.mark.parametrize("option, variable", [("invite", "INVITE"), ("swarm_key", "HIVEMIND_SWARM_KEY")])
def test_secret_anywhere_in_a_value_is_not_shown(option, variable, form, key, monkeypatch, capfd, caplog):
    text = invite(key).text if option == "invite" else key.read_text().strip()
    given = form.format(text)
    monkeypatch.setenv(variable, given)
    calls = [
        lambda: Node(HERE, start=False),
        lambda: Node(HERE, start=False, **{option: given}),
        lambda: Node(HERE, start=False, **{option: Path(given)}),
        lambda: Node(HERE, initial_peers=[given]),
        lambda: Node(given),
        lambda: _invitation.of_command(*((None, given) if option == "invite" else (given, None))),
    ]
    for call in calls:
        with pytest.raises((HivemindError, ValueError)) as caught:
            call()
        assert text[8:40] not in f"{caught.value!r}"
    found = subprocess.run([sys.executable, "-m", "hivemind_c.cli.doctor"], capture_output=True, text=True, timeout=120)
    shown = found.stdout + found.stderr + "".join(capfd.readouterr()) + caplog.text
    assert found.stdout + found.stderr and text[8:40] not in shown


def test_file_that_others_may_read_is_refused(key, tmp_path):
    key.chmod(0o640)
    with pytest.raises(HivemindPermissionError, match="chmod 600"):
        Node(HERE, swarm_key=key, start=False)
    for path, content in (("empty", b""), ("binary", b"\xff" * 40), ("large", b"a" * 5000)):
        (tmp_path / path).write_bytes(content)
        (tmp_path / path).chmod(0o600)
        with pytest.raises(HivemindError):
            Node(HERE, swarm_key=tmp_path / path, start=False)
    with pytest.raises(HivemindError, match="regular file"):
        Node(HERE, swarm_key=tmp_path, start=False)


def test_insecure_node_takes_no_key(key):
    with pytest.raises(ValueError, match="insecure"):
        Node(HERE, swarm_key=key, insecure=True)


def test_authorizer_names_the_invitation():
    with pytest.raises(NotImplementedError, match="invite="):
        DHT(start=False, authorizer=object())


# ---- no secret is shown ----


def test_secret_is_in_no_text_and_in_no_pickle(key):
    made = invite(key, name="lab-3")
    node = Node(HERE, invite=made.text, start=False)
    secret = node._config["invite"]
    assert secret.reveal() == made.text and copy.deepcopy(secret) is secret
    for shown in (repr(secret), str(secret), f"{secret}", repr(node), repr(made), repr(node._config)):
        assert made.text[8:] not in shown
    assert made.text.encode()[8:] not in pickle.dumps(secret)
    with pytest.raises(HivemindValueError, match="give it again"):
        pickle.loads(pickle.dumps(secret)).reveal()


# ---- invite() and the command ----


def test_invitation_has_bounds(key):
    made = invite(key, days=0.5, name="a.b-c_1")
    assert made.text.startswith("hvi1") and made.id.startswith("inv-") and len(made.id) == 20
    assert abs(made.ends - time.time() - 43200) < 60 and made.name == "a.b-c_1"
    for wrong in (dict(days=0), dict(days=-1), dict(days=1e9), dict(days="7"), dict(name="a b"), dict(name="x" * 33)):
        with pytest.raises(HivemindValueError):
            invite(key, **wrong)
    with pytest.raises(HivemindValueError, match="there is no swarm key"):
        invite()


def test_command_makes_a_key_once_and_invitations(tmp_path, capsys):
    path = tmp_path / "swarm.key"
    assert command.main(["--new", str(path)]) == 0
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and path.read_text().startswith("hvk1")
    before = path.read_text()
    assert before.strip() not in capsys.readouterr().out
    assert command.main(["--new", str(path)]) == 1
    assert path.read_text() == before and "never overwritten" in capsys.readouterr().err
    assert command.main([str(path), "--days", "7", "--name", "lab-3"]) == 0
    line, note = capsys.readouterr().out.splitlines()
    assert line.startswith("INVITE=hvi1") and note.startswith("# inv-") and " lab-3 ends " in note
    assert _hivemind_c.membership_of(None, line[7:])[0] == f"{note[2:22]} lab-3"
    assert command.main([before.strip()]) == 1
    assert "command line" in capsys.readouterr().err


def test_hub_prints_one_line_that_a_guest_joins_by(key, tmp_path, dht, monkeypatch):
    process = subprocess.Popen(
        [sys.executable, "-m", "hivemind_c.cli.hub", "--run_id", "r", "--host", "127.0.0.1", "--port", "0"]
        + ["--no_open_port", "--history", "none", "--identity", str(tmp_path / "hub.key"), "--swarm_key", str(key)]
        + ["--print_invite"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        line = process.stdout.readline().split()
        words = dict(word.split("=", 1) for word in line)
        assert list(words) == ["INVITE", "INITIAL_PEERS"]
        assert process.stdout.readline().startswith("%env INVITE=hvi1")
        refused(lambda: dht(words["INITIAL_PEERS"]))
        guest = dht(words["INITIAL_PEERS"], invite=words["INVITE"])
        assert guest.membership.endswith(" hub")
    finally:
        process.terminate()
        process.wait(60)


def test_public_names_are_there():
    assert hivemind_c.invite is invite and hivemind_c.Invitation


def test_hub_that_is_refused_ends(node, key, tmp_path):
    first = node(swarm_key=key)
    arguments = ["--run_id", "r", "--host", "127.0.0.1", "--port", "0", "--no_open_port", "--history", "none"]
    arguments += ["--identity", str(tmp_path / "hub.key"), "--initial_peers", first.addresses[0]]
    done = subprocess.run(
        [sys.executable, "-m", "hivemind_c.cli.hub", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 1 and "this swarm is closed" in done.stderr
