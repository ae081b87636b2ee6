"""Data keys: each thread's is its owner's. They are made at first use and kept for a while.

Whoever owns a thread is fixed by its first put. Reading meets keys by their ids; one that is not at
hand is looked for, and the read begins anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..decisions.cipher import Masters, Sealed
from ..decisions.codec import Record
from ..decisions.digest import PLAIN, Seal
from ..decisions.keyring import KeyNeeded, Keyring, Keys, Unkeyed
from ..errors import CorruptionError, KeyMissingError, UnavailableError, UsageError
from ..ports import Durable
from ..words import DataKey, Owner, Thread

T = TypeVar("T")

SECONDS = 60.0
"""A key that was deleted is used by other processes for so long at most."""

MOST = 10_000
"""Keys kept at once; an entry is about a kilobyte."""


class DataKeys:
    """The data keys at hand. Implements `Keys`.

    Args:
        masters: wrap and unwrap them.
        beside: what is believed of rows that are not encrypted, if anything.
        clear: metadata keys whose values stand in clear.
        clock: seconds, of whatever begin.
    """

    signs = True

    def __init__(
        self,
        masters: Masters,
        beside: Keyring,
        clear: frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        self.masters = masters
        self.clear = clear
        self._beside = beside
        self._clock = clock
        self._by_id: dict[bytes, tuple[Sealed, float]] = {}
        self._by_owner: dict[Owner, tuple[Sealed, float]] = {}
        self.missing: set[bytes] = set()
        """Ids of keys that somebody is looking for, and that are not there."""

    def under(self, id: bytes) -> Seal:
        if not id or id in self._beside.known:
            if not self._beside.accepts_plain:
                raise Unkeyed("without encryption")
            return self._beside.under(id)
        seal, until = self._by_id.get(id, (None, 0.0))
        if seal is None or until < self._clock():
            raise (KeyMissingError if id in self.missing else KeyNeeded)(key=id.hex())
        return seal

    def of(self, owner: Owner) -> Sealed | None:
        """The seal for what an owner stores now, if it is at hand."""
        seal, until = self._by_owner.get(owner, (None, 0.0))
        return seal if until >= self._clock() else None

    def hold(self, seal: Sealed, current: bool = False) -> None:
        """Keeps a seal at hand; whether it is its owner's ``current`` one."""
        entry = seal, self._clock() + SECONDS
        if len(self._by_id) >= MOST:
            self._by_id.clear()
            self._by_owner.clear()
        self._by_id[seal.id] = entry
        if current:
            self._by_owner[seal.owner] = entry

    def old(self, key: bytes | Owner) -> Sealed | None:
        """A seal that was at hand, however long ago, by its id or owner."""
        by_id, by_owner = self._by_id, self._by_owner
        entry = by_id.get(key) if isinstance(key, bytes) else by_owner.get(key)
        return entry[0] if entry is not None else None

    def forget(self, owner: Owner) -> None:
        """Keeps none of an owner's keys."""
        self._by_owner.pop(owner, None)
        self._by_id = {id: e for id, e in self._by_id.items() if e[0].owner != owner}


class Vault:
    """Keys over one driver's durable tier.

    Args:
        keys: the saver's.
        durable: holds the data keys, wrapped.
    """

    def __init__(self, keys: Keys, durable: Durable) -> None:
        self._plain = keys.current if isinstance(keys, Keyring) else PLAIN
        self._keys = keys if isinstance(keys, DataKeys) else None
        self._durable = durable

    @property
    def encrypts(self) -> bool:
        """Whether what is stored is encrypted."""
        return self._keys is not None

    # -- reading -----------------------------------------------------------------------------

    async def reading(self, thread: Thread | None, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns, called again whenever a key that it needs was looked for: one that
        is not there may be of a copy or a witness that is damaged, which `read` can do without.

        Raises:
            KeyMissingError: if one is not there, or its master key is not known.
            CorruptionError: if one is not what was stored.
            UnavailableError: if it could not be looked for.
        """
        missing: set[bytes] = set()
        try:
            while True:
                try:
                    return await read()
                except KeyNeeded as needed:
                    id = bytes.fromhex(needed.key)
                assert self._keys is not None  # or nothing would be needed
                if not await self._find(self._keys, thread, id):
                    missing.add(id)
                    self._keys.missing.add(id)
        finally:
            if self._keys is not None:
                self._keys.missing.difference_update(missing)

    async def gather(self, thread: Thread) -> None:
        """Has all keys of a thread's owner at hand, for what does not begin anew; but for one that
        cannot be unwrapped: what is under it cannot be read.

        Raises:
            UnavailableError: if they could not be looked for.
        """
        if self._keys is None:
            return
        for key in await self._durable.data_keys(await self._durable.owner(thread)):
            try:
                self._keys.hold(self._unwrapped(self._keys, thread, key))
            except (CorruptionError, KeyMissingError):
                continue

    async def _find(self, keys: DataKeys, thread: Thread | None, id: bytes) -> bool:
        """Has a key at hand; False if there is none with this id."""
        try:
            key = await self._durable.data_key(id)
        except UnavailableError:
            seal = keys.old(id)
            if seal is None:
                raise
        else:
            if key is None:
                return False
            seal = self._unwrapped(keys, thread, key)
        keys.hold(seal)
        return True

    def _unwrapped(self, keys: DataKeys, thread: Thread | None, key: DataKey) -> Sealed:
        try:
            return keys.masters.unwrapped(key)
        except ValueError as error:
            raise CorruptionError(
                thread=thread.id if thread is not None else "",
                namespace="",
                checkpoint="",
                channel=None,
                detail=f"its data key {key.id.hex()} cannot be unwrapped: {error}",
            ) from None

    # -- writing -----------------------------------------------------------------------------

    def at_hand(self, thread: Thread, near: Record | None) -> Seal | None:
        """The seal for what is stored of a thread now; None if it has to be looked for.

        Args:
            thread: whose user, if it has one, must be the owner.
            near: a record of the thread.

        Raises:
            UsageError: if somebody else owns the thread.
        """
        if self._keys is None:
            return self._plain
        if near is None or not isinstance(near.seal, Sealed):
            return None
        _require_owner(thread, near.seal.owner)
        try:
            self._keys.under(near.seal.id)  # what is built on must not have been shredded
        except KeyMissingError:
            return None
        return self._keys.of(near.seal.owner)

    async def seal(self, thread: Thread, near: Record | None) -> Seal:
        """The seal for what is stored of a thread now; see `at_hand`.

        Raises:
            UnavailableError: if it could not be looked for.
            KeyMissingError, CorruptionError: as `reading`.
        """
        found = self.at_hand(thread, near)
        if found is not None or self._keys is None:
            return found or self._plain
        if near is not None and isinstance(near.seal, Sealed):
            keys, seal = self._keys, near.seal

            async def there() -> None:
                keys.under(seal.id)

            await self.reading(thread, there)
            return await self._of(self._keys, thread, seal.owner)
        return await self._of(self._keys, thread, await self._owner(thread))

    async def of_owner(self, thread: Thread, renew: set[Owner] | None = None) -> tuple[Owner, Seal]:
        """Who owns a stored thread, and the seal for what is stored of it now: under a new key,
        unless the owner is among those to whom `renew` has given one."""
        owner = await self._durable.owner(thread)
        assert self._keys is not None
        if renew is not None and owner not in renew:
            await self._durable.add_data_key(self._keys.masters.made(owner))
            self._keys.forget(owner)
            renew.add(owner)
        return owner, await self._of(self._keys, thread, owner)

    @property
    def master(self) -> bytes | None:
        """The id of the current master key, if there is one."""
        return self._keys.masters.current if self._keys is not None else None

    def rewrapped(self, key: DataKey) -> DataKey:
        """A data key under the current master key.

        Raises:
            KeyMissingError: if it is under one that is not known.
            CorruptionError: if it is not what was stored.
        """
        assert self._keys is not None
        self._unwrapped(self._keys, None, key)  # says what is wrong with it
        return self._keys.masters.rewrapped(key)

    async def _owner(self, thread: Thread) -> Owner:
        try:
            owner = await self._durable.owner(thread)
        except UnavailableError:
            owner = Owner(thread.tenant, thread.user)  # whose key must be at hand
        _require_owner(thread, owner)
        return owner

    async def _of(self, keys: DataKeys, thread: Thread, owner: Owner) -> Sealed:
        found = keys.of(owner)
        if found is not None:
            return found
        try:
            stored = await self._durable.data_keys(owner)
            if not stored:
                await self._durable.add_data_key(keys.masters.made(owner))
                stored = await self._durable.data_keys(owner)
        except UnavailableError:
            seal = keys.old(owner)
            if seal is None:
                raise
        else:
            if not stored:
                raise UnavailableError("postgres", "a data key was deleted when it was made")
            seal = self._unwrapped(keys, thread, stored[0])
        keys.hold(seal, current=True)
        return seal

    async def shred(self, owner: Owner) -> int:
        """Deletes an owner's data keys; how many there were."""
        gone = await self._durable.drop_data_keys(owner)
        if self._keys is not None:
            self._keys.forget(owner)
        return gone


def _require_owner(thread: Thread, owner: Owner) -> None:
    if thread.tenant != owner.tenant or thread.user not in (None, owner.user):
        raise UsageError(
            f"thread {thread.id!r} does not belong to user_id {thread.user!r}: whoever owns a "
            "thread is fixed by its first put"
        )
