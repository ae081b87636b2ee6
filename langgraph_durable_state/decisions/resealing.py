"""A thread under other keys: every chunk, batch and record of it made anew, oldest first.

What was stored stays as it is, ids and values; digests change, so what refers to one refers to the
new one. A head counts one move more: whoever knew the old one is to see that it was not set back.
Chunks get new numbers: what waits to be stored may still send the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..words import ChunkRow, Digest, Head, Place, RecordRow, Rewritten, WriteRow
from . import codec, edges, heads
from .chunking import Channel
from .codec import Batch, Blobs, Record
from .digest import Seal
from .matching import Chunk


@dataclass
class Resealed:
    """What was made so far, under `seal`; `project` gives a record's metadata to search by."""

    blobs: Blobs
    seal: Seal
    numbers: Iterator[int]
    project: Callable[[Record], str]
    old: bool = False
    """Whether anything was under another seal, or, under a key, of a format without edges."""
    fresh: list[Chunk] = field(default_factory=list)
    """Chunks under `seal` that are not stored yet."""
    _chunks: dict[int, Chunk] = field(default_factory=dict)
    _marks: set[Digest] = field(default_factory=set)
    _digests: dict[Digest, Digest] = field(default_factory=dict)
    _records: list[tuple[Digest, RecordRow, str]] = field(default_factory=list)
    _gone: list[tuple[str, WriteRow]] = field(default_factory=list)
    _writes: list[tuple[int, str, WriteRow]] = field(default_factory=list)
    _heads: dict[str, Head] = field(default_factory=dict)
    _former: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def batch(
        self,
        former: Sequence[tuple[str, WriteRow]],
        place: Place,
        batch: Batch,
        seal: Seal,
        aside: bool = False,
    ) -> None:
        """A batch of writes made of verified rows under `seal`, each with its namespace.

        Args:
            former: the rows.
            place, batch: where it is stored, and what it is.
            seal: theirs.
            aside: it is not its task's first, if it differs from that at all.
        """
        self._note(seal)
        writes, other = self._channels(batch.writes), batch.other
        if other is not None:
            other = replace(other, writes=self._channels(other.writes))
        batch = replace(batch, writes=writes, other=other)
        made = codec.pack_batch(place, batch, self.blobs, self.seal)
        if aside:
            made = replace(made, slot=codec.differing_slot(made.digest))
        if not aside or made.digest not in self._marks:
            self._writes.append((len(self._gone), place.ns, made))
        self._marks.add(made.digest)
        for ns, row in former:
            self._gone.append((ns, row))
            self._digests[row.digest] = made.digest

    def record(self, row: RecordRow, record: Record, is_head: bool) -> Record:
        """A record made of a verified row; its parent, if it is there, came before, and so did that
        one's writes. That it is not there is taken as it is where nothing had to say why."""
        self._note(record.seal)
        keyed = bool(self.seal.id)
        self.old = self.old or record.edged != keyed
        consumed, other = record.consumed, record.other
        made = replace(
            record,
            parent_digest=self._renamed(record.parent_digest),
            channels=self._channels(record.channels),
            other=None
            if other is None
            else replace(other, channels=self._channels(other.channels)),
            consumed=None if consumed is None else self._all_renamed(consumed),
            seal=self.seal,
            count=self._count(record, is_head),
            edged=keyed,
        )
        digest = made.digest()
        self._digests[row.digest] = digest
        packed = codec.pack_record(made, self.blobs, digest)
        shown = self.project(record)
        ns = made.place.ns
        told = row.orphan and edges.is_told(record, row)
        edge = edges.edge(self.seal, made.place, row.id, digest, row.parent) if told else b""
        new = replace(row, ns=ns, digest=digest, record=packed, numbers=made.numbers, edge=edge)
        self._records.append((row.digest, new, shown))
        if ns != row.ns:
            self._former[ns] = row.ns
        if is_head:
            sign = heads.signature(self.seal, made.place, made.id, digest, made.count)
            self._heads[ns] = Head(made.id, row.seq, digest, sign)
        return made

    def done(self) -> Rewritten:
        """All of it."""
        new = [*self.fresh, *(chunk for no, chunk in self._chunks.items() if chunk.no != no)]
        rows = [codec.chunk_row(chunk, self.blobs) for chunk in new]
        told = self._records, self._gone, self._writes, rows, self._heads, self._former
        return Rewritten(*told)

    def _note(self, seal: Seal) -> None:
        self.old = self.old or seal.id != self.seal.id

    def _count(self, record: Record, is_head: bool) -> int:
        if not self.seal.id:
            return 0
        place = record.place.ns
        last = self._counts.get(place, 0)
        count = record.count or last + 1
        self._counts[place] = max(last, count)
        return self._counts[place] + 1 if is_head else count

    def _renamed(self, digest: Digest) -> Digest:
        return self._digests.get(digest, digest)

    def _all_renamed(self, digests: Iterable[Digest]) -> tuple[Digest, ...]:
        return tuple(dict.fromkeys(map(self._renamed, digests)))

    def _channels(self, channels: Sequence[Channel]) -> tuple[Channel, ...]:
        return tuple(self._channel(channel) for channel in channels)

    def _channel(self, channel: Channel) -> Channel:
        pieces = tuple(replace(p, chunk=self._chunk(p.chunk)) for p in channel.pieces)
        return replace(channel, pieces=pieces)

    def _chunk(self, chunk: Chunk) -> Chunk:
        self._note(chunk.seal)
        if chunk.no not in self._chunks:
            if chunk.seal.id == self.seal.id:
                self._chunks[chunk.no] = chunk
            else:
                no = next(self.numbers)
                self._chunks[chunk.no] = Chunk(no, chunk.plain, chunk.count, seal=self.seal)
        return self._chunks[chunk.no]


def parents_first(
    records: Sequence[tuple[RecordRow, Record]],
) -> Iterator[tuple[RecordRow, Record]]:
    """Records in an order in which none comes before its parent: that of the namespace, but for a
    parent that was put again."""
    left = list(records)
    while left:
        waiting, later = {row.digest for row, _ in left}, []
        for row, record in left:
            if record.parent_digest in waiting and record.parent_digest != row.digest:
                later.append((row, record))
                continue
            waiting.discard(row.digest)
            yield row, record
        left = later


def chunks_of(rows: Mapping[int, ChunkRow], numbers: Iterable[int]) -> dict[int, ChunkRow]:
    """Those of some numbers that are there."""
    return {no: rows[no] for no in numbers if no in rows}
