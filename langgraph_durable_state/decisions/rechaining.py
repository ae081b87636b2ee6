"""Records under another thread's name: what a copy must digest anew.

A digest covers the thread, so every record and write of a copied thread gets a new one, parents
before children, and what refers to an old digest is made to refer to its new one. Chunks keep
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..words import Digest, Place, RecordRow, Thread, WriteRow
from . import codec, edges, heads
from .codec import Batch, Blobs, Record
from .digest import Seal


@dataclass
class Rechained:
    """The new digests so far, which are made under `seal`, by the old ones."""

    target: Thread
    blobs: Blobs
    seal: Seal
    records: dict[Digest, Digest] = field(default_factory=dict)
    writes: dict[Digest, Digest] = field(default_factory=dict)

    def batch(self, ns: str, row: WriteRow, batch: Batch) -> WriteRow:
        """A verified write batch as a row of the target."""
        made = codec.pack_batch(Place(self.target, ns), batch, self.blobs, self.seal)
        self.writes[row.digest] = made.digest
        return made

    def record(self, row: RecordRow, record: Record) -> RecordRow:
        """A verified record as a row of the target; its parent, if copied, came before. Its edge is
        for where that is not copied, or is removed meanwhile."""
        consumed = record.consumed
        made = replace(
            record,
            place=Place(self.target, record.place.ns),
            parent_digest=self.records.get(record.parent_digest, record.parent_digest),
            consumed=None if consumed is None else self._renamed(consumed),
            seal=self.seal,
            edged=bool(self.seal.id),
        )
        digest = made.digest()
        self.records[row.digest] = digest
        packed = codec.pack_record(made, self.blobs, digest)
        return replace(row, digest=digest, record=packed, edge=self._edge(row, record, digest))

    def _edge(self, row: RecordRow, record: Record, digest: Digest) -> bytes:
        if row.orphan and not edges.is_told(record, row):
            return b""
        return edges.edge(self.seal, Place(self.target, row.ns), row.id, digest, row.parent)

    def signed(self, row: RecordRow, record: Record) -> bytes:
        """What signs a row of the target as a head; `record` is what it was made from."""
        place = Place(self.target, row.ns)
        return heads.signature(self.seal, place, row.id, row.digest, record.count)

    def _renamed(self, consumed: Iterable[Digest]) -> tuple[Digest, ...]:
        return tuple(self.writes.get(mark, mark) for mark in consumed)
