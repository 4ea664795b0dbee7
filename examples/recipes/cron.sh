#!/bin/sh
# Runs a command until it has succeeded once a day, on any of several machines: cron.sh NAME COMMAND…
run=$1/$(date -u +%F)
shift
exec archon lock "$run" --wait 10m -- sh -c '
    run=$1
    shift
    archon kv get "$run" --table runs > /dev/null 2>&1
    case $? in
        0) exit 0 ;; # It has succeeded, here or on another machine.
        3) "$@" && archon kv put "$run" "$(uname -n)" --table runs --ttl 48h ;;
        *) echo "the marks cannot be read" >&2; exit 1 ;;
    esac
' cron "$run" "$@"
