"""examples/cluster/noticed.sh against stand-ins of the providers' metadata services on loopback."""

import http.server
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from support import eventually

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "examples/cluster/noticed.sh"
PATIENCE = 60.0
TRAINER = """
import pathlib, signal, sys, time
def end(*_):
    print("SIGTERM", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print("trains", flush=True)
time.sleep(120)
"""


class Aws:
    """IMDSv2: 401 without the token that a PUT gives, 404 until there is a notice."""

    def answer(self, method, path, headers, is_noticed):
        if (method, path) == ("PUT", "/latest/api/token"):
            return (200, "a-token") if headers.get("X-aws-ec2-metadata-token-ttl-seconds") else (400, "")
        if method != "GET" or headers.get("X-aws-ec2-metadata-token") != "a-token":
            return 401, ""
        if path != "/latest/meta-data/spot/instance-action" or not is_noticed:
            return 404, "not found"
        return 200, '{"action": "terminate", "time": "2026-11-29T08:22:00Z"}'


class Gcp:
    """403 without its header; FALSE until there is a notice."""

    def answer(self, method, path, headers, is_noticed):
        if headers.get("Metadata-Flavor") != "Google":
            return 403, "TRUE"
        if path != "/computeMetadata/v1/instance/preempted":
            return 404, ""
        return 200, "TRUE" if is_noticed else "FALSE"


class Azure:
    """400 without its header; events of other kinds before the notice."""

    def answer(self, method, path, headers, is_noticed):
        if headers.get("Metadata") != "true" or not path.startswith("/metadata/scheduledevents?api-version="):
            return 400, ""
        kind = "Preempt" if is_noticed else "Freeze"
        return 200, '{"DocumentIncarnation": 1, "Events": [{"EventId": "A", "EventType": "%s"}]}' % kind


@pytest.fixture
def service(request):
    """A provider's metadata service; .noticed announces the end, .answered has (path, status) of each question."""
    provider, noticed, answered = request.param(), threading.Event(), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, text = provider.answer(self.command, self.path, self.headers, noticed.is_set())
            answered.append((self.path, status))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.noticed, server.answered, server.name = noticed, answered, request.param.__name__.lower()
        yield server
        server.shutdown()


@pytest.mark.parametrize("service", [Aws, Gcp, Azure], indirect=True, ids=["aws", "gcp", "azure"])
def test_notice_of_a_provider_becomes_sigterm(service):
    env = {**os.environ, "METADATA": f"http://127.0.0.1:{service.server_port}", "PAUSE": "0.1", "no_proxy": "*"}
    command = ["sh", SCRIPT, service.name, sys.executable, "-c", TRAINER]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert running.stdout.readline() == "trains\n"
        assert eventually(lambda: len(service.answered) >= 8, PATIENCE)
        assert running.poll() is None, "no notice has come"
        assert {status for _, status in service.answered} <= {200, 404}, service.answered[:4]
        service.noticed.set()
        out, _ = running.communicate(timeout=PATIENCE)
        assert out == "SIGTERM\n" and running.returncode == 5
    finally:
        running.kill()
        running.communicate()


def test_unknown_provider_is_named():
    done = subprocess.run(["sh", SCRIPT, "moon", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and "no provider 'moon'" in done.stderr
