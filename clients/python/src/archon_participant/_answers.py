"""Answers to events: one thread sends them, and all that wait travel in one request."""

import json
import os
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import Callable, Deque, Iterator, List, Optional

from ._errors import AgentError
from ._flag import Flag
from ._http import Caller, Document
from ._log import log_exception

#: Most bytes of answers in one request. The agent takes a body of 64 KiB.
REQUEST_BYTES_MAX = 32 * 1024
#: Seconds between attempts to send an answer.
RETRY_SECONDS = 0.1
#: Longest time for which an answer waits for those of callbacks that run, in seconds: the agent reports answers of one
#: request together, at the cost of one commit of the coordinators.
GATHER_SECONDS = 0.001

#: `json.dumps` with an option makes an encoder for each call.
_ENCODER = json.JSONEncoder(allow_nan=False)

#: Handles the outcome of an answer: ``None``, or why it was not taken.
Outcome = Callable[[Optional[AgentError]], None]

_STOPPED = AgentError("unreachable", "the participant has stopped")


class _Unsent:
    """An answer without an outcome."""

    def __init__(self, session: str, body: Document, outcome: Outcome, is_needed: Optional[Callable[[], bool]]) -> None:
        self.session, self.text = session, _ENCODER.encode(body).encode()
        self.outcome = outcome
        #: ``None`` for a single attempt.
        self.is_needed = is_needed


class Answers:
    """Sender of answers, in their order. While one request is on its way, further answers wait, and the next request has
    all of them."""

    def __init__(self, caller: Caller, is_complete: Callable[[], bool] = lambda: True) -> None:
        self._caller = caller
        #: Returns false while further answers are expected soon. Must not wait, nor raise.
        self._is_complete = is_complete
        #: Further answers; ``None`` wakes the thread. Without a lock in Python, so a signal handler may interrupt a thread
        #: that adds one, and stop the participant.
        self._inbox: "SimpleQueue[Optional[_Unsent]]" = SimpleQueue()
        #: Answers without an outcome, for the thread that sends.
        self._unsent: Deque[_Unsent] = deque()
        self._closed = Flag()
        #: Process that sends.
        self._pid: Optional[int] = None

    def start(self) -> threading.Thread:
        """Starts the thread that sends."""
        self._pid = os.getpid()
        thread = threading.Thread(target=self._run, name="archon-answers", daemon=True)
        thread.start()
        return thread

    def send(self, session: str, body: Document, is_needed: Callable[[], bool], outcome: Outcome) -> None:
        """Sends an answer until it has an outcome, or is not needed any longer. Does not wait.

        The thread that sends calls both functions, so they must not wait. If one raises, that is logged, and the answer has
        no outcome.
        """
        self._add(_Unsent(session, body, outcome, is_needed))

    def post(self, session: str, body: Document, within: float) -> None:
        """Sends an answer once, and waits for its outcome.

        Raises :class:`AgentError` if it is refused, or has no outcome in time, and ``ValueError`` for a number that is not
        finite.
        """
        if self._pid != os.getpid():
            # The thread exists in the parent alone.
            raise AgentError("unreachable", "the connection to the agent belongs to the parent of this process")
        ended = Flag()
        errors: List[Optional[AgentError]] = []

        def end(error: Optional[AgentError]) -> None:
            errors.append(error)
            ended.set()

        self._add(_Unsent(session, body, end, None))
        if not ended.wait(within):
            raise AgentError("unreachable", "the agent does not answer earlier requests")
        if errors[0] is not None:
            raise errors[0]

    def flush(self) -> None:
        """Sends the answers that wait for others, as these are complete."""
        self._inbox.put(None)

    def close(self) -> None:
        """Ends the thread. Answers that are left are not sent."""
        self._closed.set()
        self._inbox.put(None)

    def _add(self, unsent: _Unsent) -> None:
        self._inbox.put(unsent)
        if self._closed.is_set():
            self._end_inbox()

    def _run(self) -> None:
        while not self._closed.is_set():
            if not self._unsent:
                self._keep(self._inbox.get())
            until = time.monotonic() + GATHER_SECONDS
            while self._unsent and not self._closed.is_set() and not self._is_complete():
                try:
                    self._keep(self._inbox.get(timeout=max(0.0, until - time.monotonic())))
                except Empty:
                    break
            for unsent in self._arrived():
                self._keep(unsent)
            if self._unsent and not self._closed.is_set() and self._post(self._next()):
                self._closed.wait(RETRY_SECONDS)
        while self._unsent:
            _end(self._unsent.popleft(), _STOPPED)
        self._end_inbox()

    def _keep(self, unsent: Optional[_Unsent]) -> None:
        if unsent is not None:
            self._unsent.append(unsent)

    def _arrived(self) -> Iterator[Optional[_Unsent]]:
        """Takes all that is in the inbox."""
        try:
            while True:
                yield self._inbox.get_nowait()
        except Empty:
            pass

    def _end_inbox(self) -> None:
        """Ends the answers that no thread sends any longer."""
        for unsent in self._arrived():
            if unsent is not None:
                _end(unsent, _STOPPED)

    def _next(self) -> List[_Unsent]:
        """Takes the oldest answers of one session that fit into a request."""
        taken: List[_Unsent] = []
        size = 0
        while self._unsent:
            first = self._unsent[0]
            size += len(first.text) + 1
            if taken and (size > REQUEST_BYTES_MAX or first.session != taken[0].session):
                break
            taken.append(self._unsent.popleft())
        return taken

    def _post(self, answers: List[_Unsent]) -> bool:
        """Sends a request. Returns whether some of its answers are to be sent again."""
        again: List[_Unsent] = []
        for unsent, error in zip(answers, self._outcomes(answers)):
            is_late = error is not None and error.kind in ("unreachable", "overloaded")
            if is_late and _is_needed(unsent):
                again.append(unsent)
            else:
                _end(unsent, error)
        self._unsent.extendleft(reversed(again))
        return bool(again)

    def _outcomes(self, answers: List[_Unsent]) -> List[Optional[AgentError]]:
        """Sends a request. Returns the outcome of each answer."""
        outcomes: List[Optional[AgentError]] = [None] * len(answers)
        try:
            body = b"[" + b",".join(unsent.text for unsent in answers) + b"]"
            answered = self._caller.call_with("POST", "/v1/answers", answers[0].session, body)
            for refused in answered.get("refused", ()):
                error = refused["error"]
                outcomes[refused["index"]] = AgentError(str(error["kind"]), str(error["message"]))
            return outcomes
        except AgentError as error:
            return [error] * len(answers)
        except Exception as error:
            return [AgentError("unreachable", f"the outcome of answers is malformed: {error!r}")] * len(answers)


def _is_needed(unsent: _Unsent) -> bool:
    try:
        return unsent.is_needed is not None and unsent.is_needed()
    except BaseException:
        log_exception("an answer is given up: the check whether it is needed failed")
        return False


def _end(unsent: _Unsent, error: Optional[AgentError]) -> None:
    """Handles the outcome of an answer. The other answers need this thread."""
    try:
        unsent.outcome(error)
    except BaseException:
        log_exception("the outcome of an answer could not be handled: %s", error or "taken")
