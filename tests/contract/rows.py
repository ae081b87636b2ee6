"""Rows made by hand: the ports take any bytes, so that every expected value can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langgraph_durable_state.decisions import digest, keys
from langgraph_durable_state.ports import Commits, Durable, Hot, Outbox
from langgraph_durable_state.words import (
    ChunkRow,
    Claim,
    Digest,
    Listing,
    Outcome,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Thread,
    WriteRow,
)


@dataclass(frozen=True)
class Ports:
    """One driver's ports."""

    durable: Durable
    hot: Hot
    commits: Commits
    outbox: Outbox

    async def won(self, *puts: Put) -> None:
        """Stores puts one after the other."""
        for one in puts:
            await self.durable.commit([one])

    async def ids(self, **wanted: Any) -> list[str]:
        """The ids of one page, as it lists them."""
        page = await self.durable.page(listing(**wanted))
        return [row.id for _, row in page.rows]

    async def head(self, place: Place) -> str | None:
        found = await self.durable.read(place, None, b"", None)
        return found.head.id if found else None


class InCompany:
    """A durable tier whose every batch holds another thread's writes as well: what waits alone
    may be stored by other statements than what goes together."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._durable, verb)

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        place = at(id="other", tenant="company")
        company = writes(write("a", "T", "w"), place=place)
        return (await self._durable.commit([*batch, company]))[:-1]


def mark(text: str) -> Digest:
    """The digest that stands for `text`."""
    return digest.PLAIN.of_bytes(text.encode())


def thread(id: str = "t", tenant: str = "", **owners: str) -> Thread:
    return keys.named(tenant, id, **owners)


def at(ns: str = "", id: str = "t", tenant: str = "", **owners: str) -> Place:
    return Place(thread(id, tenant, **owners), ns)


HERE = at()


def chunk(no: int, text: str) -> ChunkRow:
    """A chunk whose three bytes of header say that it holds one item."""
    return ChunkRow(no, mark(text), b"\x00\x00\x01" + text.encode())


def put(
    id: str,
    claim: Claim = Claim.ANY,
    expected: str = "",
    *,
    place: Place = HERE,
    content: str | None = None,
    parent: str | None = None,
    meta: str = "{}",
    chunks: tuple[ChunkRow, ...] = (),
    also: tuple[int, ...] = (),
    refers: str | None = None,
    base: str | None = None,
    covered: bool = False,
    size: int = 10,
    fence: int | None = None,
    consumed: str | None = None,
) -> Put:
    """A put whose digest is that of its content, and its content its id unless told otherwise.

    `expected`, `base` and `consumed` are contents; `also` are chunks that are there already.
    """
    content = id if content is None else content
    return Put(
        place,
        id,
        parent,
        claim,
        mark(expected) if expected else b"",
        mark(content),
        b"record of " + content.encode(),
        meta,
        (*(c.no for c in chunks), *also),
        chunks,
        size,
        refers,
        mark(base or refers) if refers else b"",
        covered,
        fence=fence,
        consumed=(mark(consumed),) if consumed else (),
    )


def row(one: Put, seq: int, refused: bool = False) -> RecordRow:
    """What is to be read back of a put."""
    return RecordRow(
        one.place.ns, one.id, one.parent, seq, one.digest, one.record, one.numbers, refused
    )


def write(
    id: str, task: str, content: str, slot: int = 0, numbers: tuple[int, ...] = ()
) -> WriteRow:
    return WriteRow(id, task, slot, "path", 1, mark(content), content.encode(), numbers)


def writes(
    *rows: WriteRow,
    place: Place = HERE,
    chunks: tuple[ChunkRow, ...] = (),
    fence: int | None = None,
) -> PutWrites:
    return PutWrites(place, rows[0].id, rows, chunks, fence)


def listing(
    thread: Thread | None = HERE.thread,
    tenant: str = "",
    ns: str | None = None,
    id: str | None = None,
    before: str | None = None,
    filter: dict[str, str] | None = None,
    limit: int = 100,
    **more: Any,
) -> Listing:
    return Listing(thread, tenant, ns, id, before, filter or {}, limit, **more)
