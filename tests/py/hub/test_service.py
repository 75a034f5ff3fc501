"""The hub as a service: the unit of systemd and the image start it with options that it has."""

import configparser
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import time

import pytest
from hubs import HUB, Hub, Process

from hivemind_c.cli import hub

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_unit_starts_the_hub_with_options_that_it_has():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    text = (ROOT / "packaging/hivemind-hub.service").read_text()
    unit.read_string(text)
    (example,) = re.findall(r'OPTIONS="(.+?)"', text)
    program, *words = shlex.split(unit["Service"]["ExecStart"].replace("$OPTIONS", example))
    options = hub.parser().parse_args(words)
    hub.check(options)
    assert program.endswith("/hivemind-hub") and options.run_id == ["my_run"]
    state = f"/var/lib/{unit['Service']['StateDirectory']}"
    assert options.checkpoints.startswith(state) and unit["Service"]["Environment"] == f"XDG_STATE_HOME={state}"


def test_unit_of_a_trainer_has_the_paths_of_the_page():
    text = (ROOT / "packaging/hivemind-trainer.service").read_text()
    page = (ROOT / "docs/howto/questions.md").read_text()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    service = unit["Service"]
    assert service["ExecStart"] == "/opt/hivemind/bin/python train.py" and service["Restart"] == "on-failure"
    for path in (service["WorkingDirectory"], "/opt/hivemind", service["EnvironmentFile"]):
        assert f"`{path}`" in page


#: settings of systemd that the unit may have, by section: all of them are those of systemd 252 and later
SETTINGS = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {"EnvironmentFile", "Environment", "ExecStart", "Restart", "RestartSec", "DynamicUser", "StateDirectory"}
    | {"LimitNOFILE", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices"}
    | {"RestrictAddressFamilies", "MemoryDenyWriteExecute", "WorkingDirectory", "TimeoutStopSec"},
    "Install": {"WantedBy"},
}


@pytest.mark.parametrize("name", ["hub", "trainer"])
def test_unit_has_only_settings_of_systemd(name):
    section, seen = None, set()
    for line in (ROOT / f"packaging/hivemind-{name}.service").read_text().splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert name in SETTINGS[section] and equals and value and (section, name) not in seen, line
            seen.add((section, name))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="without systemd the test above checks the settings")
def test_systemd_takes_the_unit(tmp_path):
    text = (ROOT / "packaging/hivemind-hub.service").read_text()
    assert "ExecStart=/opt/hivemind/bin/hivemind-hub " in text
    unit = tmp_path / "hivemind-hub.service"
    unit.write_text(text.replace("/opt/hivemind/bin/hivemind-hub ", f"{shutil.which('true')} "))
    taken = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert taken.returncode == 0 and not taken.stderr
    unit.write_text(unit.read_text().replace("PrivateTmp=yes", "PrivateTmpp=yes"))
    assert "PrivateTmpp" in subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True).stderr


def test_image_starts_the_hub_without_torch():
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.M)
    (stage,) = [stage for stage in stages if stage.startswith("python:3.12-slim-bookworm AS hub\n")]
    program, *words = json.loads(re.search(r"^ENTRYPOINT (.+)$", stage, re.M)[1])
    options = hub.parser().parse_args([*words, "--run_id", "my_run"])
    assert program == "hivemind-hub" and f"VOLUME {options.checkpoints}\n" in stage and "torch" not in stage
    assert len(stages) == 4 and "AS" not in stages[-1].splitlines()[0]  # the trainer's image stays the last one


@pytest.mark.parametrize(
    "words, wrong",
    [
        (["--keep", "0"], "--keep must be 1 or more"),
        (["--state_every", "0"], "--state_every must be 1 or more"),
        (["--bandwidth", "-1"], "--bandwidth must be 0 or more"),
        (["--bandwidth", "nan"], "--bandwidth must be 0 or more"),
        (["--port", "65536"], "--port must be a number from 0 to 65535"),
        (["--web", "70000"], "--web must be a number from 0 to 65535"),
        (["--web", "-1"], "--web must be a number from 0 to 65535"),
        (["--web", "65535", "--run_id", "other"], "for the page of the last run too"),
        (["--run_id", "my_run"], "names one run twice"),
        (["--run_id", "a.b"], 'must not contain "."'),
        (["--memory", "1M"], "--memory must be"),
        (["--memory", "much"], "such as 2G"),
    ],
)
def test_wrong_option_is_one_sentence(words, wrong):
    options = hub.parser().parse_args(["--run_id", "my_run", "--identity", "/nonexistent/key", *words])
    with pytest.raises(ValueError, match=wrong):
        hub.Service(options)


def test_monitor_is_a_hub_without_torch(started, tmp_path):
    options = ["--history", "none", "--identity_path", tmp_path / "key", "--no-live", "--average"]
    here = ["--host_maddrs", "/ip4/127.0.0.1/tcp/0", "--checkpoints", tmp_path / "states", "--memory", "500M"]
    monitor = started(Process(HUB.replace("PROGRAM", "monitor"), "--run_id", "test", *options, *here))
    assert "such as 9.02 million parameters with Adam" in monitor.has_logged("this hub can serve states")
    assert monitor.end() == 0 and (tmp_path / "states").is_dir()


def test_second_hub_with_the_key_file_of_another_is_refused(started, tmp_path):
    first = started(Hub(tmp_path))
    assert first.address
    second = started(Hub(tmp_path))
    assert second.process.wait(60) == 1
    said = second.has_logged("another process has the key")
    assert "give --identity another file" in said and first.process.poll() is None


def test_hub_says_that_an_initial_peer_has_its_key(started, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    first = started(Hub(tmp_path / "a"))
    assert first.address
    shutil.copy(tmp_path / "a/hub.key", tmp_path / "b/hub.key")
    second = started(Hub(tmp_path / "b", "--initial_peers", first.address))
    said = second.has_logged("has the key of this hub")
    assert "give one of both another --identity" in said and "alone until a peer joins it" in said
    second.has_logged("nobody could be asked")
    time.sleep(3)  # it asks several times a second, and finds the records that it keeps itself
    assert sum("nobody could be asked" in line for line in second.log) == 1


def test_hub_in_its_own_list_of_peers_is_no_other_hub():
    own, other = "/ip4/192.0.2.1/tcp/1/p2p/me", "/ip4/192.0.2.2/tcp/1/p2p/me"
    given = [f"{own},/ip4/192.0.2.3/tcp/1/p2p/you", "192.0.2.4:1"]
    assert hub.same_key("me", [own], given) == [] and hub.same_key("me", [own], [*given, other]) == [other]
