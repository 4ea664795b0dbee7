"""Leads while it owns the only partition of the table `scheduler`: leader.py AGENT"""

import sys
import time

from archon_participant import Lost, NotOwned, Participant

with Participant("scheduler", sys.argv[1]) as participant:
    while True:
        try:
            epoch = participant.grant(0).check()  # Right before each use.
        except (NotOwned, Lost):
            time.sleep(0.05)  # Another process leads.
            continue
        # Work here, and give the epoch to the store: lock.py shows how it refuses former leaders.
        print(f"leads in epoch {epoch}", flush=True)
        time.sleep(0.2)
