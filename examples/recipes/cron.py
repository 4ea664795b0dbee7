"""Exits with 0 if this machine is the one to run a job, with 3 if another one is: cron.py CONSOLE JOB/DAY"""

import socket
import sys
import urllib.error
import urllib.parse
import urllib.request

run = urllib.parse.quote(sys.argv[2], safe="")
mark = urllib.request.Request(f"{sys.argv[1]}/api/v1/rows/runs/{run}", socket.gethostname().encode(), method="PUT")
mark.add_header("x-archon-console", "1")
mark.add_header("If-None-Match", "*")  # Only one machine creates the row.
mark.add_header("Archon-TTL-Ms", str(2 * 24 * 3_600_000))
try:
    urllib.request.urlopen(mark, timeout=10).close()
except urllib.error.HTTPError as error:
    sys.exit(3 if error.code == 412 else f"the mark was not written: {error}")
