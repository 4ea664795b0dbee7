"""A service that counts requests: each counter in one of its processes at a time, and no request counts twice.

    python3 counter.py --agent 127.0.0.1:7701 --listen 127.0.0.1:8081 --db counters.sqlite

`run.py` beside it starts three of them, kills one, and counts.
"""

import argparse
import signal
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Tuple
from urllib.parse import parse_qsl, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2] / "clients/python/src"))  # Without an installed package.
from archon_participant import Grant, Lost, NotOwned, Participant

TABLES = """
CREATE TABLE IF NOT EXISTS owner (table_id, partition, epoch, PRIMARY KEY (table_id, partition));
CREATE TABLE IF NOT EXISTS counted (counter, user, request, PRIMARY KEY (counter, user, request));"""
# The fencing token: a former owner, of a lower epoch, changes no row.
FENCE = """INSERT INTO owner VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET epoch = excluded.epoch WHERE owner.epoch <= excluded.epoch"""

arguments = argparse.ArgumentParser()
for name in ("--agent", "--listen", "--db"):
    arguments.add_argument(name, required=True)
options = arguments.parse_args()


def fenced(grant: Grant, statement: str = "", values: Tuple[str, ...] = ()) -> None:
    """Changes the database if no later owner has written its epoch: in one transaction with the check."""
    database = sqlite3.connect(options.db, timeout=10.0, isolation_level="IMMEDIATE")
    try:
        with database:
            if database.execute(FENCE, (grant.table_id, grant.partition, grant.epoch)).rowcount != 1:
                raise Lost(f"a later owner of partition {grant.partition} has written its epoch")
            if statement:
                database.execute(statement, values)
                grant.check()  # The last moment to give up.
    finally:
        database.close()


class Requests(BaseHTTPRequestHandler):
    """`POST /?counter=votes&user=1&request=7`: 200 once it is counted, 421 if another process owns the counter."""

    def do_POST(self) -> None:
        of = dict(parse_qsl(urlsplit(self.path).query))
        try:
            grant = participant.grant(participant.where(of["counter"]).partition)
            fenced(grant, "INSERT OR IGNORE INTO counted VALUES (?, ?, ?)", (of["counter"], of["user"], of["request"]))
            status = 200
        except (NotOwned, Lost):
            status = 421
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


with sqlite3.connect(options.db, timeout=10.0) as database:
    database.executescript(TABLES)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
host, port = options.listen.rsplit(":", 1)
# A new owner writes its epoch before it does anything else.
with Participant("counters", options.agent, acquire=fenced) as participant:
    ThreadingHTTPServer((host, int(port)), Requests).serve_forever()
