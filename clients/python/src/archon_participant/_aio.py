"""The participant for asyncio: callbacks are coroutines on the loop of ``start``."""

import asyncio
from concurrent.futures import Future
from types import TracebackType
from typing import Awaitable, Callable, List, Optional, Type, TypeVar, Union

from ._grant import Grant
from ._http import Whereabouts
from ._participant import Participant

T = TypeVar("T")


class AsyncParticipant:
    """As :class:`Participant`, with coroutines as callbacks.

    Heartbeats are sent by a thread, so a blocked loop delays callbacks, and does not end the permission, unless
    ``is_alive`` (see :class:`Participant`) finds that out: for example by the age of a time that a task keeps setting.
    """

    def __init__(
        self,
        table: str,
        agent: str = "127.0.0.1:7700",
        *,
        acquire: Optional[Callable[[Grant], Awaitable[None]]] = None,
        release: Optional[Callable[[Grant, str], Awaitable[None]]] = None,
        lost: Optional[Callable[[Grant], Awaitable[None]]] = None,
        is_alive: Optional[Callable[[], bool]] = None,
        callback_threads: int = 8,
        start_within: float = 30.0,
        stop_within: float = 10.0,
        tls_dir: Optional[str] = None,
    ) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._inner = Participant(
            table,
            agent,
            acquire=None if acquire is None else lambda grant: self._run(acquire(grant)),
            release=None if release is None else lambda grant, reason: self._run(release(grant, reason)),
            lost=None if lost is None else lambda grant: self._run(lost(grant)),
            is_alive=is_alive,
            callback_threads=callback_threads,
            start_within=start_within,
            stop_within=stop_within,
            tls_dir=tls_dir,
        )

    def _run(self, work: Awaitable[None]) -> None:
        """Runs a callback on the loop, and waits for it on a thread of the participant."""

        async def awaited() -> None:
            await work

        assert self._loop is not None
        future: "Future[None]" = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        future.result()

    async def start(self) -> "AsyncParticipant":
        """As :meth:`Participant.start`. A start that is cancelled leaves no participant behind."""
        self._loop = asyncio.get_running_loop()
        starting = self._loop.run_in_executor(None, self._inner.start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Its result is awaited no longer.
            starting.add_done_callback(lambda future: future.cancelled() or future.exception())
            await asyncio.shield(self._loop.run_in_executor(None, self._inner.stop))
            raise
        return self

    @property
    def error(self) -> Optional[Exception]:
        """As :attr:`Participant.error`."""
        return self._inner.error

    async def stop(self, within: Optional[float] = None) -> bool:
        """As :meth:`Participant.stop`."""
        return await asyncio.get_running_loop().run_in_executor(None, self._inner.stop, within)

    async def __aenter__(self) -> "AsyncParticipant":
        return await self.start()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.stop()

    def grant(self, partition: int, table: Optional[str] = None) -> Grant:
        """As :meth:`Participant.grant`. Does not wait."""
        return self._inner.grant(partition, table)

    def owned(self) -> List[Grant]:
        """As :meth:`Participant.owned`. Does not wait."""
        return self._inner.owned()

    async def where(self, key: Union[str, bytes], table: Optional[str] = None) -> Whereabouts:
        """As :meth:`Participant.where`."""
        return await _in_thread(lambda: self._inner.where(key, table))

    async def drop(self, grant: Grant) -> None:
        """As :meth:`Participant.drop`."""
        await _in_thread(lambda: self._inner.drop(grant))

    async def publish_load(self, bytes_stored: int, operations_per_second: int) -> None:
        """As :meth:`Participant.publish_load`."""
        await _in_thread(lambda: self._inner.publish_load(bytes_stored, operations_per_second))


async def _in_thread(call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, call)
