"""Does the jobs of the partitions that it owns: worker.py AGENT CONSOLE DATABASE"""

import json
import sqlite3
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from archon_participant import Lost, Participant

agent, console, database = sys.argv[1:]
store = sqlite3.connect(database, timeout=10, isolation_level=None)
store.execute("CREATE TABLE IF NOT EXISTS fence (partition INTEGER PRIMARY KEY, epoch INTEGER)")
store.execute("CREATE TABLE IF NOT EXISTS results (job TEXT PRIMARY KEY, result TEXT)")


def call(method: str, path: str) -> dict:
    request = urllib.request.Request(f"{console}/api/v1/rows/jobs{path}", method=method)
    request.add_header("x-archon-console", "1")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def do(job: str, partition: int, epoch: int) -> bool:
    """Writes the result once, unless a later owner works for the partition."""
    store.execute("BEGIN IMMEDIATE")
    store.execute("INSERT OR IGNORE INTO fence VALUES (?, 0)", (partition,))
    fence = "UPDATE fence SET epoch = ? WHERE partition = ? AND epoch <= ?"
    owned = store.execute(fence, (epoch, partition, epoch)).rowcount > 0
    if owned:
        store.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (job, job.upper()))
    store.execute("COMMIT")
    return owned


with Participant("queue", agent) as participant:
    while True:
        for grant in participant.owned():
            try:
                for row in call("GET", f"?prefix={grant.partition:05}/&limit=100")["rows"]:
                    if do(row["key"], grant.partition, grant.check()):
                        call("DELETE", "/" + urllib.parse.quote(row["key"], safe=""))
            except Lost:
                pass  # The next owner continues.
            except urllib.error.URLError as error:
                print(f"trying again: {error}", file=sys.stderr)
        time.sleep(0.05)
