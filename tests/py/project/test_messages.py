"""The page of errors and warnings: made from the source, whole, and in plain English."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def messages():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import messages
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return messages


def test_c_messages_are_read_with_their_status_and_level(messages, tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    source = tmp_path / "a.c"
    source.write_text("""
/* hv_fail(err, HV_OK, "a comment is none"); */
  return hv_fail(err, x ? y(1, 2) : HV_INVALID, "%s has " LIMITS " (%" PRIu64 " bytes): \\"x\\"", name, f(a, b));
  hv_fail_by(err, HV_IO, HV_CAUSE_CLOCK, "the clock of %s is off", who);
  hv_env_log(env, HV_LOG_WARN, "peers", "lost", "lost peer %s: "
             "%s", name, text);
  hv_env_log(env, HV_LOG_INFO, "peers", "met", "peer %s came", name);
""")
    assert [tuple(one)[:3] for one in messages.of_c(source)] == [
        ("as the cause", "", '... has ... (... bytes): "x"'),
        ("IO", "", "the clock of ... is off"),
        ("WARNING", "hivemind_c.peers", "lost peer ...: ..."),
    ]


def test_python_messages_are_read_with_their_class_and_logger(messages, tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    source = tmp_path / "a.py"
    source.write_text(
        'import logging\nlogger = logging.getLogger("hivemind_c.x")\nraise ValueError(f"{a} is no " + "number")\nlogger.warning("lost %s", 3)\nlogger.info("no")\n'
    )
    assert {tuple(one)[:3] for one in messages.of_python(source)} == {
        ("ValueError", "", "... is no number"),
        ("WARNING", "hivemind_c.x", "lost ..."),
    }


def test_page_has_the_messages_of_the_tree(messages):
    page = messages.page()
    assert page.count("\n| ") > 400
    for known in ("| '...' has no port: expected ... | MALFORMED |", "| WARNING | hivemind_c.peers |"):
        assert known in page, known


def test_messages_begin_with_their_subject(messages):
    odd = [one for one in messages.messages() if re.match(r"(who|whom|whose|whoever)\b", one.text, re.I)]
    assert odd == []
