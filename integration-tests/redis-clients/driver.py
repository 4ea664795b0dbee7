"""The protocol between a test and a client library: requests from standard input, one a line, answers on standard output.

    NUMBER VERB WORD…        a request; words are `=` and the bytes in hexadecimal, or `,` between the commands of a pipeline
    NUMBER REPLY…            its answer, one reply per command, in any order of numbers

Replies are `_` (nil), `:INTEGER`, `=BYTES`, `*REPLY,REPLY…` (a list), `-TEXT` (an error that the server replied) and `!TEXT`
(no reply), where texts are in hexadecimal, too. Verbs:

    call COMMAND             one command
    replica COMMAND          one command that reads, at a replica
    pipeline COMMAND , …     many commands at once, of keys in any slots
    transaction COMMAND , …  many commands of one slot, by MULTI and EXEC
    swap OLD NEW KEY…        sets NEW by WATCH, MULTI and EXEC if all values are OLD; replies OK, or nil if one is another
    own                      checks of interfaces that only this library has; replies OK
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

# Requests that are executed at once. Others wait.
THREADS = 64


class Refusal(Exception):
    """An error that the server replied, for libraries without an exception of its own."""


def started():
    """Returns the addresses to connect to, true if the client repeats requests, and the files of TLS (none without)."""
    addresses, repeats, *files = sys.argv[1:]
    pairs = [address.rsplit(":", 1) for address in addresses.split(",")]
    return [(host, int(port)) for host, port in pairs], repeats == "repeats", files


def expect(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def encoded(reply, refusals):
    """Encodes the reply of a library; `refusals` are its exceptions for errors that the server replied."""
    if reply is None:
        return "_"
    if isinstance(reply, bool):
        return "=" + b"OK".hex() if reply else ":0"
    if isinstance(reply, int):
        return f":{reply}"
    if isinstance(reply, float):
        return "=" + repr(reply).encode().hex()
    if isinstance(reply, str):
        reply = reply.encode()
    if isinstance(reply, bytes):
        return "=" + reply.hex()
    if isinstance(reply, list):
        return "*" + ",".join(encoded(part, refusals) for part in reply)
    if isinstance(reply, Exception):
        mark = "-" if isinstance(reply, refusals) else "!"
        return mark + f"{type(reply).__name__}: {reply}".encode().hex()
    raise AssertionError(f"a reply of another type: {reply!r}")


def commands(words):
    """Decodes the commands of a request."""
    found = [[]]
    for word in words:
        if word == ",":
            found.append([])
        else:
            found[-1].append(bytes.fromhex(word[1:]))
    return found


def serve(library, refusals):
    """Answers requests until standard input ends. `library` has a method for each verb; `pipeline` and `transaction` return a list
    of replies, the others one."""
    output = threading.Lock()

    def answer(line):
        number, verb, *words = line.split()
        requests = [[]]
        try:
            requests = commands(words)
            if verb in ("pipeline", "transaction"):
                replies = getattr(library, verb)(requests)
            elif verb == "own":
                replies = [library.own() or True]
            else:
                replies = [getattr(library, verb)(*requests[0])]
            replies = [encoded(reply, refusals) for reply in replies]
        except Exception as error:  # The test judges it.
            replies = [encoded(error, refusals)] * len(requests)
        line = " ".join([number, *replies])
        with output:
            print(line, flush=True)

    with ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin:
            pool.submit(answer, line)
