"""The drivers of one saver: one blocking, one per event loop, none older than this process."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import ClosedError, UnavailableError, UsageError
from ..protocols.settling import Settler
from ..protocols.shared import Shared
from ..settings import Settings
from . import clients
from . import driver as drivers
from .background import Background
from .blocking import run
from .breaker import Breaker
from .clients import PostgresSource, RedisSource
from .driver import Breakers, Driver

_ABANDONED: list[object] = []
"""Drivers of the process that forked this one: never closed here, the sockets are the parent's."""


class Resettable(Protocol):
    def reset(self) -> None:
        """Starts over, with locks of its own."""


class Faces:
    """Opens drivers on first use.

    Args:
        postgres, redis: where to.
        settings: the saver's.
        shared: what all drivers share.
        caches: what is to be emptied in a forked child.
        background: flushes through the blocking driver.
    """

    def __init__(
        self,
        postgres: PostgresSource,
        redis: RedisSource | None,
        settings: Settings,
        shared: Shared,
        caches: Sequence[Resettable],
        background: Background,
    ) -> None:
        self._postgres = postgres
        self._redis = redis
        self._settings = settings
        self._shared = shared
        self._caches = caches
        self._closed = False
        self.background = background
        background.flusher = _weakly(weakref.WeakMethod(self._flusher))
        self._begin()
        _ALL.add(self)

    def _flusher(self) -> Settler:
        return run(self._open_blocking()).flusher

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._checked = False
        events = self._shared.events
        self._breakers = Breakers(Breaker("postgres", events), Breaker("redis", events))
        self._blocking: Driver | None = None
        self._native: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Driver] = (
            weakref.WeakKeyDictionary()
        )
        self._unclaimed = True
        self.installed = not self._settings.auto_setup

    def abandon(self) -> None:
        """Starts over in a forked child."""
        _ABANDONED.append((self._blocking, dict(self._native), self._lock))
        self._begin()
        for cache in self._caches:
            cache.reset()
        self.background.reset()
        self._shared.numbers.draw()

    async def blocking(self, install: bool = True) -> Driver:
        """The blocking driver, its tables installed unless told. Never suspends."""
        self.check_open()
        found = await self._open_blocking()
        return await self._install(found) if install else found

    async def _open_blocking(self) -> Driver:
        found = self._blocking
        if found is None:
            with self._lock:
                found = self._blocking
                if found is None:
                    args = (self._postgres, self._redis, self._settings, self._shared)
                    found = self._blocking = drivers.blocking(*args, *self._told)
        return found

    async def native(self, install: bool = True) -> Driver:
        """The running loop's driver, its tables installed unless told."""
        self.check_open()
        loop = asyncio.get_running_loop()
        found = self._native.get(loop)
        if found is None:
            # What the user handed over belongs to the loop it is first used in.
            postgres = self._postgres if self._unclaimed else clients.elsewhere(self._postgres)
            redis = self._redis if self._unclaimed else clients.elsewhere(self._redis)
            self._unclaimed = False
            args = (self._settings, self._shared, *self._told)
            fresh = await drivers.native(postgres, redis, *args)
            found = self._native.setdefault(loop, fresh)
        return await self._install(found) if install else found

    @property
    def _told(self) -> tuple[Breakers, Callable[[], bool]]:
        return self._breakers, lambda: self.installed

    async def _install(self, driver: Driver) -> Driver:
        if not self.installed:
            await self._set_up(driver)
        if not self._checked:
            await self._check(driver)
        return driver

    async def _set_up(self, driver: Driver) -> None:
        try:
            await driver.durable.setup()
        except UnavailableError:
            # What Redis takes meanwhile is all right if the tables are there.
            if driver.outbox is None or not self._settings.policy.queues:
                raise
            return
        self.installed = True

    async def _check(self, driver: Driver) -> None:
        """Refuses a Redis that may evict what nobody else has."""
        if driver.outbox is not None and self._settings.policy.asks_hot:
            try:
                policy = await driver.outbox.evicts()
            except UnavailableError:
                return  # asked again at the next call
            if policy and not self._settings.allow_eviction:
                raise UsageError(
                    f"Redis may evict what it alone holds (maxmemory-policy {policy}): set it to "
                    "noeviction or volatile-lru, or pass allow_eviction=True"
                )
            self.background.start()
        self._checked = True

    @property
    def ready(self) -> bool:
        """Whether a driver can be had without waiting for anything."""
        return self.installed and self._checked

    @property
    def closed(self) -> bool:
        """Whether the saver was closed."""
        return self._closed

    def check_open(self) -> None:
        """Raises ClosedError if the saver was closed."""
        if self._closed:
            raise ClosedError()

    async def close_blocking(self) -> None:
        """Closes the blocking driver, and asks other loops to close theirs. Never suspends."""
        self._closed = True
        with self._lock:
            found, self._blocking = self._blocking, None
        if found is not None:
            await found.close()
        for loop, driver in list(self._native.items()):
            if loop.is_running():
                loop.call_soon_threadsafe(_close_soon, loop, driver)

    async def close_native(self) -> None:
        """Closes the running loop's driver, then the others."""
        found = self._native.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()
        await self.close_blocking()


def _weakly(method: weakref.WeakMethod[Callable[[], Settler]]) -> Callable[[], Settler]:
    """A method that does not keep its object alive."""

    def call() -> Settler:
        found = method()
        if found is None:
            raise ClosedError()
        return found()

    return call


def _close_soon(loop: asyncio.AbstractEventLoop, driver: Driver) -> None:
    task = loop.create_task(driver.close())
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)


_CLOSING: set[asyncio.Task[None]] = set()
_ALL: weakref.WeakSet[Faces] = weakref.WeakSet()


def _abandon_all() -> None:
    for faces in list(_ALL):
        faces.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
