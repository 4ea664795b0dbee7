"""Flags that signal handlers may set."""

import threading


class Flag:
    """A flag that is set once, and that threads can wait for.

    A signal handler may set it, also if it interrupts the thread that waits, and may raise there. ``threading.Event`` has
    a lock in Python: a handler that sets the event while that lock is held waits forever, and one that raises may leave the
    lock held.
    """

    def __init__(self) -> None:
        self._is_set = False
        #: Held until the flag is set.
        self._gate = threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Returns whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Sets the flag, and wakes all that wait."""
        self._is_set = True
        self._open()

    def wait(self, seconds: float) -> bool:
        """Waits until the flag is set, at most for this time. Returns whether it is set."""
        if not self._is_set and self._gate.acquire(timeout=min(max(0.0, seconds), threading.TIMEOUT_MAX)):
            # For the next one that waits.
            self._open()
        return self._is_set

    def _open(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:
            # It is open.
            pass
