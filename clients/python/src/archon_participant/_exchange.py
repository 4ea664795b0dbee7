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
        #: The agent keeps the connection after the last answer.
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
        self.socket.settimeout(timeout)
        self.socket.sendall("\r\n".join([*head, "", ""]).encode("ascii") + (body or b""))
        return self._read()

    def _read(self) -> Tuple[int, bytes]:
        protocol, _, rest = self._line().partition(b" ")
        if not protocol.startswith(b"HTTP/1."):
            raise ValueError("the answer is not of HTTP/1.1")
        status, length = int(rest[:3]), -1
        for _ in range(LINES_MAX):
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip().lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                self.is_kept = value != b"close"
        if not 0 <= length <= BODY_BYTES_MAX:
            raise ValueError("the answer names no length of its body, or one that is too large")
        body = self._answers.read(length)
        if len(body) < length:
            raise OSError("the connection ended within an answer")
        return status, body

    def _line(self) -> bytes:
        line = self._answers.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise OSError("the connection ended before an answer, or a line of its head is too long")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        """Closes the connection."""
        self._answers.close()
        self._connection.close()
