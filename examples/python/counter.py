"""A service that counts requests: each counter in one of its processes at a time.

    python3 counter.py --agent 127.0.0.1:7701 --listen 127.0.0.1:8081 --db counters.sqlite

`run.py` beside it starts three of them, kills one, and looks for a moment with two owners.
"""

import argparse
import functools
import signal
import sqlite3
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Iterator, Tuple
from urllib.parse import parse_qsl, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2] / "clients/python/src"))  # Without an installed package.
from archon_participant import AgentError, Grant, Lost, NotOwned, Participant

TABLES = """
CREATE TABLE IF NOT EXISTS owner (table_id, partition, epoch, PRIMARY KEY (table_id, partition));
CREATE TABLE IF NOT EXISTS counted (counter, user, request, PRIMARY KEY (counter, user, request));
CREATE TABLE IF NOT EXISTS journal (number INTEGER PRIMARY KEY AUTOINCREMENT, partition, epoch, process);"""
# The fencing token: a former owner, of a lower epoch, changes no row.
FENCE = """INSERT INTO owner VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET epoch = excluded.epoch WHERE owner.epoch <= excluded.epoch"""

arguments = argparse.ArgumentParser()
for name in ("--agent", "--listen", "--db"):
    arguments.add_argument(name, required=True)
options = arguments.parse_args()


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Holds the only lock for writing of the database."""
    database = sqlite3.connect(options.db, timeout=10.0, isolation_level=None)
    try:
        with database:
            database.execute("BEGIN IMMEDIATE")
            yield database
    finally:
        database.close()


def fenced(grant: Grant, statement: str = "", values: Tuple[str, ...] = ()) -> None:
    """Changes the database if no later owner has written its epoch: in one transaction with the check."""
    with transaction() as database:
        if database.execute(FENCE, (grant.table_id, grant.partition, grant.epoch)).rowcount != 1:
            raise Lost(f"a later owner of partition {grant.partition} has written its epoch")
        if statement:
            database.execute(statement, values)
            grant.check()  # The last moment to give up.


def unfenced(grant: Grant) -> None:
    """Acts under the permission alone. `run.py` reads from the journal whether two processes acted as owners.

    The check is made under the lock for writing, so the rows are in the order of the checks, for writes of any length.
    """
    with transaction() as database:
        row = (grant.partition, grant.check(), options.listen)
        database.execute("INSERT INTO journal (partition, epoch, process) VALUES (?, ?, ?)", row)


@functools.lru_cache(maxsize=1024)
def partition_of(counter: str) -> int:
    """The partition of a key never changes, so it is known also while the agent is down."""
    return participant.where(counter).partition


class Requests(BaseHTTPRequestHandler):
    """`POST /?counter=votes&user=1&request=7`: 200 once it is counted, 421 if another process owns the counter, and 503
    if its partition is unknown and the agent does not answer.
    """

    def do_POST(self) -> None:
        of = dict(parse_qsl(urlsplit(self.path).query))
        try:
            grant = participant.grant(partition_of(of["counter"]))
            unfenced(grant)
            fenced(grant, "INSERT OR IGNORE INTO counted VALUES (?, ?, ?)", (of["counter"], of["user"], of["request"]))
            status = 200
        except (NotOwned, Lost):
            status = 421
        except AgentError:
            status = 503
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # Room for the requests of a pause.


with sqlite3.connect(options.db, timeout=10.0) as database:
    database.executescript(TABLES)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
host, port = options.listen.rsplit(":", 1)
# A new owner writes its epoch before it does anything else.
with Participant("counters", options.agent, acquire=fenced) as participant:
    Server((host, int(port)), Requests).serve_forever()
