"""Answers to events: those of several threads travel in one request."""

import json
import threading
from typing import List, Optional

from ._errors import AgentError
from ._http import Caller, Document

#: Most bytes of answers in one request. The agent takes a body of 64 KiB.
REQUEST_BYTES_MAX = 32 * 1024


class _Unsent:
    """An answer whose thread waits for the outcome."""

    def __init__(self, session: str, text: bytes) -> None:
        self.session, self.text = session, text
        self.is_done = False
        #: Stays if the thread that sends it is interrupted.
        self.error: Optional[AgentError] = AgentError("unreachable", "the request was interrupted")


class Answers:
    """Sender of answers. While one request is on its way, further answers wait, and the next request has all of them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._unsent: List[_Unsent] = []

    def post(self, session: str, body: Document) -> None:
        """Sends an answer once. Raises :class:`AgentError` if it is refused, or gets no outcome in time, and ``ValueError`` for a
        number that is not finite."""
        self._caller.check_process()
        own = _Unsent(session, json.dumps(body, allow_nan=False).encode())
        with self._lock:
            self._unsent.append(own)
        with self._sending:
            # Another thread may have sent it, or was interrupted with it: then nothing is left.
            while not own.is_done:
                answers = self._next()
                if not answers:
                    break
                self._post(answers)
        if own.error is not None:
            raise own.error

    def _next(self) -> List[_Unsent]:
        """Takes the oldest answers of one session that fit into a request."""
        with self._lock:
            count, size = 0, 0
            for unsent in self._unsent:
                size += len(unsent.text) + 1
                if count and (size > REQUEST_BYTES_MAX or unsent.session != self._unsent[0].session):
                    break
                count += 1
            taken, self._unsent = self._unsent[:count], self._unsent[count:]
        return taken

    def _post(self, answers: List[_Unsent]) -> None:
        errors: List[Optional[AgentError]] = []
        try:
            errors = [None] * len(answers)
            body = b"[" + b",".join(unsent.text for unsent in answers) + b"]"
            outcome = self._caller.call_with("POST", "/v1/answers", answers[0].session, body)
            for refused in outcome.get("refused", ()):
                error = refused["error"]
                errors[refused["index"]] = AgentError(str(error["kind"]), str(error["message"]))
        except AgentError as error:
            errors = [error] * len(answers)
        except (LookupError, TypeError, AttributeError) as error:
            why = f"the outcome of answers is malformed: {error!r}"
            errors = [AgentError("unreachable", why)] * len(answers)
        finally:
            for unsent in answers:
                unsent.is_done = True
        for unsent, outcome_error in zip(answers, errors):
            unsent.error = outcome_error
