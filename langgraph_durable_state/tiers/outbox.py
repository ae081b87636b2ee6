"""What Redis holds before Postgres does: spells, outboxes and hot pending writes.

A spell is a namespace's account of being ahead: it begins when the durable head was marked, and
ends when all is flushed and the mark is off again. The outbox is the thread's: one order for all
its namespaces. None of these keys expires while anything in it is not in Postgres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ..decisions import hotcopy, keys, outgoing
from ..decisions.codec import DAMAGE, Unsound, differing_slot
from ..errors import CorruptionError
from ..ports import Scripts
from ..words import (
    Answer,
    ChunkRow,
    Cold,
    Digest,
    Entry,
    Head,
    HotFound,
    Kept,
    Opened,
    Outgoing,
    Phase,
    Place,
    Put,
    PutWrites,
    Spell,
    Step,
    Stored,
    Thread,
    Unfit,
    Won,
    WriteRow,
)
from .redis import fields, named
from .scrub import RedisScrub

_REFUSED = 4
_UNFIT = {
    b"lost": Unfit.LOST,
    b"whole": Unfit.WHOLE,
    b"full": Unfit.FULL,
    b"restarted": Unfit.RESTARTED,
    b"fenced": Unfit.FENCED,
}
_PHASES = {b"opening": Phase.OPENING, b"open": Phase.OPEN, b"closing": Phase.CLOSING}
_UNKNOWN = b"?"
_DIGEST = 16
_EXCUSED = {b"restarted": b"1", b"promoted": b"2"}
"""How secured a spell must be for what happened to its server to have lost nothing of it."""

LEASE = 10_000
"""Milliseconds after which another may flush a thread whose flusher died; flushing twice does no
harm, so that this only avoids work."""


LARGEST_TAKE = 4 * 1024 * 1024
"""Bytes taken at once: what one statement of a group commit may hold."""


class RedisOutbox(RedisScrub):
    """Implements `Outbox`.

    Args:
        scripts: runs the scripts of `lua/`.
        prefix: stands before every key.
        ttl: seconds that a copy lives once its spell has ended.
        bound: entries that a thread's outbox may hold.
        secured: what loses nothing that this saver acknowledges; see `Policy`.
    """

    def __init__(self, scripts: Scripts, prefix: str, ttl: int, bound: int, secured: int) -> None:
        self._scripts = scripts
        self._prefix = prefix
        self._ttl = ttl
        self._bound = bound
        self._secured = str(secured)

    # -- appending ---------------------------------------------------------------------------

    async def append(
        self, put: Put, step: Step, token: bytes, opened: Opened | None, refused: bool
    ) -> Answer:
        args: tuple[bytes | str | int, ...] = (
            token,
            _REFUSED if refused else int(put.claim),
            put.expected,
            put.digest,
            put.id,
            put.parent or "",
            put.record,
            keys.packed(put.numbers),
            step.base,
            outgoing.pack_item(put),
            self._bound,
            *_opened(opened),
            self._secured,
            _fence(put),
            len(step.dropped),
            *map(hotcopy.chunk_field, step.dropped),
            *fields(step.chunks),
        )
        thread = put.place.thread
        names = [*self._of_place(put.place), *self._of_thread(thread)[:2], self._fence(thread)]
        return _answer(await self._scripts.call("append", names, args))

    async def append_writes(self, item: PutWrites, token: bytes, opened: Opened | None) -> Answer:
        args: list[bytes | str | int] = [
            token,
            outgoing.pack_item(item),
            self._bound,
            *_opened(opened),
            self._secured,
            _fence(item),
        ]
        for row in item.rows:
            named = outgoing.write_field
            other = named(row.id, row.task, differing_slot(row.digest)) if row.slot >= 0 else b""
            args += [
                named(row.id, row.task, row.slot),
                other,
                outgoing.pack_write(row, item.chunks),
            ]
        spell, _, writes = self._of_place(item.place)
        thread = item.place.thread
        names = [spell, writes, *self._of_thread(thread)[:2], self._fence(thread)]
        return _answer(await self._scripts.call("append_writes", names, args))

    async def raise_fence(self, thread: Thread, fence: int) -> None:
        await self._scripts.call("fence", [self._fence(thread)], [fence])

    async def note(self, item: PutWrites) -> None:
        args: list[bytes | str | int] = [item.id, self._ttl]
        for row in item.rows:
            args.append(outgoing.write_field(row.id, row.task, row.slot))
            args.append(outgoing.pack_write(row, item.chunks))
        spell, _, writes = self._of_place(item.place)
        await self._scripts.call("note", [spell, writes], args)

    # -- reading -----------------------------------------------------------------------------

    async def peek(self, place: Place, held: Digest) -> HotFound:
        answer = await self._scripts.call("peek", self._of_place(place), [held])
        spell, digest, copy, writes = answer
        try:
            row, chunks = hotcopy.copy_of(place.ns, named(copy)) if copy else (None, {})
        except Unsound:
            row, chunks = None, {}  # as if it were gone: what is not whole serves nobody
        written = named(writes).items()
        pairs = [pair for name, data in written if (pair := _hot_write(name, data)) is not None]
        own = {c.no: c for _, sent in pairs for c in sent}
        rows = tuple(row for row, _ in pairs)
        try:
            return HotFound(_spell(spell), digest, row, chunks, rows, own)
        except DAMAGE as error:
            found = Unsound(None, f"a spell cannot be read ({error!r})")
            raise _unreadable(place.thread, found, place.ns, "in Redis") from error

    async def evicts(self) -> str:
        nowhere = Place(Thread("", "", UUID(int=0)), "")
        policy: bytes = await self._scripts.call("evicts", self._of_place(nowhere)[:1], [])
        return policy.decode()

    # -- flushing ----------------------------------------------------------------------------

    async def take(self, thread: Thread, holder: bytes, limit: int) -> Outgoing | None:
        answer = await self._scripts.call(
            "take", self._of_thread(thread), [holder, LEASE, limit, LARGEST_TAKE]
        )
        if answer is None:
            return None
        first, left, *entries = answer
        read: list[Entry] = []
        for data in entries:
            try:
                read.append(outgoing.read_entry(data))
            except Unsound as found:
                if not read:
                    raise _unreadable(thread, found) from found
                break
        try:
            return Outgoing(int(first), tuple(read), int(left) + len(entries) - len(read))
        except DAMAGE as error:
            bad = Unsound(None, f"the count of its entries cannot be read ({error!r})")
            raise _unreadable(thread, bad) from error

    async def skip(self, thread: Thread, known: bytes | None = None) -> bytes | None:
        names = self._of_thread(thread)[:2]
        oldest = await self._scripts.call("skip", names, []) if known is None else known
        if oldest is None or (known is None and _is_readable(oldest)):
            return None
        skipped: bytes | None = await self._scripts.call("skip", names, [oldest])
        return skipped

    async def ack(
        self,
        thread: Thread,
        holder: bytes,
        first: int,
        count: int,
        last: int,
        flushed: Mapping[tuple[str, bytes], Sequence[Digest]],
    ) -> int:
        names = self._of_thread(thread)
        args: list[bytes | str | int] = [first, count, holder, last]
        for (ns, token), digests in flushed.items():
            names.append(self._of_place(Place(thread, ns))[0])
            args += [token, digests[-1]]
        return int(await self._scripts.call("ack", names, args))

    async def depth(self, thread: Thread) -> tuple[int, float]:
        depth, age = await self._scripts.call("depth", self._of_thread(thread)[:1], [])
        return int(depth), int(age) / 1e6

    async def threads(self) -> list[UUID]:
        found = await self._scripts.find(f"{self._prefix}:*:outbox")
        threads = (keys.thread_of_outbox(name) for name in found)
        return sorted({thread for thread in threads if thread is not None})

    # -- ending ------------------------------------------------------------------------------

    async def close(self, place: Place, token: bytes, quiet: float) -> bool:
        names = [self._of_place(place)[0], self._of_thread(place.thread)[0]]
        return bool(await self._scripts.call("close", names, [token, round(quiet * 1e6)]))

    async def forget(self, place: Place, token: bytes) -> None:
        await self._scripts.call("forget", self._of_place(place), [token, self._ttl])

    async def outdated(self, place: Place) -> None:
        await self._scripts.call("outdated", self._of_place(place), [])

    async def discard(self, place: Place, token: bytes, head: Digest) -> bool:
        return bool(await self._scripts.call("discard", self._of_place(place), [token, head]))

    async def guard(self, place: Place, token: bytes) -> bool:
        return bool(await self._scripts.call("guard", self._of_place(place)[:1], [token]))

    async def adopt(self, place: Place, token: bytes, flushed: int) -> None:
        await self._scripts.call("adopt", self._of_place(place)[:1], [token, flushed])

    async def erase(self, thread: Thread, namespaces: Sequence[str]) -> None:
        names = [name for ns in namespaces for name in self._of_place(Place(thread, ns))]
        await self._scripts.call("drop", [*names, *self._of_thread(thread)], [])

    # -- keys --------------------------------------------------------------------------------

    def _fence(self, thread: Thread) -> str:
        return keys.outbox_key(self._prefix, thread.key, ":fence")


def _unreadable(
    thread: Thread, found: Unsound, ns: str = "", where: str = "in the outbox"
) -> CorruptionError:
    return CorruptionError(
        thread=thread.id or thread.key.hex,
        namespace=ns,
        checkpoint=where,
        channel=None,
        detail=found.detail,
    )


def _hot_write(name: bytes, data: bytes) -> tuple[WriteRow, tuple[ChunkRow, ...]] | None:
    """A row of pending writes with its chunks; one that is damaged is found so when it is read."""
    try:
        return outgoing.read_write(name, data)
    except Unsound:
        row = outgoing.damaged_write(name)
        return (row, ()) if row is not None else None


def _is_readable(data: bytes) -> bool:
    try:
        outgoing.read_entry(data)
    except Unsound:
        return False
    return True


def _fence(item: Put | PutWrites) -> int | str:
    return "" if item.fence is None else item.fence


def _opened(opened: Opened | None) -> tuple[bytes | str | int, ...]:
    if opened is None:
        return "", b"", "", 0, ""
    head = opened.head or Head("", 0, _UNKNOWN)
    return "1", head.digest, head.id, head.seq, "1" if opened.marked else ""


def _answer(answer: Sequence[Any]) -> Answer:
    kind, *facts = answer
    if kind == b"won":
        return Won(int(facts[0]), repeated=facts[1] == 1, guarded=facts[2] == b"1")
    if kind == b"kept":
        return Kept(int(facts[0]))
    if kind == b"stored":
        return Stored(repeated=facts[0] == 1, guarded=facts[1] == b"1")
    if kind == b"cold":
        return Cold(facts[0], facts[1])
    return _UNFIT[kind]


def _spell(fields: Sequence[Any]) -> Spell | None:
    token, phase, previous, id, seq, digest, base, chain, marked, secured, since, _ = fields
    if token is None:
        return None
    known = digest if digest != _UNKNOWN else b""
    return Spell(
        token,
        _PHASES[phase],
        previous or b"",
        Head((id or b"").decode(), int(seq or 0), known),
        None if base == _UNKNOWN else base,
        tuple(chain[i : i + _DIGEST] for i in range(0, len(chain), _DIGEST)),
        marked == b"1",
        (secured or b"0") >= _EXCUSED.get(since, b"0"),
        bool(since),
    )
