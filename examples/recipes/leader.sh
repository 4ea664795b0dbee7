#!/bin/sh
# Prints the leader's address, and then each next one, with curl.
curl -sN "$ARCHON_CONSOLE/api/v1/owners/scheduler/watch" | sed -un 's/.*"address":"\([^"]*\)".*"serves":true.*/\1/p'
