#!/bin/sh
# Runs a command of at most seven seconds under a lock, with curl: lock.sh NAME COMMAND…
rows=$ARCHON_CONSOLE/api/v1/rows/locks name=$1 lease=10
shift
owner=$(cat /proc/sys/kernel/random/uuid)
row="{\"owner\":\"$owner\",\"holder\":\"$(uname -n):$$\",\"lease_ms\":${lease}000}"
answer=$(mktemp) && trap 'rm -f "$answer"' EXIT

# Prints the revision in the head of an answer, with its quotes; the body goes to a file.
revision() { curl -s --max-time 1 -D - -o "$answer" "$@" "$rows/$name" | tr -d '\r' | sed -n 's/^etag: //Ip'; }
# Writes the row on a condition; prints the new revision.
put() { revision -X PUT -H 'x-archon-console: 1' --data-binary "$row" "$@"; }

until token=$(put -H 'If-None-Match: *') && [ -n "$token" ]; do
    held=$(revision)
    held_for=$(sed -n 's/.*"lease_ms": *\([0-9]*\).*/\1/p' "$answer")
    [ -n "$held" ] && [ -n "$held_for" ] || { sleep 0.2; continue; }
    # A holder that has written nothing for its lease and 1 % more has stopped.
    sleep $(((held_for * 101 + 99999) / 100000 + 1))
    [ "$(revision)" = "$held" ] && token=$(put -H "If-Match: $held") && [ -n "$token" ] && break
done
# The lease counts from the sending: one second for the answer, and the command is killed after eight more.
ARCHON_LOCK_EPOCH=$(echo "$token" | tr -d '"') timeout -k 1 7 "$@"
code=$?
put -H "If-Match: $token" -H 'Archon-TTL-Ms: 1' > /dev/null
exit $code
