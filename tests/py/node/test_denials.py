"""Denials and the record of invitations: they hold from all holders of the key, and survive restarts and bad files."""

import os
import re
import stat
import subprocess
import sys
import time

import pytest

import _hivemind_c
from hivemind_c import HivemindPermissionError, HivemindValueError, Node, _invitation, invite
from hivemind_c._denials import Denials, denied_in
from hivemind_c._issued import Record
from hivemind_c.cli import invite as command
from support import HERE, eventually

#: a key and its list, as a release before this one wrote them; the key is of no use
OLDER_KEY = "hvk1Rrw2rNThhzuUitCxRR1uG8Fn_wqmcR2m__Jaol4Ici-XsUu3"
OLDER_LIST = (
    "hvd1ttkLawAAAAAAAAAAAAAAqgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAC7AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAbsSzU"
    "K_noJPRT7OXpyebznWD9qufb9oAJmUn3EzFZ7jbpL4M7A68HjJ7-7dw-3LGKzA4UbPWPElrdCzDaqzACQ=="
)


pytestmark = pytest.mark.usefixtures("no_variables")


def copy_of(key, folder):
    """A copy of the key, as another holder has it on another machine."""
    folder.mkdir()
    path = folder / "swarm.key"
    path.write_text(key.read_text())
    path.chmod(0o600)
    return path


def is_refused(node):
    try:
        node.check_admission()
    except HivemindPermissionError as error:
        return error.cause == "denied"
    return False


def refused(call, cause="denied"):
    with pytest.raises(HivemindPermissionError) as caught:
        call()
    assert caught.value.status == "NOT_ADMITTED" and caught.value.cause == cause


def denied_by(node):
    return set(denied_in(node._node.denials()[0]))


def kept_in(path):
    return set(denied_in(Denials(_invitation.Secret(path.read_text().strip(), str(path)), None).read()))


def test_denied_invitation_ends_all_that_came_by_it(node, key, capsys, tmp_path):
    first = node(swarm_key=key)
    bad, good = invite(key, name="bad"), invite(key, name="good")
    kept = tmp_path / "kept.identity"
    members = [node(invite=good.text, initial_peers=first.addresses, identity_path=kept)]
    denied = [node(invite=bad.text, initial_peers=first.addresses) for _ in range(2)]
    for one in [*members, *denied]:
        assert one.wait_for_peers(3, timeout=60)
    arguments = [str(key), "--deny", bad.id, "--initial_peers", *members[0].addresses]
    assert command.main(arguments) == 0, capsys.readouterr().err
    assert "cannot be denied" in capsys.readouterr().out
    assert all(eventually(lambda one=one: is_refused(one)) for one in denied)
    ids = {one.peer_id for one in denied}
    assert eventually(lambda: not any(ids & {peer.peer_id for peer in one.peers()} for one in (first, *members)))
    assert first.echo(members[0].peer_id, b"still here", timeout=30) == b"still here"
    # a new peer with the same invitation, and a member that starts again
    late = node(invite=bad.text, initial_peers=first.addresses)
    refused(lambda: late.wait_for_peers(1, timeout=60), "denied")
    file = tmp_path / "kept.identity.denied"
    assert eventually(file.exists)
    assert eventually(lambda: file.read_bytes() == (tmp_path / "swarm.key.denied").read_bytes())


def test_peer_is_denied_by_its_id(node, key, caplog):
    caplog.set_level("INFO", "hivemind_c")
    first = node(swarm_key=key)
    made = invite(key)
    bad = node(invite=made.text, initial_peers=first.addresses)
    good = node(invite=made.text, initial_peers=first.addresses)
    for one in (bad, good):
        assert one.wait_for_peers(2, timeout=60)
    assert command.main([str(key), "--deny", bad.peer_id, "--initial_peers", *good.addresses]) == 0
    assert eventually(lambda: is_refused(bad), 30)
    assert good.echo(first.peer_id, b"1", timeout=30) == b"1"
    assert eventually(lambda: "list of denials has come: 1 new, 1 in all" in caplog.text, 30)
    told = {record.levelname for record in caplog.records if "list of denials has come" in record.getMessage()}
    assert told == {"INFO"}  # nobody has to do anything


def test_holder_is_not_denied(node, key):
    first = node(swarm_key=key)
    second = node(swarm_key=key, initial_peers=first.addresses)
    assert second.wait_for_peers(1, timeout=60)
    assert command.main([str(key), "--deny", second.peer_id, "--initial_peers", *first.addresses]) == 0
    assert second.echo(first.peer_id, b"1", timeout=30) == b"1"


def test_list_beside_the_key_counts_at_the_next_start(node, key, capsys):
    bad = invite(key)
    assert command.main([str(key), "--deny", bad.id]) == 1
    assert "only peers that read this file have it" in capsys.readouterr().err
    first = node(swarm_key=key)
    late = node(invite=bad.text, initial_peers=first.addresses)
    refused(lambda: late.wait_for_peers(1, timeout=60))


def test_running_holder_reads_the_changed_list(node, key, capsys):
    made = invite(key)
    first = node(swarm_key=key)
    command.main([str(key), "--deny", made.id])
    assert eventually(lambda: made.id in denied_by(first))
    command.main([str(key), "--allow", made.id])
    assert eventually(lambda: made.id not in denied_by(first))


# ---- a denial holds from each holder, until it is taken back ----


def test_denials_of_two_holders_both_hold(node, key, tmp_path):
    laptop = copy_of(key, tmp_path / "laptop")
    x, y = invite(key, name="x"), invite(key, name="y")
    hub = node(swarm_key=key)
    assert command.main([str(laptop), "--deny", x.id, "--initial_peers", *hub.addresses]) == 0
    assert command.main([str(key), "--deny", y.id, "--initial_peers", *hub.addresses]) == 0
    assert denied_by(hub) == {x.id, y.id}
    assert eventually(lambda: kept_in(key) == {x.id, y.id})
    for made in (x, y):
        late = node(invite=made.text, initial_peers=hub.addresses)
        refused(lambda late=late: late.wait_for_peers(1, timeout=60))
    assert command.main([str(laptop), "--allow", y.id, "--initial_peers", *hub.addresses]) == 0
    assert denied_by(hub) == {x.id}
    assert node(invite=y.text, initial_peers=hub.addresses).wait_for_peers(1, timeout=60)


def run_command(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "hivemind_c.cli.invite", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INITIAL_PEERS": ""},
    )


def test_five_denials_at_once_are_all_kept(key):
    ids = [f"inv-{number:016x}" for number in range(5)]
    running = [run_command(key, "--deny", number) for number in ids]
    assert all("only peers that read this file" in one.communicate(timeout=120)[1] for one in running)
    assert kept_in(key) == set(ids)


def test_two_invitations_of_a_name_at_once_are_one(key):
    running = [run_command(key, "--name", "ada") for _ in range(4)]
    assert len({one.communicate(timeout=120)[0] for one in running}) == 1 and len(Record(secret_of(key)).read()) == 1


def secret_of(path):
    return _invitation.Secret(path.read_text().strip(), str(path))


def test_command_fails_if_a_named_peer_lacks_the_list(node, key, capsys, monkeypatch):
    monkeypatch.setattr(command, "WAIT_S", 3)
    hub = node(swarm_key=key)
    nobody = "/ip4/127.0.0.1/tcp/9"
    assert command.main([str(key), "--deny", "inv-0000000000000001", "--initial_peers", *hub.addresses, nobody]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert command.main([str(key), "--deny", "inv-0000000000000001", "--initial_peers", *hub.addresses]) == 0


@pytest.mark.parametrize("wrong", ["empty", "cut", "damaged", "other swarm", "large"])
def test_unreadable_list_is_an_error_and_stays(key, tmp_path, capsys, wrong):
    command.main([str(key), "--deny", "inv-0000000000000001"])
    path = tmp_path / "swarm.key.denied"
    whole = path.read_bytes()
    if wrong == "other swarm":
        _invitation.new_key(tmp_path / "other.key")
        command.main([str(tmp_path / "other.key"), "--deny", "inv-0000000000000001"])
        bad = (tmp_path / "other.key.denied").read_bytes()
    else:
        other = b"B" if whole[90:91] == b"A" else b"A"
        damaged = whole[:90] + other + whole[91:]
        bad = {"empty": b"", "cut": whole[:60], "damaged": damaged, "large": b"A" * (1 << 19)}[wrong]
    path.write_bytes(bad)
    capsys.readouterr()
    with pytest.raises(HivemindValueError, match="cannot read the list of denials"):
        Node(HERE, swarm_key=key)
    assert command.main([str(key), "--deny", "inv-0000000000000002"]) == 1
    err = capsys.readouterr().err
    assert "cannot read the list of denials" in err and len(err.splitlines()) == 1 and path.read_bytes() == bad


def test_node_does_not_overwrite_an_unreadable_list(node, key, tmp_path):
    first = node(swarm_key=key)
    (tmp_path / "swarm.key.denied").write_bytes(b"")
    other = copy_of(key, tmp_path / "other")
    assert command.main([str(other), "--deny", "inv-0000000000000001", "--initial_peers", *first.addresses]) == 0
    time.sleep(2.5)
    assert (tmp_path / "swarm.key.denied").read_bytes() == b"" and denied_by(first) == {"inv-0000000000000001"}


def test_list_of_an_older_release_is_converted(node, key, tmp_path):
    key.write_text(OLDER_KEY + "\n")
    (tmp_path / "swarm.key.denied").write_text(OLDER_LIST + "\n")
    first = node(swarm_key=key)
    assert denied_by(first) == {"inv-00000000000000aa", "inv-00000000000000bb"}
    command.main([str(key), "--deny", "inv-00000000000000cc"])
    assert (tmp_path / "swarm.key.denied").read_text().startswith("hvd2") and len(kept_in(key)) == 3


@pytest.mark.parametrize("hours", [-24, 24])
def test_wrong_clock_loses_no_denial(key, monkeypatch, hours):
    made = invite(key, days=0.5, name="short")
    command.main([str(key), "--deny", "short"])
    shifted = time.time() + hours * 3600
    monkeypatch.setattr(time, "time", lambda: shifted)
    command.main([str(key), "--deny", "inv-0000000000000001"])
    assert kept_in(key) == {made.id, "inv-0000000000000001"}


# ---- lists survive restarts ----


def test_mounted_key_keeps_its_list_in_the_state_folder(node, key, tmp_path, monkeypatch):
    """A secret that Kubernetes mounts: its folder takes no files. /proc is such a folder also for root."""
    folder = os.open(key, os.O_RDONLY)
    mounted = f"/proc/{os.getpid()}/fd/{folder}"
    first = node(swarm_key=mounted)
    assert command.main([str(key), "--deny", "inv-0000000000000001", "--initial_peers", *first.addresses]) == 0
    kept = tmp_path / "state/hivemind_c"
    assert eventually(lambda: list(kept.glob("swarm-*.denied")))
    first.shutdown()
    assert denied_by(node(swarm_key=mounted)) == {"inv-0000000000000001"}
    os.close(folder)


def test_key_as_text_keeps_its_list_in_the_state_folder(node, key, monkeypatch):
    text = key.read_text()
    first = node(swarm_key=text)
    assert command.main([str(key), "--deny", "inv-0000000000000001", "--initial_peers", *first.addresses]) == 0
    time.sleep(1.5)
    first.shutdown()
    assert eventually(lambda: denied_by(node(swarm_key=text)) == {"inv-0000000000000001"}, 5)


def test_holder_that_can_keep_no_list_says_so(node, key, monkeypatch, caplog):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    node(swarm_key=key.read_text())
    assert "can keep no list of denials" in caplog.text


# ---- a name has one invitation, and the record knows it ----


def test_name_has_one_invitation_until_it_ends(key):
    made = invite(key, name="ada")
    assert invite(key, name="ada", days=3).text == made.text and invite(key, name="bob").id != made.id
    assert len({invite(key).id for _ in range(3)}) == 3
    lines = Record(secret_of(key)).read()
    assert [one.name for one in lines] == ["ada", "bob", "", "", ""] and all("@" in one.by for one in lines)
    ended = invite(key, name="eve", days=1e-6)
    time.sleep(1.2)
    assert invite(key, name="eve").id != ended.id


def test_renewed_invitation_has_its_id_and_another_end(key, capsys):
    made = invite(key, name="ada", days=1)
    assert command.main([str(key), "--renew", "ada", "--days", "30"]) == 0
    line, note = capsys.readouterr().out.splitlines()
    assert note.startswith(f"# {made.id} ada ends ") and line != f"INVITE={made.text}"
    assert invite(key, name="ada").text == line[7:] and _hivemind_c.membership_of(None, line[7:])[0] == f"{made.id} ada"
    assert command.main([str(key), "--renew", "nobody"]) == 1
    assert "no invitation of that name" in capsys.readouterr().err


def test_list_shows_issued_and_denied_invitations(key, capsys):
    ada, bob = invite(key, name="ada"), invite(key, name="bob")
    command.main([str(key), "--deny", "bob"])
    command.main([str(key), "--deny", "inv-00000000000000aa"])
    capsys.readouterr()
    assert command.main([str(key), "--list"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"{ada.id} ada ends \S+ \S+ UTC, issued \S+ \S+ UTC by \S+@\S+\n", out)
    assert re.search(rf"{bob.id} bob .*, denied\n", out) and "inv-00000000000000aa - denied\n" in out
    assert ada.text not in out


def test_denied_name_gets_nothing_until_it_is_allowed(node, key, capsys):
    made = invite(key, name="ada")
    hub = node(swarm_key=key)
    assert command.main([str(key), "--deny", "ada", "--initial_peers", *hub.addresses]) == 0
    for renew in (False, True):
        with pytest.raises(HivemindValueError, match="--allow ada"):
            invite(key, name="ada", renew=renew)
    assert command.main([str(key), "--allow", "ada", "--initial_peers", *hub.addresses]) == 0
    assert f"# allowed {made.id} again" in capsys.readouterr().out
    assert invite(key, name="ada").id == made.id and denied_by(hub) == set()
    assert command.main([str(key), "--allow", "ada"]) == 1 and "the list has none" in capsys.readouterr().err
    for wrong in ("inv-12", "12D3KooW", "nobody", "INV-0000000000000000"):
        assert command.main([str(key), "--deny", wrong]) == 1 and "is no ID of an invitation" in capsys.readouterr().err


def test_files_beside_the_key_are_the_owners_alone(key, tmp_path):
    before = os.umask(0)
    try:
        invite(key, name="ada")
        command.main([str(key), "--deny", "ada"])
    finally:
        os.umask(before)
    for name in ("swarm.key.denied", "swarm.key.issued"):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600


@pytest.mark.parametrize("wrong", ["empty", "cut", "newer", "readable", "link"])
def test_bad_record_is_an_error_and_stays(key, tmp_path, capsys, wrong):
    invite(key, name="ada")
    path = tmp_path / "swarm.key.issued"
    whole = path.read_bytes()
    if wrong == "readable":
        path.chmod(0o644)
    elif wrong == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        newer = whole.replace(b'"version": 1', b'"version": 2')
        path.write_bytes({"empty": b"", "cut": whole[:-20], "newer": newer}[wrong])
    there = path.read_bytes()
    assert command.main([str(key), "--name", "bob"]) == 1
    err = capsys.readouterr().err
    assert "record of invitations" in err and len(err.splitlines()) == 1 and path.read_bytes() == there


def test_full_disk_loses_nothing(key, tmp_path):
    invite(key, name="ada")
    command.main([str(key), "--deny", "inv-0000000000000001"])
    before = {name: (tmp_path / name).read_bytes() for name in ("swarm.key.denied", "swarm.key.issued")}
    program = (
        "import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "from hivemind_c.cli import invite\nsys.exit(invite.main(sys.argv[1:]))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for arguments in (["--name", "bob"], ["--deny", "inv-0000000000000002"]):
        line = [sys.executable, "-c", program, str(key), *arguments]
        done = subprocess.run(line, capture_output=True, text=True, env=env)
        assert done.returncode == 1 and "cannot keep the " in done.stderr and len(done.stderr.splitlines()) == 1
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert sorted(one.name for one in tmp_path.glob("swarm.key*")) == [
        "swarm.key",
        "swarm.key.denied",
        "swarm.key.issued",
        "swarm.key.lock",
    ]


# ---- the output of the command as a file ----


def test_output_of_the_command_is_a_file_with_an_invitation(node, key, tmp_path, capsys):
    first = node(swarm_key=key)
    command.main([str(key), "--name", "ada"])
    path = tmp_path / "ada.invite"
    path.write_text(capsys.readouterr().out)
    path.chmod(0o600)
    assert node(invite=path, initial_peers=first.addresses).membership.endswith(" ada")
