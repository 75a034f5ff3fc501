"""The page: what the monitor sees, as JSON and as a page that draws it; and /metrics. Nothing that a peer says is ever
markup.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
import threading
import time
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, List, Optional, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hivemind_c.doctor.troubles import TROUBLES
from hivemind_c.monitor.gather import PeerView, Snapshot
from hivemind_c.monitor.history import Point
from hivemind_c.monitor.prometheus import exposition
from hivemind_c.optim.epoch_record import NUMBERS

PAGE = pathlib.Path(__file__).with_name("page")
ROWS, FAILURES = 200, 50
TYPES = {"index.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def as_json(now: Snapshot) -> Dict[str, Any]:
    """The part of it that the page shows."""
    said = asdict(replace(now, peers=(), failures=now.failures[:FAILURES], silent=now.silent[:ROWS]))
    peers = [_row(view) for view in now.peers[:ROWS]]
    return {**said, "peers": peers, "more_peers": max(0, len(now.peers) - ROWS), "numbers": NUMBERS}


def _row(view: PeerView) -> Dict[str, Any]:
    """The peer's latest epoch is in the order of "numbers", whose names would make most of the answer."""
    last = None if view.last is None else [_short(value) for value in view.last]
    return {**view._asdict(), "last": last, "troubles": [TROUBLES[code].about for code in view.troubles]}


def _short(value: Optional[float]) -> Optional[float]:
    return value if value is None or value == int(value) else float(f"{value:.6g}")


def application(
    look: Callable[[], Optional[Snapshot]], points: Callable[[], Sequence[Point]], join: str, hosts: Sequence[str]
) -> Starlette:
    def page(name: str) -> Any:
        async def answer(request: Request) -> Response:
            return Response((PAGE / name).read_bytes(), media_type=TYPES[name], headers=HEADERS)

        return answer

    latest: List[Any] = [None, b""]  # a snapshot, and what is answered for it

    async def run(request: Request) -> Response:
        now = look()
        if now is None:
            return JSONResponse({"join": join, "waiting": True}, headers=HEADERS)
        if latest[0] is not now:  # who asks more often than the monitor looks costs nothing more
            latest[:] = now, JSONResponse({**as_json(now), "join": join, "waiting": False}).body
        # by this machine's clock: the reader's may be another
        age = b'{"look_age":%.3f,' % max(0.0, time.time() - now.time)
        return Response(age + latest[1][1:], media_type="application/json", headers=HEADERS)

    async def history(request: Request) -> Response:
        try:
            after = float(request.query_params.get("after", "0"))
        except ValueError:
            return PlainTextResponse("after is a time in seconds", 400, headers=HEADERS)
        return JSONResponse([point for point in points() if point.time > after], headers=HEADERS)

    async def metrics(request: Request) -> Response:
        now = look()
        return PlainTextResponse(
            exposition(now) if now else "", media_type="text/plain; version=0.0.4", headers=HEADERS
        )

    routes = [
        Route("/", page("index.html")),
        Route("/page.js", page("page.js")),
        Route("/page.css", page("page.css")),
        Route("/api/run", run),
        Route("/api/history", history),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))])


class Server:
    """Serves the page from a thread of its own. OSError: the port is taken."""

    def __init__(
        self,
        look: Callable[[], Optional[Snapshot]],
        points: Callable[[], Sequence[Point]],
        join: str,
        host: str,
        port: int,
    ):
        loopback = host in ("127.0.0.1", "::1", "localhost")
        # a foreign page cannot read this one by a name that points here
        hosts: List[str] = ["localhost", "127.0.0.1", "[::1]"] if loopback else ["*"]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(64)  # who comes before the thread has begun waits
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno, f"cannot serve the page at {host} port {port}: {error.strerror}; choose another --web"
            ) from None
        self.port = int(self._socket.getsockname()[1])
        shown = f"[{host}]" if ":" in host else "localhost" if host in ("127.0.0.1", "0.0.0.0") else host
        self.address = f"http://{shown}:{self.port}/"
        config = uvicorn.Config(
            application(look, points, join, hosts),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve(sockets=[self._socket])), name="hivemind_c page", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        self._socket.close()
