"""A client of redis-py under test. Reads commands from standard input, one a line, and answers each with one line.

    redis_py.py HOST:PORT [CA CERTIFICATE KEY]

`basics` checks values, pipelines and scans. `begin` starts to write and read back until `end`, which answers the numbers of
rounds that were done, that failed, and that found an acknowledged write lost.
"""

import sys
import threading
import time

from redis.backoff import ExponentialWithJitterBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError
from redis.retry import Retry


def connect(address, files):
    host, port = address.rsplit(":", 1)
    options = {}
    if files:
        ca, certificate, key = files
        options = dict(ssl=True, ssl_ca_certs=ca, ssl_certfile=certificate, ssl_keyfile=key)
    retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 12)
    return RedisCluster(
        startup_nodes=[ClusterNode(host, int(port))], retry=retry, socket_timeout=10, protocol=3, **options
    )


def expect(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def basics(redis):
    binary = bytes(range(256)) * 3
    expect(redis.set("binary", binary), True)
    expect(redis.get("binary"), binary)
    expect(redis.get("absent"), None)
    expect(redis.set("binary", "x", nx=True), None)
    expect(redis.set("binary", b"y", xx=True, get=True), binary)
    keys = [f"clé {number}" for number in range(200)]
    pipeline = redis.pipeline()
    for key in keys:
        pipeline.set(key, key)
        pipeline.append(key, "!")
        pipeline.get(key)
    replies = pipeline.execute()
    expect(replies[2::3], [f"{key}!".encode() for key in keys])
    expect([redis.get(key) for key in keys[:20]], [f"{key}!".encode() for key in keys[:20]])
    expect({key.decode() for key in redis.scan_iter(match="clé *", count=50)}, set(keys))
    found = redis.keys("clé 1?", target_nodes=RedisCluster.PRIMARIES)
    expect({key.decode() for key in found}, {f"clé 1{digit}" for digit in range(10)})
    redis.delete("sum")
    expect(redis.incrbyfloat("sum", 0.1), 0.1)
    expect(redis.setrange("part", 3, "x"), 4)
    expect(redis.set("short", "v", ex=100), True)
    expect(90 < redis.ttl("short") <= 100, True)
    expect(redis.delete("short"), 1)


class Load:
    """Counts up one key after the other, and checks that no acknowledged count is lost."""

    def __init__(self, redis):
        self.redis, self.last, self.errors = redis, {}, []
        self.done = self.lost = 0

    def begin(self):
        self.done, self.errors = 0, []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def read(self, key):
        found = int(self.redis.get(key) or 0)
        if found < self.last.get(key, 0):
            self.lost += 1
        return found

    def run(self):
        number = 0
        while not self.stopped.is_set():
            number += 1
            key = f"count {number % 50}"
            try:
                count = self.read(key) + 1
                self.redis.set(key, count)
                self.last[key] = count
                self.done += 1
            except RedisError as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                time.sleep(0.1)

    def end(self):
        self.stopped.set()
        self.thread.join()
        for key in self.last:
            self.read(key)
        return f"{self.done} done, {len(self.errors)} failed, {self.lost} lost {self.errors[:5]}"


def main():
    address, *files = sys.argv[1:]
    redis = connect(address, files)
    load = Load(redis)
    for line in sys.stdin:
        try:
            answer = "ok"
            if line.strip() == "basics":
                basics(redis)
            elif line.strip() == "begin":
                load.begin()
            elif line.strip() == "end":
                answer = load.end()
        except Exception as error:  # The test shows it.
            answer = f"{type(error).__name__}: {error}"
        print(answer.replace("\n", " "), flush=True)


main()
