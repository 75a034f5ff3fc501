"""The run in a terminal: a table that rich draws anew with each look."""

from __future__ import annotations

from typing import List, Optional

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hivemind_c._text import printable
from hivemind_c.doctor.troubles import TROUBLES
from hivemind_c.monitor.gather import Snapshot

ROWS = 20


def plain(text: str, most: int = 60) -> str:
    """A stranger's text, fit for a terminal: no control characters, not long."""
    shown = printable(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def number(value: Optional[float], form: str = ",.0f") -> str:
    return "–" if value is None else format(value, form)


def duration(seconds: Optional[float]) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def draw(now: Optional[Snapshot], join: str) -> RenderableType:
    if now is None:
        return Text("looking for the run …", style="dim")
    head = Table.grid(padding=(0, 3))
    head.add_row(
        Text(plain(now.run_id), style="bold"),
        f"swarm epoch {now.epoch:,}",
        ProgressBar(total=now.target, completed=min(now.samples, now.target), width=24),
        f"{now.samples:,}/{now.target:,}, next in {duration(now.eta)}",
        f"{number(now.speed)} samples/s",
        f"{now.num_peers} peers" + (f" ({now.num_clients} clients)" if now.num_clients else ""),
        f"loss {number(now.loss, '.4f')}",
    )
    table = Table(expand=True, header_style="dim", box=None)
    for name in ("peer", "name", "role", "epoch", "samples", "share", "samples/s", "loss", "rounds", "failed", "seen"):
        table.add_column(name, justify="left" if name in ("peer", "name", "role") else "right")
    for view in now.peers[:ROWS]:
        table.add_row(
            view.peer_id[-8:],
            Text(" ".join(filter(None, (plain(view.name, 24), view.membership)))),
            view.role,
            f"{view.epoch:,}",
            f"{view.samples:,}",
            f"{view.share:.0%}",
            number(view.speed, ",.1f"),
            number(view.loss, ".4f"),
            f"{view.rounds:,}",
            f"{view.failures:,}",
            f"{view.age:.0f} s ago",
            style="yellow" if view.doubt or view.differs else None,
        )
    parts: List[RenderableType] = [head, table]
    if len(now.peers) > ROWS:
        parts.append(Text(f"and {len(now.peers) - ROWS} more", style="dim"))
    if now.silent:
        shown = ", ".join(f"{peer[-8:]} {membership}" for peer, membership in now.silent[:ROWS])
        rest = f" and {len(now.silent) - ROWS} more" if len(now.silent) > ROWS else ""
        parts.append(Text(f"members that say nothing of this run: {shown}{rest}", style="dim"))
    if not now.whole:
        parts.append(Text("more peers are coming in …", style="dim"))
    parts += [Text(f"{view.peer_id[-8:]} {view.doubt}", style="yellow") for view in now.peers if view.doubt][:3]
    parts += [Text(f"{view.peer_id[-8:]} {view.loading}", style="cyan") for view in now.peers if view.loading][:3]
    parts += [Text(f"{view.peer_id[-8:]} {view.differs}", style="yellow") for view in now.peers if view.differs][:3]
    parts += [
        Text(f"{view.peer_id[-8:]} {TROUBLES[view.troubles[0]].about}", style="yellow")
        for view in now.peers
        if view.troubles
    ][:3]
    if now.advice:
        parts.append(Text(now.advice, style="cyan"))
    parts += [
        Text(f"swarm epoch {failure.epoch}: {failure.peer_id[-8:]}: {plain(failure.text, 160)}", style="red")
        for failure in now.failures[:5]
    ]
    parts.append(Text(f"join: {join}", style="dim"))
    return Group(*parts)
