"""The tutorial of two PCs and a rented GPU, as it says: the PCs behind home routers, the GPU behind its cloud's NAT."""

import pathlib
import re

import pytest
import torch
from street import Street, latest
from support import eventually
from test_tutorials import UNTIL, promised

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/tutorial/two-pcs-and-a-rented-gpu.md"
HOMES = {"one router": 'net.home("amber", "blue")', "two routers": 'net.home("amber")\nnet.home("blue")'}
ALL = "rented", "amber", "blue"
SHOWN_ADDRESS, ADDRESS = "203.0.113.7", "198.18.0.1"  #: the page's, and the first one in the namespaces


@pytest.fixture(params=HOMES, ids=lambda homes: homes.replace(" ", "_"))
def street(request, tmp_path):
    machines = f'net.cloud("rented")\n{HOMES[request.param]}'
    one = Street(tmp_path, PAGE, machines, HIVEMIND_COMMAND="python train.py")
    (program,) = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text())
    program = program.replace("EPOCHS = 300\n", UNTIL.replace('"until"', '"../until"'))
    program = program.replace("target_batch_size=16384", "target_batch_size=4096")
    assert "class Until" in program and "=4096" in program and "Save this as `train.py`" in PAGE.read_text()
    for name in ALL:
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(program)
    yield one
    one.process.kill()
    one.process.wait()


def command(word):
    """The command of the page that has this word, as it is typed in the namespaces."""
    (line,) = re.findall(rf"(?m)^.*{word}.*$", "\n".join(re.findall(r"(?ms)^```bash\n(.*?)^```$", PAGE.read_text())))
    return line.replace(SHOWN_ADDRESS, ADDRESS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_pcs_and_a_rented_gpu_end_with_equal_weights(street):
    street.type("rented", command("hivemind-invite"))
    street.ends("rented")
    street.type("rented", command("train.py"))
    street.shows("rented", "the rented machine")
    (line,) = re.findall(r"(?m)^INVITE=\S+ INITIAL_PEERS=\S+", street.text("rented"))
    assert f"/ip4/{ADDRESS}/tcp/31337/" in line
    for name in "amber", "blue":
        street.type(name, f"{line} python train.py")
    for name in ALL:
        street.wait_for(name, lambda text: latest(text, "peers") == 3 and latest(text, "global_epoch") > 3)
        street.shows(name, "all machines")
    street.interrupt("blue")
    for name in "rented", "amber":
        street.wait_for(name, lambda text: latest(text, "peers") == 2)
        street.shows(name, "the others")
    street.type("blue", f"{line} python train.py")
    for name in ALL:
        street.wait_for(name, lambda text: latest(text, "peers") == 3)
    near = max(latest(street.text(name), "global_epoch") for name in ALL) + 8
    (street.folder / "near").write_text(str(near))
    (street.folder / "near").rename(street.folder / "until")
    (last,) = promised(PAGE, "last output of all machines")
    ends = set()
    for name in ALL:
        street.wait_for(name, lambda text: re.search(last, text))
        ends.add(re.search(r"swarm epoch (\d+) weights (\w+)", street.text(name)).groups())
    assert len(ends) == 1, ends
    files = [street.folder / name / "wave.ckpt" for name in ALL]
    kept = [torch.load(file)["state_dict"] for file in files if eventually(file.exists, 10)]
    assert len(kept) == 3 and all(torch.equal(one[name], kept[0][name]) for one in kept for name in kept[0])
