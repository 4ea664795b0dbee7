"""A client of valkey-glide under test, with the protocol of driver.py."""

import asyncio
import threading

from driver import Refusal, expect, serve, started
from glide import (
    AdvancedGlideClusterClientConfiguration,
    ClusterBatch,
    ClusterScanCursor,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    Logger,
    LogLevel,
    NodeAddress,
    ExecAbortError,
    RequestError,
    TlsAdvancedConfiguration,
)

TIMEOUT_MS = 10_000
REFUSALS = (RequestError, ExecAbortError)


async def connect():
    addresses, _, files = started()
    advanced = AdvancedGlideClusterClientConfiguration(connection_timeout=TIMEOUT_MS)
    if files:
        ca, certificate, key = [open(file, "rb").read() for file in files]
        advanced.tls_config = TlsAdvancedConfiguration(
            root_pem_cacerts=ca, client_cert_pem=certificate, client_key_pem=key
        )
    nodes = [NodeAddress(host, port) for host, port in addresses]
    return await GlideClusterClient.create(
        GlideClusterClientConfiguration(
            nodes, use_tls=bool(files), request_timeout=TIMEOUT_MS, advanced_config=advanced
        )
    )


class Library:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.client = self.wait(connect())

    def wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def replies(self, work):
        """Waits for replies. Time-outs and lost connections are subclasses of the exception for errors of the server."""
        try:
            found = self.wait(work)
        except RequestError as error:
            if type(error) in REFUSALS:
                raise Refusal(str(error)) from error
            raise
        listed = found if isinstance(found, list) else [found]
        listed = [Refusal(str(reply)) if type(reply) in REFUSALS else reply for reply in listed]
        return listed if isinstance(found, list) else listed[0]

    def call(self, *command):
        return self.replies(self.client.custom_command(list(command)))

    def pipeline(self, commands):
        batch = ClusterBatch(is_atomic=False)
        for command in commands:
            batch.custom_command(command)
        return self.replies(self.client.exec(batch, raise_on_error=False))

    def own(self):
        self.wait(self.scan())

    async def scan(self):
        keys = {f"clé glide {number}".encode() for number in range(200)}
        await asyncio.gather(*(self.client.set(key, key) for key in keys))
        found, cursor = set(), ClusterScanCursor()
        while not cursor.is_finished():
            cursor, some = await self.client.scan(cursor, match="clé glide *", count=50)
            found.update(some)
        expect(found, keys)


# Its log would go to standard output.
Logger.set_logger_config(LogLevel.OFF)
serve(Library(), Refusal)
