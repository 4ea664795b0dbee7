#!/bin/sh
# Runs a command at most once a day, on one of several machines, with curl: cron-once.sh NAME COMMAND…
run=$1%2F$(date -u +%F)
shift
status=$(curl -s --max-time 10 -o /dev/null -w '%{http_code}' -X PUT -H 'x-archon-console: 1' -H 'If-None-Match: *' \
    -H 'Archon-TTL-Ms: 172800000' --data-binary "$(uname -n)" "$ARCHON_CONSOLE/api/v1/rows/runs/$run")
case $status in
    200) exec "$@" ;;
    412) exit 0 ;; # Another machine runs it, or has run it.
    *) echo "the mark was not written: $status" >&2; exit 1 ;;
esac
