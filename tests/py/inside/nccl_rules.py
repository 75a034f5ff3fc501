"""Collectives by NCCL's rules on a machine without one: torch's ProcessGroupNCCL.hpp and Work.hpp document them.

A collective is queued behind the kernels of its device, and runs once those have ended.
- is_completed() does not block. It is also true if the collective has failed.
- wait() returns at once: the caller's stream follows the collective. If that has failed, wait() raises its error.
- wait(timeout) blocks. The timeout counts from the enqueue. When it is over, the error is kept and the communicator is
  aborted: each later collective fails.
"""

import time

import torch.distributed as dist


class Communicator:
    """The common part of the works of a group.

    Args:
        busy: Seconds for which kernels are queued before each collective.
    """

    ReduceOp = dist.ReduceOp

    def __init__(self, busy):
        self.busy, self.aborted = busy, None

    def reduce(self, tensor, dst, group=None, async_op=False, **options):
        return self._queued(dist.reduce, tensor, dst, group, async_op, **options)

    def broadcast(self, tensor, src, group=None, async_op=False):
        return self._queued(dist.broadcast, tensor, src, group, async_op)

    def _queued(self, call, tensor, at, group, async_op, **options):
        assert async_op
        if group is not self:  # a group for host memory
            return call(tensor, at, group=group, async_op=True, **options)
        return Work(self, call(tensor, at, async_op=True, **options))


class Work:
    """A collective that is queued.

    Args:
        communicator: The Communicator.
        inner: The same collective on gloo, which moves the values.
    """

    def __init__(self, communicator, inner):
        self._communicator, self._inner, self._error = communicator, inner, communicator.aborted
        self._queued = time.monotonic()
        self.waited = False

    def is_completed(self):
        busy = time.monotonic() - self._queued < self._communicator.busy
        return self._error is not None or not busy and self._inner.is_completed()

    def wait(self, timeout=None):
        self.waited = True
        if timeout is None:
            while not self.is_completed():  # what follows in the stream comes later, too
                time.sleep(0.001)
        while timeout is not None and not self.is_completed():
            if time.monotonic() - self._queued > timeout.total_seconds():
                self._error = "Work timed out in blocking wait."
                self._communicator.aborted = "NCCL communicator was aborted."
            time.sleep(0.001)
        if self._error is not None:
            raise RuntimeError(self._error)
        self._inner.wait()
        return True


class Done:
    """The work of gloo that is over. `error`: with it."""

    def __init__(self, error=None):
        self._error = error

    def is_completed(self):
        return True

    def wait(self, timeout=None):
        if self._error is not None:
            raise RuntimeError(self._error)


def replace_groups(moving, busy):
    """Lets tensors travel by NCCL's rules, of whatever device they are.

    Args:
        moving: The module hivemind_c.inside.moving.
        busy: Seconds of kernels before each collective.
    """
    communicator = Communicator(busy)
    moving.dist, moving.group_of = communicator, lambda channel, tensor: communicator
    return communicator
