"""A client of redis-py under test, with the protocol of driver.py."""

import time
from functools import cached_property

from driver import expect, serve, started
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.exceptions import RedisError, ResponseError, WatchError
from redis.retry import Retry

CONNECT_ATTEMPTS = 200
CONNECT_PAUSE_S = 0.1


def connect(**more):
    addresses, repeats, files = started()
    options = {}
    if files:
        ca, certificate, key = files
        options = dict(ssl=True, ssl_ca_certs=ca, ssl_certfile=certificate, ssl_keyfile=key)
    retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 12) if repeats else Retry(NoBackoff(), 0)
    nodes = [ClusterNode(host, port) for host, port in addresses]
    options |= dict(startup_nodes=nodes, retry=retry, socket_timeout=10, protocol=3) | more
    # Connecting changes nothing, so it is repeated also by a client that sends each write once.
    for _ in range(CONNECT_ATTEMPTS - 1):
        try:
            return RedisCluster(**options)
        except RedisError:
            time.sleep(CONNECT_PAUSE_S)
    return RedisCluster(**options)


class Library:
    def __init__(self, redis):
        self.redis = redis

    @cached_property
    def replicas(self):
        return connect(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN_REPLICAS)

    def replica(self, *command):
        return self.replicas.execute_command(command[0].decode(), *command[1:])

    def call(self, *command):
        return self.redis.execute_command(command[0].decode(), *command[1:])

    def pipeline(self, commands):
        pipeline = self.redis.pipeline()
        for command in commands:
            pipeline.execute_command(command[0].decode(), *command[1:])
        return pipeline.execute(raise_on_error=False)

    def transaction(self, commands):
        with self.redis.pipeline(transaction=True) as transaction:
            for command in commands:
                transaction.execute_command(command[0].decode(), *command[1:])
            return transaction.execute(raise_on_error=False)

    def swap(self, old, new, *keys):
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.watch(*keys)
            if any(transaction.get(key) != old for key in keys):
                transaction.unwatch()
                return None
            transaction.multi()
            for key in keys:
                transaction.set(key, new)
            return transaction.execute()[0]

    def own(self):
        redis = self.redis
        keys = [f"clé py {number}" for number in range(200)]
        pipeline = redis.pipeline()
        for key in keys:
            pipeline.set(key, key)
        pipeline.execute()
        expect({key.decode() for key in redis.scan_iter(match="clé py *", count=50)}, set(keys))
        found = redis.keys("clé py 1?", target_nodes=RedisCluster.PRIMARIES)
        expect({key.decode() for key in found}, {f"clé py 1{digit}" for digit in range(10)})
        redis.delete("sum")
        expect(redis.incrbyfloat("sum", 0.1), 0.1)
        expect(redis.set("short", "v", ex=100), True)
        expect(90 < redis.ttl("short") <= 100, True)
        expect(redis.delete("short"), 1)
        with redis.lock("{lock}", timeout=10):
            expect(redis.lock("{lock}", timeout=10, blocking=False).acquire(), False)


# A conflict of a transaction is an answer of the server, too: the client of a cluster raises WatchError only for a nil reply of
# EXEC or a redirection. (That of a single server raises it also for a connection lost during EXEC.)
serve(Library(connect()), (ResponseError, WatchError))
