"""Requests and answers of HTTP/1.1 over one connection.

`http.client` takes a tenth of a millisecond for the head of a request, and twice that for the head of an answer. A stop
makes two requests while partitions have no owner.
"""

import http.client
import socket
from typing import BinaryIO, Optional, Tuple

#: Longest line of the head of an answer, in bytes.
LINE_BYTES_MAX = 64 * 1024
#: Most lines of the head of an answer.
LINES_MAX = 100
#: Longest body of an answer, in bytes. An answer to a list names each refused one.
BODY_BYTES_MAX = 16 * 1024 * 1024


class Exchange:
    """An open connection: one request at a time, each as one write."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        """Connects. Raises :class:`OSError`."""
        connection.connect()
        self._connection = connection
        self.socket: socket.socket = connection.sock
        self._answers: BinaryIO = self.socket.makefile("rb")
        host = f"[{connection.host}]" if ":" in connection.host else connection.host
        self._host = f"{host}:{connection.port}"
        #: A further request may follow. False while one is under way: an exception of a signal handler leaves its answer
        #: unread, and a later request would take it for its own.
        self.is_kept = True

    def send(
        self, method: str, path: str, session: Optional[str], body: Optional[bytes], timeout: float
    ) -> Tuple[int, bytes]:
        """Sends a request. Returns status and body of the answer.

        Raises :class:`OSError`, and :class:`ValueError` for an answer that is not of the agent.
        """
        head = [f"{method} {path} HTTP/1.1", f"host: {self._host}"]
        if session:
            head.append(f"archon-session: {session}")
        if body is not None:
            head += ["content-type: application/json", f"content-length: {len(body)}"]
        if not all(line.isprintable() for line in head):
            raise ValueError("a control character in the head of a request")
        self.is_kept = False
        self.socket.settimeout(timeout)
        self.socket.sendall("\r\n".join([*head, "", ""]).encode("ascii") + (body or b""))
        status, answer, keeps = self._read()
        self.is_kept = keeps
        return status, answer

    def _read(self) -> Tuple[int, bytes, bool]:
        """Returns status and body of an answer, and whether the agent keeps the connection."""
        protocol, _, rest = self._line().partition(b" ")
        if not protocol.startswith(b"HTTP/1."):
            raise ValueError("the answer is not of HTTP/1.1")
        status, length, keeps = int(rest[:3]), -1, True
        for _ in range(LINES_MAX):
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip().lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                keeps = value != b"close"
        else:
            raise ValueError(f"the head of the answer has more than {LINES_MAX} lines")
        if not 0 <= length <= BODY_BYTES_MAX:
            why = "the answer names no length of its body, or one that is too large"
            raise ValueError(f"{why}: call the agent itself, without a proxy")
        body = self._answers.read(length)
        if len(body) < length:
            raise OSError("the connection ended within an answer")
        return status, body, keeps

    def _line(self) -> bytes:
        line = self._answers.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise OSError("the connection ended before an answer, or a line of its head is too long")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        """Closes the connection."""
        try:
            # Below TLS. Ends a read that a signal handler has interrupted to come here: a reader in use is not closed.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            pass
        try:
            self._answers.close()
        except RuntimeError:
            pass
        self._connection.close()
