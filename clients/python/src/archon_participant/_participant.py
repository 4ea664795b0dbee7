"""The participant: threads that read events, send heartbeats, and run callbacks."""

import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Callable, Deque, Dict, List, Optional, Tuple, Type, Union

from . import _clock
from ._errors import AgentError, NotOwned
from ._grant import ACQUIRING, HELD, LOST, OWNED, RELEASING, Grant, Permission
from ._http import Caller, Document, Stream, Whereabouts

_log = logging.getLogger("archon_participant")

#: Seconds between attempts to reach the agent.
RETRY_SECONDS = 0.1
#: Time limit of one request, in seconds.
REQUEST_SECONDS = 5.0

Key = Tuple[str, int]


class _Session:
    """One session with the agent."""

    def __init__(self, hello: Document) -> None:
        self.name = str(hello["session"])
        self.participant = str(hello["participant"])
        self.tables: List[str] = list(hello["tables"])
        self.lease = hello["service_lease_for_ms"] / 1000.0
        self.heartbeat_every = hello["heartbeat_every_for_ms"] / 1000.0
        self.permission = Permission()
        self.grants: Dict[Key, Grant] = {}
        self.over = threading.Event()
        self.reason = ""


class Participant:
    """A service's membership in a cluster, through the agent beside it.

    ``acquire(grant)`` prepares to own a partition: it writes ``grant.epoch`` to storage first, then loads. An exception
    refuses the partition. ``release(grant, reason)`` finishes the work for a partition that is still owned.
    ``lost(grant)`` discards what is in memory: another process may own the partition. For one partition they run one
    after the other, on threads of this object; all are optional.

    If the agent restarts, or the session ends otherwise, everything is lost, and a new session begins by itself.
    """

    def __init__(
        self,
        table: str,
        agent: str = "127.0.0.1:7700",
        *,
        acquire: Optional[Callable[[Grant], None]] = None,
        release: Optional[Callable[[Grant, str], None]] = None,
        lost: Optional[Callable[[Grant], None]] = None,
        callback_threads: int = 8,
        start_within: float = 30.0,
        stop_within: float = 10.0,
    ) -> None:
        self.table = table
        self.agent = agent
        self._acquire, self._release, self._lost = acquire, release, lost
        self._callback_threads = callback_threads
        self._start_within, self._stop_within = start_within, stop_within
        self._lock = threading.Lock()
        self._session: Optional[_Session] = None
        self._stream: Optional[Stream] = None
        self._closing = threading.Event()
        self._stopping = threading.Event()
        self._beat = threading.Event()
        self._connected = threading.Event()
        self._refused: Optional[AgentError] = None
        self._answers = Caller(agent, REQUEST_SECONDS)
        self._questions = Caller(agent, REQUEST_SECONDS)
        self._threads: List[threading.Thread] = []
        self._executor: Optional[ThreadPoolExecutor] = None
        self._work: Dict[Key, Deque[Callable[[], None]]] = {}

    # Life

    def start(self) -> "Participant":
        """Connects to the agent.

        Raises :class:`AgentError` if that takes too long, or the agent serves other tables.
        """
        self._executor = ThreadPoolExecutor(self._callback_threads, thread_name_prefix="archon-callback")
        for name, run in (("archon-events", self._run_sessions), ("archon-heartbeats", self._run_heartbeats)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        if not self._connected.wait(self._start_within) or self._refused:
            self._close()
            raise self._refused or AgentError("unreachable", f"the agent at {self.agent} does not answer")
        return self

    def stop(self, within: Optional[float] = None) -> bool:
        """Releases everything and disconnects. Returns whether everything was released in time."""
        # No session begins after this one.
        self._stopping.set()
        session, released = self._session, False
        if session is not None and not session.over.is_set():
            try:
                self._answer(session, {"answer": "stop"}, until=time.monotonic() + 1.0)
                released = session.over.wait(self._stop_within if within is None else within)
            except AgentError as error:
                _log.warning("the agent was not told of the stop: %s", error)
        self._close()
        return released

    def __enter__(self) -> "Participant":
        return self.start()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()

    def _close(self) -> None:
        self._stopping.set()
        self._closing.set()
        self._beat.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        for thread in self._threads:
            thread.join()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self._answers.close()
        self._questions.close()

    # Grants

    def grant(self, partition: int, table: Optional[str] = None) -> Grant:
        """Returns the grant of a partition that accepts new work. Call it for each piece of work.

        Raises :class:`NotOwned`.
        """
        session = self._session
        table = self.table if table is None else table
        grant = None
        if session is not None:
            with self._lock:
                grant = session.grants.get((table, partition))
        if grant is None or grant._stage != OWNED or grant.valid_for() <= 0.0:
            raise NotOwned(f"partition {partition} of {table} is not owned here")
        return grant

    def owned(self) -> List[Grant]:
        """Returns all grants that accept new work now."""
        session = self._session
        if session is None:
            return []
        with self._lock:
            grants = list(session.grants.values())
        return [grant for grant in grants if grant._stage == OWNED and grant.valid_for() > 0.0]

    def where(self, key: Union[str, bytes], table: Optional[str] = None) -> Whereabouts:
        """Asks the agent for the owner of a key's partition."""
        key = key.encode() if isinstance(key, str) else key
        return self._questions.where(key, self.table if table is None else table)

    def drop(self, grant: Grant) -> None:
        """Gives a partition up: ``release`` is called, and then another participant gets it if there is one."""
        session = self._session
        if session is not None:
            body = {"answer": "drop", "table": grant.table, "partition": grant.partition, "epoch": grant.epoch}
            self._answers.call("POST", "/v1/answers", session.name, body)

    def publish_load(self, bytes_stored: int, operations_per_second: int) -> None:
        """Sets the load that ``archon node list`` shows."""
        session = self._session
        if session is not None:
            body = {
                "answer": "load",
                "bytes_stored": bytes_stored,
                "operations_per_second": operations_per_second,
            }
            self._answers.call("POST", "/v1/answers", session.name, body)

    # Events

    def _run_sessions(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_session()
            except AgentError as error:
                if error.kind not in ("unreachable", "busy"):
                    _log.error("the agent refuses: %s", error)
                    self._refused = error
                    self._connected.set()
                    return
                _log.debug("no session yet: %s", error)
            self._closing.wait(RETRY_SECONDS)

    def _run_session(self) -> None:
        """Runs one session to its end."""
        stream = Stream(self.agent, REQUEST_SECONDS, "new", 0)
        session: Optional[_Session] = None
        try:
            while True:
                self._watch(stream)
                for event in stream.events():
                    if event.get("event") == "hello":
                        session = session or self._begin(event)
                    elif session is not None:
                        self._take(session, event)
                self._watch(None)
                stream.close()
                if session is None or session.over.is_set() or self._closing.is_set():
                    return
                again = self._reconnect(session)
                if again is None:
                    return
                stream = again
        finally:
            self._watch(None)
            stream.close()
            if session is not None:
                self._end(session, "the connection to the agent has ended")

    def _watch(self, stream: Optional[Stream]) -> None:
        with self._lock:
            self._stream = stream
        if stream is not None and self._closing.is_set():
            stream.close()

    def _reconnect(self, session: _Session) -> Optional[Stream]:
        """Connects again. Gives up once the permission has ended: the agent then has given up as well."""
        while not self._closing.is_set():
            try:
                return Stream(self.agent, REQUEST_SECONDS, session.name, session.permission.received)
            except AgentError as error:
                if error.kind != "unreachable" or _clock.now() > session.permission.until + session.lease:
                    return None
                self._closing.wait(RETRY_SECONDS / 4)
        return None

    def _begin(self, hello: Document) -> _Session:
        if hello.get("version") != 1:
            raise AgentError("invalid", f"the agent speaks version {hello.get('version')} of the protocol, not 1")
        session = _Session(hello)
        if self.table not in session.tables:
            served = ", ".join(session.tables)
            raise AgentError("not_found", f"the agent serves {served}, not {self.table}")
        self._session = session
        self._connected.set()
        self._beat.set()
        return session

    def _take(self, session: _Session, event: Document) -> None:
        """Applies an event at once; callbacks run later. An unknown event is from a newer agent, and has no effect."""
        kind, sequence = event.get("event"), event.get("sequence")
        if not isinstance(sequence, int) or sequence <= session.permission.received:
            return
        if kind == "ended":
            self._end(session, str(event.get("reason", "")))
            return
        key = (str(event.get("table")), int(event.get("partition", -1)))
        if kind == "acquire":
            table_id, epoch = int(event["table_id"]), int(event["epoch"])
            grant = Grant(key[0], table_id, key[1], epoch, sequence, session.permission)
            with self._lock:
                session.grants[key] = grant
            self._dispatch(key, lambda: self._run_acquire(session, grant))
        elif kind == "release":
            with self._lock:
                held = session.grants.get(key)
            # The answer to `acquired` may be on its way: ACQUIRING.
            if held is not None and held._advance((ACQUIRING, OWNED), RELEASING):
                reason, owned = str(event["reason"]), held
                self._dispatch(key, lambda: self._run_release(session, owned, sequence, reason))
        elif kind == "lost":
            self._lose(session, key)
        session.permission.receive(sequence)

    def _lose(self, session: _Session, key: Key) -> None:
        with self._lock:
            grant = session.grants.pop(key, None)
        # After `released` there is nothing to lose.
        if grant is not None and grant._advance(HELD, LOST):
            self._dispatch(key, lambda: self._run_lost(grant))

    def _end(self, session: _Session, reason: str) -> None:
        session.permission.end()
        with self._lock:
            keys = list(session.grants)
        for key in keys:
            self._lose(session, key)
        if not session.over.is_set():
            session.reason = reason
            _log.info("session %s has ended: %s", session.name, reason)
        session.over.set()

    # Heartbeats

    def _run_heartbeats(self) -> None:
        caller = Caller(self.agent, REQUEST_SECONDS)
        while not self._closing.is_set():
            session = self._session
            every = 0.05 if session is None else session.heartbeat_every
            self._beat.wait(every)
            self._beat.clear()
            if session is None or session.over.is_set():
                session = self._session
            if session is None or session.over.is_set():
                continue
            sent, body = _clock.now(), {"seen": session.permission.received}
            try:
                answer = caller.call("POST", "/v1/heartbeat", session.name, body)
                session.permission.extend(sent + answer["valid_for_ms"] / 1000.0, answer["sequence"])
            except AgentError as error:
                _log.debug("a heartbeat failed: %s", error)
        caller.close()

    # Callbacks

    def _dispatch(self, key: Key, work: Callable[[], None]) -> None:
        """Runs work for a partition after all earlier work for it."""
        with self._lock:
            queue = self._work.get(key)
            if queue is not None:
                queue.append(work)
                return
            self._work[key] = deque([work])
        assert self._executor is not None
        self._executor.submit(self._run_work, key)

    def _run_work(self, key: Key) -> None:
        while True:
            with self._lock:
                queue = self._work[key]
                if not queue:
                    del self._work[key]
                    return
                work = queue.popleft()
            try:
                work()
            except Exception:
                _log.exception("a callback for partition %d of %s failed", key[1], key[0])

    def _run_acquire(self, session: _Session, grant: Grant) -> None:
        if grant._stage != ACQUIRING:
            return
        grant._heard = True
        body: Document = {
            "answer": "acquired",
            "sequence": grant._sequence,
            "table": grant.table,
            "partition": grant.partition,
            "epoch": grant.epoch,
        }
        try:
            if self._acquire is not None:
                self._acquire(grant)
        except Exception as error:
            _log.warning("partition %d of %s is refused: %s", grant.partition, grant.table, error)
            self._forget(session, grant)
            self._answer(session, {**body, "answer": "refused", "reason": str(error)})
            return
        taken = self._answer(session, body)
        if taken:
            # A loss or a release may have come meanwhile.
            grant._advance((ACQUIRING,), OWNED)
        self._beat.set()

    def _run_release(self, session: _Session, grant: Grant, sequence: int, reason: str) -> None:
        try:
            if self._release is not None and grant._stage == RELEASING:
                self._release(grant, reason)
        finally:
            # From here on nothing is touched.
            self._forget(session, grant)
            body: Document = {
                "answer": "released",
                "sequence": sequence,
                "table": grant.table,
                "partition": grant.partition,
                "epoch": grant.epoch,
            }
            self._answer(session, body)

    def _run_lost(self, grant: Grant) -> None:
        # A service that was not asked to acquire need not hear of the loss.
        if self._lost is not None and grant._heard:
            self._lost(grant)

    def _forget(self, session: _Session, grant: Grant) -> None:
        key = (grant.table, grant.partition)
        grant._advance(HELD, LOST)
        with self._lock:
            if session.grants.get(key) is grant:
                del session.grants[key]

    def _answer(self, session: _Session, body: Document, until: Optional[float] = None) -> bool:
        """Sends an answer, again and again until the agent has it or the session has ended.

        Returns whether it was taken.
        """
        while not session.over.is_set():
            try:
                self._answers.call("POST", "/v1/answers", session.name, body)
                return True
            except AgentError as error:
                if error.kind in ("stale", "ended"):
                    # The partition was lost meanwhile: that event comes or has come.
                    _log.debug("an answer was too late: %s", error)
                    return False
                if error.kind != "unreachable" or (until is not None and time.monotonic() > until):
                    raise
            session.over.wait(RETRY_SECONDS)
        return False
