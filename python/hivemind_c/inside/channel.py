"""Reports to rank 0 and commands from it, over a gloo group of their own. docs/design/several-gpus.md lists both."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any, Dict, List, NoReturn, Optional

import torch
import torch.distributed as dist

from hivemind_c.inside.errors import PeerError
from hivemind_c.inside.watch import Watch

REPORT_BYTES, COMMAND_BYTES = 256, 2048  #: of the first message; a longer command has a second one
SLICE = datetime.timedelta(seconds=0.2)  #: between two looks at the watch
TIMEOUT = datetime.timedelta(minutes=30)  #: as torch's, for a rank that does not come
ENDLESS = datetime.timedelta(days=365)  #: of the gloo group, because each wait has a limit of its own
POLL_S, POLL_SHARE = 0.005, 32  #: longest pause between two looks at tensors; and as a share of the time waited so far
LOSSES_MAX = 4  #: in one report
Message = Dict[str, Any]


class Channel:
    """The commands and reports of one rank.

    Args:
        watch: Knows whether the other ranks are there.
        group: A gloo group of all ranks (gloo_group).
        timeout: Longest time for a report, and for tensors.
    """

    def __init__(self, watch: Watch, group: Any, timeout: datetime.timedelta = TIMEOUT):
        self.watch, self.group, self._timeout = watch, group, timeout
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._report = torch.zeros(REPORT_BYTES, dtype=torch.uint8)
        self._reports = [torch.zeros_like(self._report) for _ in range(self.world)]
        self._command = torch.zeros(COMMAND_BYTES, dtype=torch.uint8)

    def finish(self, work: Any, what: str) -> None:
        """Waits until tensors have moved. Raises PeerError if a rank is lost meanwhile.

        It never passes a timeout to the work. NCCL counts that from the moment when the work was queued, behind the
        kernels of a backward pass, and aborts the communicator when it is over. The caller's stream waits for tensors
        only once they are there: if a rank is lost, the stream is not behind a kernel that never ends.

        Args:
            work: The work of any backend.
            what: The name of the work, for the error.
        """
        began = looked = time.monotonic()
        while not work.is_completed():
            now = time.monotonic()
            if now - looked >= SLICE.total_seconds():
                looked = now
                self.watch.check()
                self._check_limit(began, what)
            time.sleep(min(POLL_S, (now - began) / POLL_SHARE))
        try:
            work.wait()  # without a timeout: raises the error of the work, or lets the stream follow it
        except RuntimeError as error:
            self._raise_failed(what, str(error))

    def _wait(self, work: Any, what: str, limited: bool = True) -> None:
        """Waits until a message of the gloo group is there. Raises PeerError if a rank is lost meanwhile.

        Args:
            work: The work.
            what: The name of the work, for the error.
            limited: Raise an error after the channel's timeout, too.
        """
        began = time.monotonic()
        while True:
            failed = work.is_completed()  # if so, the wait raises its error
            if (trouble := failure_of(work)) is None:
                return
            if failed:
                self._raise_failed(what, trouble)
            self.watch.check()
            if limited:
                self._check_limit(began, what)

    def _raise_failed(self, what: str, trouble: str) -> NoReturn:
        self.watch.check(patience=2.0)  # it will soon know who is gone
        raise PeerError(f"rank {self.rank}: {what} failed: {trouble}; start the program again")

    def _check_limit(self, began: float, what: str) -> None:
        if time.monotonic() - began > self._timeout.total_seconds():
            raise PeerError(
                f"rank {self.rank}: {what} took longer than {self._timeout}: a rank computes for longer, or waits "
                "for something else; give all ranks the same batches and the same hooks"
            )

    def report(self, **fields: Any) -> Optional[List[Message]]:
        """Sends a report to rank 0. Rank 0, which sends itself one, gets all of them, one for each rank.

        Args:
            **fields: Fields of the report.
        """
        write(self._report, fields)
        to = self._reports if self.rank == 0 else None
        self._wait(dist.gather(self._report, to, dst=0, group=self.group, async_op=True), "a report to rank 0")
        return [read(one) for one in self._reports] if self.rank == 0 else None

    def send(self, name: str, **fields: Any) -> None:
        """Sends a command from rank 0 to all others.

        Args:
            name: Name of the command.
            **fields: Its fields.
        """
        self._broadcast({"name": name, **fields})

    def receive(self) -> Message:
        """Returns the next command of rank 0. It waits as long as rank 0 runs."""
        return self._broadcast(None)

    def _broadcast(self, message: Optional[Message]) -> Message:
        rest = b"" if message is None else write(self._command, message)
        self._wait_for(self._command)
        length = int.from_bytes(bytes(self._command[:4].tolist()), "little")
        if length <= COMMAND_BYTES - 4:
            return message if message is not None else read(self._command)
        whole = torch.frombuffer(bytearray(rest or bytes(length)), dtype=torch.uint8)
        self._wait_for(whole)
        return message if message is not None else json.loads(whole.numpy().tobytes())

    def _wait_for(self, tensor: torch.Tensor) -> None:
        work = dist.broadcast(tensor, 0, group=self.group, async_op=True)
        self._wait(work, "a command of rank 0", limited=self.rank == 0)


def failure_of(work: Any) -> Optional[str]:
    """Waits a while. None: the work of gloo is done. Otherwise the reason why it is not, or that there is none yet."""
    try:
        work.wait(SLICE)
    except RuntimeError as error:
        return str(error)
    return None


def gloo_group() -> Any:
    """A gloo group of all ranks. PeerError: gloo finds no address for them."""
    try:
        return dist.new_group(backend="gloo", timeout=ENDLESS)
    except RuntimeError as error:
        raise PeerError(
            f"the ranks of this machine cannot connect with gloo: {error}; set GLOO_SOCKET_IFNAME=lo, or make the "
            "machine's host name resolve to one of its addresses"
        ) from error


def write(tensor: torch.Tensor, message: Message) -> bytes:
    """Writes a message, its length first, into a tensor as far as it fits, and returns its text."""
    text = json.dumps(message, separators=(",", ":")).encode()
    there = (len(text).to_bytes(4, "little") + text)[: len(tensor)]
    tensor[: len(there)] = torch.frombuffer(bytearray(there), dtype=torch.uint8)
    return text


def read(tensor: torch.Tensor) -> Message:
    data = tensor.numpy().tobytes()
    return json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
