"""A job that runs under `archon lock`, with a store that refuses former owners: lock.py DATABASE ENTRY"""

import os
import sqlite3
import sys

token = int(os.environ["ARCHON_LOCK_EPOCH"])
with sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None) as store:
    store.execute("CREATE TABLE IF NOT EXISTS fence (name TEXT PRIMARY KEY, token INTEGER)")
    store.execute("CREATE TABLE IF NOT EXISTS ledger (entry TEXT, token INTEGER)")
    store.execute("BEGIN IMMEDIATE")
    store.execute("INSERT OR IGNORE INTO fence VALUES ('ledger', 0)")
    # The fence and the work are one transaction.
    fenced = store.execute("UPDATE fence SET token = ? WHERE name = 'ledger' AND token <= ?", (token, token))
    if fenced.rowcount == 0:
        sys.exit("a later owner has written: this one has lost the lock")
    store.execute("INSERT INTO ledger VALUES (?, ?)", (sys.argv[2], token))
    store.execute("COMMIT")
