"""Work of partitions: in order for one partition, on a bounded number of threads for several."""

import logging
import threading
from collections import deque
from typing import Callable, Deque, Dict, List, Tuple

from ._log import log, log_exception

#: Table and number of a partition.
Key = Tuple[str, int]
Work = Callable[[], None]


class WorkQueues:
    """Queues of work, one per partition.

    A thread that takes work wakes the next one if more is ready. Short work of many partitions so stays on one thread: to
    wake a thread for each would take longer than the work. If the process may start no further threads, the running ones
    do all the work.
    """

    def __init__(self, threads_max: int, on_idle: Callable[[], None]) -> None:
        self._threads_max = threads_max
        #: Called on a thread of this object when all work is done.
        self._on_idle = on_idle
        # The lock itself in `with`: a signal handler that raises in the methods of the condition would leave it held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: Work that has not begun, by partition; present while work of the partition runs.
        self._queues: Dict[Key, Deque[Work]] = {}
        #: Partitions with work that no thread has taken.
        self._ready: Deque[Key] = deque()
        self._threads: List[threading.Thread] = []
        self._waiting = 0
        #: A thread was woken or started, and has not looked for work yet.
        self._is_waking = False
        #: The last thread did not start.
        self._is_limited = False
        self._closed = False

    def start(self) -> None:
        """Starts the first thread. Raises :class:`RuntimeError` if the process may start none."""
        with self._lock:
            self._add_thread()

    @property
    def is_idle(self) -> bool:
        """True if no work waits or runs. Does not lock."""
        return not self._queues

    @property
    def threads(self) -> List[threading.Thread]:
        """The threads that were started."""
        with self._lock:
            return list(self._threads)

    def dispatch(self, key: Key, work: Work) -> None:
        """Runs work for a partition after all earlier work for it. Does not wait."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None:
                queue.append(work)
                return
            self._queues[key] = deque([work])
            self._ready.append(key)
            self._wake()

    def close(self) -> None:
        """Ends each thread once no work is ready."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Wakes or starts one thread, with the lock held."""
        if self._is_waking:
            return
        if self._waiting > 0:
            self._is_waking = True
            self._changed.notify()
        elif len(self._threads) < self._threads_max:
            try:
                self._add_thread()
                self._is_waking, self._is_limited = True, False
            except RuntimeError as error:
                # The threads of `start` and later take all work, and each dispatch tries again.
                if not self._is_limited:
                    count = len(self._threads)
                    log(logging.WARNING, "callbacks run on %d threads, as no further one starts: %s", count, error)
                self._is_limited = True

    def _add_thread(self) -> None:
        # A daemon: a callback that does not return does not keep the process from ending.
        name = f"archon-callback-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._waiting += 1
                self._changed.wait_for(lambda: self._ready or self._closed)
                self._waiting -= 1
                self._is_waking = False
                if not self._ready:
                    return
                key = self._ready.popleft()
                if self._ready:
                    self._wake()
            self._run_all(key)

    def _run_all(self, key: Key) -> None:
        """Runs the work of a partition until there is none."""
        while True:
            with self._lock:
                queue = self._queues[key]
                if not queue:
                    del self._queues[key]
                    is_idle = not self._queues
                    break
                work = queue.popleft()
            try:
                work()
            except BaseException:
                # Also `SystemExit`: the other partitions need this thread.
                log_exception("a callback for partition %d of %s failed", key[1], key[0])
        if is_idle:
            self._on_idle()
