"""redis-cli under test, which is one process per request or pipeline, with the protocol of driver.py."""

import ast
import itertools
import subprocess
import time

from driver import Refusal, expect, serve, started


# As in scripts that go on: so often at most, with this pause.
ATTEMPTS = 100
PAUSE_S = 0.1
# Each redirection of a pipeline is another connection.
TIMEOUT_S = 50
# Errors after which clients repeat a request.
NOT_DONE = ("CLUSTERDOWN", "TRYAGAIN", "LOADING")


class NoReply(Exception):
    """A process that failed."""


def quoted(argument):
    return '"' + "".join(f"\\x{byte:02x}" for byte in argument) + '"'


def parsed(line):
    """Parses a reply as redis-cli prints it for people."""
    if line == "(nil)":
        return None
    if line.startswith("(integer) "):
        return int(line.removeprefix("(integer) "))
    if line.startswith("(error) "):
        return Refusal(line.removeprefix("(error) "))
    # Quotes, and escapes as in Python.
    return ast.literal_eval("b" + line) if line.startswith('"') else line


class Library:
    def __init__(self):
        addresses, repeats, files = started()
        self.attempts = ATTEMPTS if repeats else 1
        self.addresses = itertools.cycle(addresses)
        self.tls = []
        if files:
            ca, certificate, key = files
            self.tls = ["--tls", "--cacert", ca, "--cert", certificate, "--key", key]

    def pipeline(self, commands):
        for _ in range(self.attempts - 1):
            try:
                replies = self.run(commands)
                if not any(isinstance(reply, Refusal) and str(reply).startswith(NOT_DONE) for reply in replies):
                    return replies
            except NoReply:
                pass
            time.sleep(PAUSE_S)
        return self.run(commands)

    def run(self, commands):
        host, port = next(self.addresses)
        ran = subprocess.run(
            ["redis-cli", "-c", "--no-raw", "-h", host, "-p", str(port), *self.tls],
            input="".join(" ".join(map(quoted, command)) + "\n" for command in commands).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        printed = ran.stdout.decode().splitlines()
        lines = [line for line in printed if line and not line.startswith("-> Redirected")]
        if len(lines) != len(commands):
            raise NoReply(f"{len(lines)} replies: {lines[-3:]} {ran.stderr.decode()}")
        return [parsed(line) for line in lines]

    def call(self, *command):
        return self.pipeline([command])[0]

    def own(self):
        expect(self.call(b"PING"), "PONG")


serve(Library(), Refusal)
