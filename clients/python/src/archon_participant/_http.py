"""Requests to the agent."""

import http.client
import json
import socket
import threading
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional
from urllib.parse import quote

from ._errors import AgentError

Document = Dict[str, Any]

#: Longest line of the stream, in bytes.
LINE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True)
class Owner:
    """Owner of a partition, as the coordinators report it. It may have changed since."""

    participant: str
    address: str
    epoch: int
    serves: bool


@dataclass(frozen=True)
class Whereabouts:
    """Partition of a key, and its owner if it has one."""

    table: str
    partition: int
    owner: Optional[Owner]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(agent: str, timeout: float) -> http.client.HTTPConnection:
    """Returns a connection that is not open yet."""
    if agent.startswith("unix:"):
        return _UnixConnection(agent[len("unix:") :], timeout)
    host, _, port = agent.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)


def refusal(response: http.client.HTTPResponse) -> AgentError:
    """Returns the error of a refused request."""
    body = response.read(65_536)
    try:
        error = json.loads(body)["error"]
        return AgentError(str(error["kind"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return AgentError("unreachable", f"the agent answered {response.status} without a document")


class Caller:
    """Requests one at a time over a connection that is kept open. All requests may be repeated."""

    def __init__(self, agent: str, timeout: float) -> None:
        self._agent = agent
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None

    def call(self, method: str, path: str, session: Optional[str], body: Optional[Document] = None) -> Document:
        """Sends a request and returns the document of the answer.

        Raises :class:`AgentError` if it is refused, or gets no answer in time.
        """
        headers = {"archon-session": session} if session else {}
        data = None if body is None else json.dumps(body).encode()
        with self._lock:
            for is_last in (False, True):
                try:
                    if self._connection is None:
                        self._connection = connection(self._agent, self._timeout)
                    self._connection.request(method, path, data, headers)
                    response = self._connection.getresponse()
                    if response.status != 200:
                        raise refusal(response)
                    found = json.loads(response.read())
                    return found if isinstance(found, dict) else {}
                except (OSError, http.client.HTTPException, ValueError) as error:
                    self._close()
                    # The agent closes idle connections.
                    if is_last or isinstance(error, socket.timeout):
                        why = f"the agent at {self._agent} does not answer: {error}"
                        raise AgentError("unreachable", why) from error
        raise AssertionError("the loop returns or raises")

    def where(self, key: bytes, table: str) -> Whereabouts:
        """Returns the owner of a key's partition."""
        found = self.call("GET", f"/v1/where/{quote(key, safe='')}?table={quote(table, safe='')}", None)
        owner = found.get("owner")
        known = Owner(owner["participant"], owner["address"], owner["epoch"], owner["serves"]) if owner else None
        return Whereabouts(found["table"], found["partition"], known)

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Stream:
    """Events of one connection."""

    def __init__(self, agent: str, timeout: float, session: str, position: int) -> None:
        self._connection = connection(agent, timeout)
        try:
            headers = {"archon-session": session, "last-event-id": str(position)}
            self._connection.request("GET", "/v1/events", headers=headers)
            # The response owns the socket from here on.
            self._socket = self._connection.sock
            self._response = self._connection.getresponse()
            if self._response.status != 200:
                raise refusal(self._response)
            # The stream is silent for as long as nothing changes.
            self._socket.settimeout(None)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise AgentError("unreachable", f"the agent at {agent} does not answer: {error}") from error
        except AgentError:
            self._connection.close()
            raise

    def events(self) -> Iterator[Document]:
        """Yields events until the connection ends."""
        try:
            while True:
                line = self._response.readline(LINE_BYTES_MAX)
                if not line.endswith(b"\n"):
                    return
                if line.startswith(b"data: "):
                    event = json.loads(line[len(b"data: ") :])
                    if isinstance(event, dict):
                        yield event
        except (OSError, http.client.HTTPException, ValueError):
            return

    def close(self) -> None:
        """Ends the connection, also while another thread reads."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()
