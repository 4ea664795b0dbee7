#!/bin/sh
# Adds a job to the queue of its key's partition, with curl: enqueue.sh KEY ID TEXT
set -e
where=$(curl -sf --max-time 10 "$ARCHON_AGENT/v1/where/$1?table=queue")
partition=$(echo "$where" | sed 's/.*"partition":\([0-9]*\).*/\1/')
row=$(printf '%05d%%2F%s' "$partition" "$2")
curl -sf --max-time 10 -o /dev/null -X PUT -H 'x-archon-console: 1' -H 'If-None-Match: *' --data-binary "$3" \
    "$ARCHON_CONSOLE/api/v1/rows/jobs/$row"
