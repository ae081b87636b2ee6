"""What the checkpoints of a listing say of each other, where a key makes it worth asking.

A child covers its parent's digest and the writes against it that it consumed: a parent that was
replaced by another version of itself, or that lost one of those writes, contradicts it. One that is
missing does, unless the child's edge says that it was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..decisions import edges
from ..decisions.codec import Record, Unsound
from ..words import Digest, Place, RecordRow, WriteRow
from .reading import corrupt


@dataclass(frozen=True, slots=True)
class Links:
    """The children seen so far, by their parent's place and id."""

    children: Mapping[tuple[Place, str], tuple[Record, ...]] = field(default_factory=dict)

    def followed(self, seen: Iterable[tuple[Record, RecordRow, Iterable[WriteRow]]]) -> Links:
        """What is known after some more checkpoints, each with its row of a page and the pending
        writes that it is stored with; children come before their parents.

        Raises:
            CorruptionError: if one is not what its child was made from, or is missing.
        """
        children = dict(self.children)
        for record, row, writes in seen:
            for child in children.pop((record.place, record.id), ()):
                _check(record, row.digest, child, {row.digest for row in writes})
            if row.orphan and not edges.is_told(record, row):
                raise corrupt(record.place, row.parent or "", Unsound(None, edges.UNTOLD))
            if record.parent is not None:
                key = record.place, record.parent
                children[key] = (*children.get(key, ()), record)
        return Links(children)


def _check(record: Record, digest: Digest, child: Record, stored: set[Digest]) -> None:
    if child.parent_digest not in (digest, b""):  # empty: its writer did not know the parent
        found = "its child was made from another content"
    elif not stored.issuperset(child.consumed or ()):
        found = "a write that its child consumed is missing"
    else:
        return
    raise corrupt(record.place, record.id, Unsound(None, found))
