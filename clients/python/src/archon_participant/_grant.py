"""Grants, and the permission that all grants of a session share."""

import os
import threading
import weakref
from typing import List, Tuple

from . import _clock
from ._errors import Lost

ACQUIRING, OWNED, RELEASING, LOST = "acquiring", "owned", "releasing", "lost"
#: Stages of a grant that is not lost.
HELD = (ACQUIRING, OWNED, RELEASING)


class Permission:
    """The time until which the service may act.

    An answer to a heartbeat counts from the moment when the heartbeat was sent, and only once all events that the agent
    had sent by then have arrived: a loss may be among them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._received = 0
        self._early: List[Tuple[float, int]] = []
        self.until = 0.0
        _permissions.add(self)

    @property
    def received(self) -> int:
        """Number of the newest event that has arrived."""
        return self._received

    def receive(self, sequence: int) -> None:
        """Handles the arrival of an event, whose effect on the grants has been applied."""
        with self._lock:
            # The end is final.
            if self._received >= 0:
                self._received = sequence
                self._apply()

    def extend(self, until: float, sequence: int) -> None:
        """Handles an answer to a heartbeat."""
        with self._lock:
            self._early.append((until, sequence))
            self._apply()

    def end(self) -> None:
        """Ends the permission for good."""
        with self._lock:
            self._early.clear()
            self.until = 0.0
            self._received = -1

    def _end_after_fork(self) -> None:
        # The lock may be held by a thread that does not exist in the child.
        self._lock = threading.RLock()
        self.end()

    def _apply(self) -> None:
        if self._received < 0:
            self._early.clear()
            return
        now = _clock.now()
        for until, sequence in self._early:
            if sequence <= self._received:
                self.until = max(self.until, until)
        self._early = [early for early in self._early if early[1] > self._received and early[0] > now]


_permissions: "weakref.WeakSet[Permission]" = weakref.WeakSet()


def _end_all_after_fork() -> None:
    """Only the parent receives the losses."""
    for permission in list(_permissions):
        permission._end_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all_after_fork)


class Grant:
    """The right to act for a partition. Call :meth:`check` right before each use.

    The epoch is the fencing token: storage that keeps the highest epoch per ``table_id`` and ``partition``, and refuses
    lower ones, is protected from a former owner.
    """

    def __init__(self, table: str, table_id: int, partition: int, epoch: int, sequence: int, permission: Permission):
        self.table = table
        self.table_id = table_id
        self.partition = partition
        self.epoch = epoch
        self._sequence = sequence
        self._permission = permission
        self._stage = ACQUIRING
        self._stage_lock = threading.RLock()
        #: Set once the service was asked to acquire it.
        self._heard = False

    def check(self) -> int:
        """Returns the epoch if the partition is owned now. Neither waits nor locks.

        Raises :class:`Lost` otherwise, also before ``acquire`` has returned.
        """
        if self.valid_for() <= 0.0:
            raise Lost(f"partition {self.partition} of {self.table} is not owned: it was in epoch {self.epoch}")
        return self.epoch

    def valid_for(self) -> float:
        """Returns the seconds for which the partition is owned unless a heartbeat extends them; 0.0 if it is not."""
        # In this order. An answer that extends the permission counts after the losses before it have set the stage, so
        # a stage that is read later includes them. The clock is last: a thread that was paused between the reads
        # notices the end.
        until = self._permission.until
        if self._stage not in (OWNED, RELEASING):
            return 0.0
        return max(0.0, until - _clock.now())

    def _advance(self, allowed: Tuple[str, ...], stage: str) -> bool:
        """Sets the stage if the present one is allowed. The only place that sets it: LOST is final."""
        with self._stage_lock:
            if self._stage not in allowed:
                return False
            self._stage = stage
            return True

    def __repr__(self) -> str:
        return f"Grant(table={self.table!r}, partition={self.partition}, epoch={self.epoch})"
