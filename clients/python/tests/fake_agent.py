"""An agent that a test directs: it serves events from a list, and records what the service sends."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List, Optional

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

Document = Dict[str, Any]


class FakeAgent:
    """Listens on a free port of loopback until :meth:`close`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.session = "s1"
        self.events: List[Document] = []
        self.answers: List[Document] = []
        self.seen: List[int] = []
        self.positions: List[str] = []
        self.valid_for_ms = 60_000
        #: Number that answers to heartbeats name instead of the newest event.
        self.named: Optional[int] = None
        #: Connections with a lower number end.
        self.cut_below = 0
        self.silent = False
        self.lease_for_ms = 1000
        #: Connections get no `hello`.
        self.is_mute = False
        #: New sessions are refused.
        self.is_busy = False
        #: Kinds of answers of which the next is refused as invalid.
        self.refuse_once: List[str] = []
        #: Number of answers in each list.
        self.lists: List[int] = []
        #: Lists wait before they are taken.
        self.holds_lists = False
        #: A stop ends the session, as if nothing were owned.
        self.ends_at_stop = True
        #: Number of heartbeats from now on that get no answer.
        self.unanswered = 0
        self.is_closed = False
        agent = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                agent.stream(self)

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["content-length"]))
                body = json.loads(text)
                if len(text) > 65_536 or not agent.is_unicode(body):
                    status, answer = 400, {"error": {"kind": "invalid", "message": "too long, or no Unicode"}}
                else:
                    status, answer = agent.take(self.path, self.headers["archon-session"], body)
                if status == 0:
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stream(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        name = request.headers["archon-session"]
        with self.changed:
            if self.is_mute:
                self.positions.append("mute")
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.is_closed)
                return
            if self.is_busy:
                body = json.dumps({"error": {"kind": "busy", "message": "another process is connected"}}).encode()
                request.send_response(409)
                request.send_header("content-length", str(len(body)))
                request.end_headers()
                request.wfile.write(body)
                return
            if name not in ("new", self.session):
                body = json.dumps({"error": {"kind": "ended", "message": "the session has ended"}}).encode()
                request.send_response(410)
                request.send_header("content-length", str(len(body)))
                request.end_headers()
                request.wfile.write(body)
                return
            self.positions.append(request.headers["last-event-id"])
            number = len(self.positions)
            session = self.session
            self.changed.notify_all()
        position = int(request.headers["last-event-id"])
        request.send_response(200)
        request.end_headers()
        hello = {"event": "hello", "version": 1, "session": session, "participant": "w1", "tables": ["jobs"]}
        self.send(request, {**hello, "service_lease_for_ms": self.lease_for_ms, "heartbeat_every_for_ms": 20})
        while True:
            with self.changed:
                self.changed.wait_for(
                    lambda: len(self.events) > position or number <= self.cut_below or session != self.session
                )
                if number <= self.cut_below or session != self.session:
                    return
                event = self.events[position]
                position += 1
            self.send(request, {"sequence": position, **event})

    def send(self, request: BaseHTTPRequestHandler, event: Document) -> None:
        request.wfile.write(f"event: {event['event']}\ndata: {json.dumps(event)}\n\n".encode())
        request.wfile.flush()

    def take(self, path: str, session: str, body: Any) -> Any:
        if isinstance(body, list):
            return self.take_list(path, session, body)
        with self.changed:
            if session != self.session:
                return 410, {"error": {"kind": "ended", "message": "the session has ended"}}
            if path == "/v1/answers" and body["answer"] in self.refuse_once:
                self.refuse_once.remove(body["answer"])
                return 400, {"error": {"kind": "invalid", "message": "an unknown answer"}}
            if path == "/v1/answers":
                self.answers.append(body)
                if body["answer"] == "stop" and self.ends_at_stop:
                    self.events.append({"event": "ended", "reason": "stopped"})
                self.changed.notify_all()
                return 200, {}
            if self.unanswered > 0:
                self.unanswered -= 1
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.is_closed)
                return 0, {}
            self.seen.append(body["seen"])
            self.changed.notify_all()
            if self.silent:
                return 503, {"error": {"kind": "unreachable", "message": "silent"}}
            named = len(self.events) if self.named is None else self.named
            return 200, {"valid_for_ms": self.valid_for_ms, "sequence": named}

    def take_list(self, path: str, session: str, answers: List[Document]) -> Any:
        """Takes each answer on its own."""
        with self.changed:
            self.lists.append(len(answers))
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.holds_lists or self.is_closed)
        refused = []
        for index, answer in enumerate(answers):
            status, outcome = self.take(path, session, answer)
            if status == 410:
                return status, outcome
            if status != 200:
                refused.append({"index": index, **outcome})
        return 200, {"refused": refused}

    def release_lists(self) -> None:
        with self.changed:
            self.holds_lists = False
            self.changed.notify_all()

    def fire(self, event: Document) -> None:
        """Adds an event."""
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def acquire(self, partition: int, epoch: int) -> None:
        of = {"table": "jobs", "table_id": 7, "partition": partition, "epoch": epoch}
        self.fire({"event": "acquire", **of, "lease_left_for_ms": 900})

    def cut(self) -> None:
        """Ends all connections of now."""
        with self.changed:
            self.cut_below = len(self.positions)
            self.changed.notify_all()

    def restart(self) -> None:
        """Begins another session, as a restarted agent."""
        with self.changed:
            self.session, self.events = "s2", []
            self.changed.notify_all()

    def wait(self, condition: Any, seconds: float = 20.0) -> None:
        with self.changed:
            if not self.changed.wait_for(condition, seconds):
                raise AssertionError(f"answers: {self.answers}, positions: {self.positions}")

    def answered(self, kind: str) -> List[Document]:
        return [answer for answer in self.answers if answer["answer"] == kind]

    @staticmethod
    def is_unicode(body: Document) -> bool:
        try:
            json.dumps(body, ensure_ascii=False).encode()
            return True
        except UnicodeEncodeError:
            return False

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
