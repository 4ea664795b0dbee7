"""The participant: threads that read events, send heartbeats, and run callbacks."""

import logging
import os
import threading
import time
from types import TracebackType
from typing import Callable, Dict, List, Optional, Type, Union

from . import _clock
from ._answers import Answers
from ._errors import AgentError, NotOwned
from ._flag import Flag
from ._grant import ACQUIRING, HELD, LOST, OWNED, RELEASING, Grant, Permission
from ._http import Caller, Document, Stream, Whereabouts, parse, tls_context
from ._log import log, log_exception
from ._work import Key, WorkQueues

#: Seconds between attempts to reach the agent.
RETRY_SECONDS = 0.1
#: Failed attempts in a row before a warning.
UNREACHED_WARNED = 10
#: Time limit of one request, in seconds.
REQUEST_SECONDS = 5.0

#: Most partitions that the warning of an incomplete stop names.
UNRELEASED_SHOWN = 8

#: Longest reason of a refusal, in bytes of UTF-8. The agent takes a body of 64 KiB.
REASON_BYTES_MAX = 1024


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
        self.over = Flag()
        #: Set once this side gives the session up: the agent refuses it.
        self.failed = Flag()

    def unreleased(self) -> str:
        """Describes what a stop waits for."""
        held = [f"partition {partition} of {table}" for table, partition in self.grants.copy()]
        if not held:
            return "the end of the session by the agent"
        more = f" and {len(held) - UNRELEASED_SHOWN} more" if len(held) > UNRELEASED_SHOWN else ""
        return f"the release of {', '.join(held[:UNRELEASED_SHOWN])}{more}"


def _reason(error: BaseException) -> str:
    """Returns the text of an error, in a form that the agent takes."""
    try:
        text = str(error) or type(error).__name__
    except Exception:
        text = type(error).__name__
    return text.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")


class Participant:
    """A service's membership in a cluster, through the agent beside it.

    ``acquire(grant)`` prepares to own a partition: it writes ``grant.epoch`` to storage first, then loads. An exception
    refuses the partition. ``release(grant, reason)`` finishes the work for a partition that is still owned.
    ``lost(grant)`` discards what is in memory: another process may own the partition. For one partition they run one
    after the other, on threads of this object; all are optional.

    Heartbeats come from a thread of their own, so a service whose own threads hang keeps its partitions, unless it
    gives ``is_alive``: that function is called before each heartbeat. While it returns false, raises or does not
    return, no heartbeat is sent: the permission ends, and others get the partitions.

    An agent on another machine needs ``tls_dir``: a directory with ``ca.crt``, ``tls.crt`` and ``tls.key`` of the same
    participant (``archon cert participant``). The files are read for each connection, so they can be renewed.

    An object is started once, in the process that uses it: after a fork the child owns nothing.

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
        is_alive: Optional[Callable[[], bool]] = None,
        callback_threads: int = 8,
        start_within: float = 30.0,
        stop_within: float = 10.0,
        tls_dir: Optional[str] = None,
    ) -> None:
        _, port = parse(agent)
        if tls_dir is not None:
            if not port:
                raise ValueError("a Unix socket has no TLS: leave tls_dir out")
            tls_context(tls_dir)
        self.table = table
        self.agent = agent
        self._tls_dir = tls_dir
        self._acquire, self._release, self._lost = acquire, release, lost
        self._is_alive = is_alive
        self._start_within, self._stop_within = start_within, stop_within
        # Reentrant: a signal handler that stops the participant may interrupt a thread that holds it.
        self._lock = threading.RLock()
        self._session: Optional[_Session] = None
        self._stream: Optional[Stream] = None
        self._closing = Flag()
        self._stopping = Flag()
        #: Ends the pause before the next heartbeat; each pause has another one.
        self._beat = Flag()
        self._connected = Flag()
        self._error: Optional[Exception] = None
        self._pid: Optional[int] = None
        self._answer_caller = Caller(agent, REQUEST_SECONDS, tls_dir)
        self._work = WorkQueues(callback_threads, lambda: self._answers.flush())
        self._answers = Answers(self._answer_caller, lambda: self._work.is_idle)
        self._questions = Caller(agent, REQUEST_SECONDS, tls_dir)
        self._threads: List[threading.Thread] = []
        #: The thread of `_answers`, once it is started.
        self._sender: Optional[threading.Thread] = None

    # Life

    def start(self) -> "Participant":
        """Connects to the agent.

        Raises :class:`AgentError` if that takes too long, or the agent serves other tables; :class:`RuntimeError` if
        the participant was started or stopped before, or the process may start no further threads.
        """
        with self._lock:
            if self._pid is not None or self._stopping.is_set():
                raise RuntimeError("a participant is started once: make another one")
            self._pid = os.getpid()
        try:
            self._start_threads()
            connected = self._connected.wait(self._start_within)
        except BaseException:
            # A thread that does not start, or a signal handler that raises.
            self.stop()
            raise
        if self._session is None or not connected or self._stopping.is_set():
            is_stopped, error = self._stopping.is_set(), self._error
            self._close(time.monotonic() + 1.0)
            if is_stopped:
                raise AgentError("unreachable", "the participant was stopped while it started")
            if error is not None and not isinstance(error, AgentError):
                raise AgentError("invalid", f"the agent at {self.agent} sends no valid events: {error!r}") from error
            if error is None or error.kind == "unreachable":
                why = str(error or f"the agent at {self.agent} does not answer")
                remedy = f"start one: archon participant --table {self.table} --name NAME --address HOST:PORT"
                raise AgentError("unreachable", f"{why}; {remedy}") from error
            raise error
        return self

    def _start_threads(self) -> None:
        self._work.start()
        self._sender = self._answers.start()
        for name, run in (("archon-heartbeats", self._run_heartbeats), ("archon-events", self._run_sessions)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def error(self) -> Optional[Exception]:
        """The reason why there is no session now; ``None`` while there is one, and before the first attempt.

        The package tries again by itself. A service may report this error in its health check.
        """
        return self._error

    def stop(self, within: Optional[float] = None) -> bool:
        """Releases everything and disconnects. Returns whether everything was released in time.

        Returns at most a second after that time, also if a callback does not return: its thread ends with the process. A
        signal handler may call it.
        """
        if self._is_forked():
            return False
        limit = self._stop_within if within is None else within
        deadline = time.monotonic() + limit
        # No session begins after this one.
        self._stopping.set()
        self._connected.set()
        session, released = self._session, False
        if session is not None and not session.over.is_set():
            try:
                self._send_stop(session, min(deadline, time.monotonic() + 1.0))
                is_over = session.over.wait(deadline - time.monotonic())
                released = is_over and not session.failed.is_set()
                if not is_over:
                    log(logging.WARNING, "the stop ends after %.1f s without %s", limit, session.unreleased())
            except AgentError as error:
                log(logging.WARNING, "the stop did not reach the agent: %s", error)
        self._close(max(deadline, time.monotonic() + 0.5))
        return released

    def __enter__(self) -> "Participant":
        return self.start()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()

    def _is_forked(self) -> bool:
        """Returns true in a child of the process that has started: the connections and threads are the parent's."""
        return self._pid is not None and self._pid != os.getpid()

    def _close(self, deadline: float) -> None:
        self._stopping.set()
        self._closing.set()
        self._beat.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.shut()
        self._join(self._threads, deadline)
        if self._session is not None:
            self._end(self._session, "the participant has stopped")
        # No answer has an effect after the end of the session.
        self._answers.close()
        self._answer_caller.close()
        self._questions.close()
        self._work.close()
        workers = self._work.threads
        self._join(workers if self._sender is None else [*workers, self._sender], deadline)

    def _join(self, threads: List[threading.Thread], deadline: float) -> None:
        for thread in threads:
            # A callback may stop the participant.
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    # Grants

    def grant(self, partition: int, table: Optional[str] = None) -> Grant:
        """Returns the grant of a partition that accepts new work. Call it for each piece of work.

        Raises :class:`NotOwned`.
        """
        session = self._session
        table = self.table if table is None else table
        grant = None
        if session is not None and not self._is_forked():
            # Without the lock, here and in `owned`: the thread of the events needs it for the releases of a stop, and a
            # signal handler that stops the participant may interrupt this thread.
            grant = session.grants.get((table, partition))
        if grant is None or grant._stage != OWNED or grant.valid_for() <= 0.0:
            raise NotOwned(f"partition {partition} of {table} is not owned here")
        return grant

    def owned(self) -> List[Grant]:
        """Returns all grants that accept new work now."""
        session = self._session
        if session is None or self._is_forked():
            return []
        grants = session.grants.copy().values()
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
            self._answers.post(session.name, body, 2 * REQUEST_SECONDS)

    def publish_load(self, bytes_stored: int, operations_per_second: int) -> None:
        """Sets the load that ``archon node list`` shows."""
        session = self._session
        if session is not None:
            body = {
                "answer": "load",
                "bytes_stored": bytes_stored,
                "operations_per_second": operations_per_second,
            }
            self._answers.post(session.name, body, 2 * REQUEST_SECONDS)

    # Events

    def _run_sessions(self) -> None:
        unreached = 0
        while not self._stopping.is_set():
            wait = RETRY_SECONDS
            try:
                # A session without heartbeats would end at once.
                if self._may_beat():
                    self._run_session()
                    unreached = 0
            except AgentError as error:
                is_new = str(error) != str(self._error)
                self._error = error
                if error.kind == "busy":
                    log(logging.DEBUG, "no session yet: %s", error)
                elif error.kind == "unreachable":
                    # The agent may start at the same time.
                    unreached += 1
                    level = logging.WARNING if unreached == UNREACHED_WARNED else logging.DEBUG
                    log(level, "no session, trying again: %s", error)
                else:
                    wait = 10 * RETRY_SECONDS
                    log(logging.ERROR if is_new else logging.DEBUG, "the agent refuses: %s", error)
                    # Ends `start`.
                    self._connected.set()
            except Exception as error:
                wait = 10 * RETRY_SECONDS
                self._error = error
                log_exception("a session has ended by an error; a new one begins")
            self._closing.wait(wait)

    def _run_session(self) -> None:
        """Runs one session to its end."""
        session: Optional[_Session] = None
        try:
            while True:
                stream = self._connect(session)
                if stream is None:
                    return
                try:
                    for event in stream.events():
                        if event.get("event") == "hello":
                            session = session or self._begin(event)
                        elif session is not None:
                            self._take(session, event)
                finally:
                    with self._lock:
                        self._stream = None
                    stream.close()
                if session is None or session.over.is_set() or session.failed.is_set() or self._closing.is_set():
                    return
        finally:
            if session is not None:
                self._end(session, "the connection to the agent has ended")

    def _open(self, session: str, position: int) -> Stream:
        stream = Stream(self.agent, REQUEST_SECONDS, self._tls_dir)
        with self._lock:
            self._stream = stream
        if self._closing.is_set():
            stream.shut()
        try:
            stream.open(session, position)
        except BaseException:
            with self._lock:
                self._stream = None
            stream.close()
            raise
        return stream

    def _connect(self, session: Optional[_Session]) -> Optional[Stream]:
        """Connects to a new session, or again to the present one.

        Gives the latter up once the permission has ended: the agent then has given up as well.
        """
        if session is None:
            return self._open("new", 0)
        while not self._closing.is_set() and not session.failed.is_set():
            try:
                return self._open(session.name, session.permission.received)
            except AgentError as error:
                if error.kind != "unreachable" or _clock.now() > session.permission.until + session.lease:
                    return None
                self._closing.wait(RETRY_SECONDS / 4)
        return None

    def _abandon(self, session: _Session, error: Exception) -> None:
        """Gives a session up that the agent does not understand. The thread of the events ends it."""
        session.permission.end()
        session.failed.set()
        with self._lock:
            # After its end, error and stream are of the next session.
            is_present = self._session is session and not session.over.is_set()
            if is_present:
                self._error = error
            stream = self._stream if is_present else None
        if stream is not None:
            stream.shut()
        log(logging.ERROR, "session %s ends: the agent refuses an answer: %s", session.name, error)

    def _begin(self, hello: Document) -> _Session:
        if hello.get("version") != 1:
            raise AgentError("invalid", f"the agent speaks version {hello.get('version')} of the protocol, not 1")
        session = _Session(hello)
        if self.table not in session.tables:
            served = ", ".join(session.tables)
            raise AgentError("not_found", f"the agent serves {served}, not {self.table}")
        with self._lock:
            self._session, self._error = session, None
        self._connected.set()
        self._beat.set()
        return session

    def _take(self, session: _Session, event: Document) -> None:
        """Applies an event at once; callbacks run later. An unknown event is from a newer agent, and has no effect."""
        kind, sequence = event.get("event"), event.get("sequence")
        received = session.permission.received
        if session.over.is_set() or not isinstance(sequence, int) or sequence <= received or received < 0:
            return
        if sequence != received + 1:
            # A loss may be missing.
            raise ValueError(f"event {sequence} follows event {received}")
        if kind == "ended":
            self._end(session, str(event.get("reason", "")))
            return
        key = (str(event.get("table")), int(event.get("partition", -1)))
        if kind == "acquire":
            table_id, epoch = int(event["table_id"]), int(event["epoch"])
            grant = Grant(key[0], table_id, key[1], epoch, sequence, session.permission)
            with self._lock:
                if session.over.is_set():
                    return
                session.grants[key] = grant
            self._work.dispatch(key, lambda: self._run_acquire(session, grant))
        elif kind == "release":
            with self._lock:
                held = session.grants.get(key)
            # The answer to `acquired` may be on its way: ACQUIRING.
            if held is not None and held._advance((ACQUIRING, OWNED), RELEASING):
                reason, owned = str(event["reason"]), held
                self._work.dispatch(key, lambda: self._run_release(session, owned, sequence, reason))
        elif kind == "lost":
            self._lose(session, key)
        session.permission.receive(sequence)

    def _lose(self, session: _Session, key: Key) -> None:
        with self._lock:
            grant = session.grants.pop(key, None)
        # After `released` there is nothing to lose.
        if grant is not None and grant._advance(HELD, LOST):
            self._work.dispatch(key, lambda: self._run_lost(grant))

    def _end(self, session: _Session, reason: str) -> None:
        session.permission.end()
        with self._lock:
            is_first = not session.over.is_set()
            session.over.set()
            keys = list(session.grants)
        for key in keys:
            self._lose(session, key)
        if is_first:
            self._error = self._error or AgentError("ended", f"session {session.name} has ended: {reason}")
            log(logging.INFO, "session %s has ended: %s", session.name, reason)

    # Heartbeats

    def _may_beat(self) -> bool:
        try:
            return self._is_alive is None or self._is_alive()
        except BaseException:
            log_exception("is_alive failed: no heartbeat is sent")
            return False

    def _run_heartbeats(self) -> None:
        caller = Caller(self.agent, REQUEST_SECONDS, self._tls_dir)
        wait = 0.05
        while not self._closing.is_set():
            self._beat.wait(wait)
            # Before the session is read: a flag that is set later is the new one.
            self._beat = Flag()
            session = self._session
            if session is None or session.over.is_set():
                wait = 0.05
                continue
            wait = session.heartbeat_every
            # One answer that does not come leaves time for two more attempts. Each has a connection of its own.
            caller.timeout = min(REQUEST_SECONDS, max(0.01, session.lease / 3))
            try:
                if not self._may_beat():
                    continue
                sent, body = _clock.now(), {"seen": session.permission.received}
                answer = caller.call("POST", "/v1/heartbeat", session.name, body)
                session.permission.extend(sent + answer["valid_for_ms"] / 1000.0, answer["sequence"])
            except AgentError as error:
                wait = min(wait, session.heartbeat_every / 4)
                log(logging.DEBUG, "a heartbeat failed: %s", error)
            except Exception:
                log_exception("the answer to a heartbeat is not valid")
        caller.close()

    # Callbacks

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
        except BaseException as error:
            reason = _reason(error)
            log(logging.WARNING, "partition %d of %s is refused: %s", grant.partition, grant.table, reason)
            self._forget(session, grant)
            self._answer(session, {**body, "answer": "refused", "reason": reason})
            return

        def taken() -> None:
            # A loss or a release may have come meanwhile.
            grant._advance((ACQUIRING,), OWNED)
            self._beat.set()

        self._answer(session, body, taken)

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

    def _answer(self, session: _Session, body: Document, taken: Callable[[], None] = lambda: None) -> None:
        """Sends an answer, again and again until the agent has it or the session has ended. Does not wait.

        Then calls ``taken``, unless it is refused.
        """

        def outcome(error: Optional[AgentError]) -> None:
            if error is None:
                taken()
            elif error.kind in ("stale", "ended", "unreachable"):
                # The partition was lost meanwhile: that event comes or has come. Or the session has ended.
                log(logging.DEBUG, "an answer was too late: %s", error)
            else:
                # The agent would wait for this answer forever.
                self._abandon(session, error)

        self._answers.send(session.name, body, lambda: not (session.over.is_set() or session.failed.is_set()), outcome)

    def _send_stop(self, session: _Session, until: float) -> None:
        """Sends `stop` before the other answers. Raises :class:`AgentError` if that takes too long."""
        while not session.over.is_set() and not session.failed.is_set():
            try:
                body: Document = {"answer": "stop"}
                self._answer_caller.call("POST", "/v1/answers", session.name, body, until - time.monotonic())
                return
            except AgentError as error:
                if error.kind == "ended":
                    return
                if error.kind != "unreachable" or time.monotonic() > until:
                    raise
            session.over.wait(RETRY_SECONDS)
