"""Requests to the agent."""

import http.client
import json
import os
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple
from urllib.parse import quote

from ._errors import AgentError
from ._exchange import Exchange

Document = Dict[str, Any]

#: Longest silence of a stream, in seconds.
SILENCE_SECONDS = 30.0

#: Longest line of the stream, in bytes.
LINE_BYTES_MAX = 1024 * 1024

#: Most bytes of one read of the stream.
READ_BYTES_MAX = 64 * 1024


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


def parse(agent: str) -> Tuple[str, int]:
    """Returns host and port of an agent; port 0 for a socket, with its path as host.

    Raises :class:`ValueError`.
    """
    if agent.startswith("unix:") and len(agent) > len("unix:"):
        return agent[len("unix:") :], 0
    host, _, digits = agent.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not host or not 0 < port < 65536:
        raise ValueError(f"the address of the agent is HOST:PORT or unix:/path, not {agent!r}")
    return host.strip("[]"), port


class _TlsConnection(http.client.HTTPSConnection):
    """A connection to an agent, whose certificate must name the host and be of a participant."""

    def connect(self) -> None:
        super().connect()
        certificate: Document = dict(self.sock.getpeercert() or {})
        names = certificate.get("subjectAltName", ())
        if not any(kind == "URI" and name.startswith("archon:///participant/") for kind, name in names):
            self.close()
            raise ssl.SSLError(f"the certificate at {self.host} is not of a participant")


def tls_context(tls_dir: str) -> ssl.SSLContext:
    """Returns the credentials in a directory with ca.crt, tls.crt and tls.key, as `archon cert participant` writes it.

    Raises :class:`OSError`, also for files that are no credentials.
    """
    context = ssl.create_default_context(cafile=os.path.join(tls_dir, "ca.crt"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(os.path.join(tls_dir, "tls.crt"), os.path.join(tls_dir, "tls.key"))
    return context


def connection(agent: str, timeout: float, tls_dir: Optional[str] = None) -> http.client.HTTPConnection:
    """Returns a connection that is not open yet. It reads the credentials, so renewed ones are used from then on.

    Raises :class:`OSError` if the credentials cannot be used.
    """
    host, port = parse(agent)
    if not port:
        return _UnixConnection(host, timeout)
    if tls_dir is None:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    return _TlsConnection(host, port, timeout=timeout, context=tls_context(tls_dir))


def refusal(response: http.client.HTTPResponse) -> AgentError:
    """Returns the error of a refused request."""
    return error_of(response.status, response.read(65_536))


def error_of(status: int, body: bytes) -> AgentError:
    """Returns the error in the body of a refusal."""
    try:
        error = json.loads(body)["error"]
        return AgentError(str(error["kind"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return AgentError("unreachable", f"the agent answered {status} without a document")


class Caller:
    """Requests one at a time over a connection that is kept open. All requests may be repeated."""

    def __init__(self, agent: str, timeout: float, tls_dir: Optional[str] = None) -> None:
        self._agent = agent
        self._tls_dir = tls_dir
        # Reentrant: a signal handler may send a request while it interrupts one. The latter finds its connection closed, and is
        # repeated.
        self._lock = threading.RLock()
        self._exchange: Optional[Exchange] = None
        self._closed = False
        #: Process that opened the connection.
        self._pid: Optional[int] = None
        #: Time limit of a request, in seconds.
        self.timeout = timeout

    def call(
        self,
        method: str,
        path: str,
        session: Optional[str],
        body: Optional[Document] = None,
        within: Optional[float] = None,
    ) -> Document:
        """Sends a request and returns the document of the answer.

        Raises :class:`AgentError` if it is refused, or gets no answer in time.
        """
        data = None if body is None else json.dumps(body).encode()
        return self.call_with(method, path, session, data, within)

    def call_with(
        self,
        method: str,
        path: str,
        session: Optional[str],
        data: Optional[bytes],
        within: Optional[float] = None,
    ) -> Document:
        """As :meth:`call`, with an encoded body."""
        self.check_process()
        timeout = self.timeout if within is None else max(0.01, min(self.timeout, within))
        try:
            if not self._lock.acquire(timeout=timeout):
                raise AgentError("unreachable", f"the agent at {self._agent} does not answer earlier requests")
            for is_last in (False, True):
                try:
                    if self._closed:
                        raise AgentError("unreachable", "the participant has stopped")
                    if self._exchange is not None and not self._exchange.is_kept:
                        self._drop()
                    if self._exchange is None:
                        self._pid = os.getpid()
                        self._exchange = Exchange(connection(self._agent, timeout, self._tls_dir))
                    status, body = self._exchange.send(method, path, session, data, timeout)
                    if status != 200:
                        raise error_of(status, body)
                    found = json.loads(body)
                    return found if isinstance(found, dict) else {}
                except (OSError, http.client.HTTPException, ValueError) as error:
                    self._drop()
                    # The agent closes idle connections.
                    if is_last or isinstance(error, socket.timeout):
                        why = f"the agent at {self._agent} does not answer: {error}"
                        raise AgentError("unreachable", why) from error
        finally:
            try:
                self._lock.release()
            except RuntimeError:
                # The lock was not acquired: in time, or before a signal handler raised.
                pass
        raise AssertionError("the loop returns or raises")

    def check_process(self) -> None:
        """Raises :class:`AgentError` in a child of the process that opened the connection."""
        if self._pid is not None and self._pid != os.getpid():
            raise AgentError("unreachable", "the connection to the agent belongs to the parent of this process")

    def where(self, key: bytes, table: str) -> Whereabouts:
        """Returns the owner of a key's partition."""
        found = self.call("GET", f"/v1/where/{quote(key, safe='')}?table={quote(table, safe='')}", None)
        owner = found.get("owner")
        known = Owner(owner["participant"], owner["address"], owner["epoch"], owner["serves"]) if owner else None
        return Whereabouts(found["table"], found["partition"], known)

    def close(self) -> None:
        """Ends the connection for good, also while another thread waits for an answer."""
        self._closed = True
        open_now = self._exchange
        if open_now is not None:
            _shut(open_now.socket)
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    def _drop(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


def _shut(open_now: Optional[socket.socket]) -> None:
    """Wakes the thread that reads. That thread closes the socket."""
    try:
        if open_now is not None:
            # Below TLS: its state belongs to the thread that reads.
            socket.socket.shutdown(open_now, socket.SHUT_RDWR)
    except OSError:
        pass


class Stream:
    """Events of one connection. One thread opens, reads and closes it."""

    def __init__(self, agent: str, timeout: float, tls_dir: Optional[str] = None) -> None:
        self._agent = agent
        self._timeout = timeout
        self._tls_dir = tls_dir
        self._connection: Optional[http.client.HTTPConnection] = None
        self._socket: Optional[socket.socket] = None
        self._response: Optional[http.client.HTTPResponse] = None
        self._is_shut = False

    def open(self, session: str, position: int) -> None:
        """Connects. Raises :class:`AgentError`."""
        try:
            self._connection = connection(self._agent, self._timeout, self._tls_dir)
            self._connection.connect()
            # The response owns the socket later on.
            self._socket = self._connection.sock
            if self._is_shut:
                raise OSError("the participant has stopped")
            headers = {"archon-session": session, "last-event-id": str(position)}
            self._connection.request("GET", "/v1/events", headers=headers)
            self._response = self._connection.getresponse()
            if self._response.status != 200:
                raise refusal(self._response)
            # The agent sends a comment every 10 s.
            self._socket.settimeout(SILENCE_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            raise AgentError("unreachable", f"the agent at {self._agent} does not answer: {error}") from error

    def events(self) -> Iterator[Document]:
        """Yields events until the connection ends."""
        for line in self._lines():
            if not line.startswith(b"data: "):
                continue
            try:
                event = json.loads(line[len(b"data: ") :])
            except ValueError:
                return
            if isinstance(event, dict):
                yield event

    def _lines(self) -> Iterator[bytes]:
        """Yields complete lines. Those that have arrived together cost one read."""
        assert self._response is not None
        rest = b""
        while len(rest) <= LINE_BYTES_MAX:
            try:
                read = self._response.read1(READ_BYTES_MAX)
            except (OSError, http.client.HTTPException, ValueError):
                return
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from lines

    def shut(self) -> None:
        """Ends the connection from any thread: the reader finds its end."""
        self._is_shut = True
        _shut(self._socket)

    def close(self) -> None:
        """Closes the connection. For the thread that reads."""
        _shut(self._socket)
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
