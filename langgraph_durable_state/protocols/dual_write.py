"""What is stored a second time in the shape of the version before, while code of both versions is
at work: the older code reads that form, and misses nothing but what it has no place for.

The second form refers to the same chunks wherever a value is the same under another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph._internal._constants import INTERRUPT, NO_WRITES

from ..decisions.chunking import Channel, Weaver
from ..decisions.codec import Batch, Form, Record
from ..decisions.evolution.snapshot import Snapshot, Write
from ..decisions.evolution.tasks import is_users
from ..decisions.serializing import Serializer
from ..decisions.versions import own_fields
from ..words import Place
from .reading import Reader
from .shared import Lately


class DualWrite:
    """Makes second forms.

    Args:
        reader: reads as the code of today; its shape says of which version the second form is.
        outlines: checkpoints without the user's values, by place and id.
        over: checkpoints that no older code can go on from, by place and id.
        interrupts: the ids that interrupts have in the second form, by those of today.
    """

    def __init__(
        self,
        reader: Reader,
        outlines: Lately[tuple[Place, str], Snapshot],
        over: Lately[tuple[Place, str], bool],
        interrupts: Lately[str, str],
    ) -> None:
        self._reader = reader
        self._shape = reader.shape
        self._outlines = outlines
        self._over = over
        self._interrupts = interrupts

    @property
    def on(self) -> bool:
        return self._shape.beside is not None

    def read(self, record: Record, batches: Sequence[Batch]) -> None:
        """Notes a checkpoint as it was read. If anything of it is in today's shape alone, older
        code cannot go on from it, and a second form would stand beside what counts."""
        today = self._shape.version
        alone = record.other is None and record.schema_version == today
        alone |= any(b.other is None and b.schema_version == today for b in batches)
        if self.on and (alone or self.is_over(record.place, record.id)):
            self._over.put((record.place, record.id), alone)

    def is_over(self, place: Place, id: str) -> bool:
        """Whether what waits on a checkpoint is to be stored in today's shape alone."""
        return bool(self._over.get((place, id)))

    def outline(self, place: Place, id: str) -> Snapshot | None:
        """A checkpoint that is known here, in today's shape."""
        return self._outlines.get((place, id))

    def note(self, place: Place, snapshot: Snapshot) -> Snapshot:
        """Keeps the outline of a checkpoint in today's shape."""
        values = snapshot.checkpoint["channel_values"]
        own = {name: value for name, value in values.items() if not is_users(name)}
        checkpoint = {**snapshot.checkpoint, "channel_values": own}
        outline = replace(snapshot, checkpoint=checkpoint, writes=())
        self._outlines.put((place, checkpoint["id"]), outline)
        return outline

    def form(
        self,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        channels: Sequence[Channel],
        base: Record | None,
        weaver: Weaver,
        serializer: Serializer,
    ) -> Form:
        """The second form of a checkpoint whose channels are those of the first.

        Raises:
            EvolutionError: if it cannot be brought there.
            ValueRefusedError: if a value of it would not come back.
        """
        older = self._shape.beside
        assert older is not None
        values = dict(checkpoint.get("channel_values") or {})
        if serializer.screen is not None:  # what was taken out of the first form stays out
            values = {c.name: self._reader.value(c, serializer) for c in channels}
        seen = Snapshot(
            place.named, self._shape.version, {**checkpoint, "channel_values": values}, metadata
        )
        self.note(place, seen)
        made = self._shape.before(place, seen)
        stored = self._shape.unchanged(base, older) if base is not None else {}
        same = {id(values[c.name]): c for c in channels if c.name in values}
        out = []
        versions, now = made.checkpoint["channel_versions"], made.checkpoint["channel_values"]
        for name, value in now.items():
            version, found = versions.get(name), same.get(id(value))
            if found is not None:
                out.append(replace(found, name=name, version=version))
            else:
                out.append(weaver.channel(name, value, version=version, base=stored.get(name)))
        return Form(
            older,
            serializer.dumps(own_fields(made.checkpoint), "the checkpoint's own fields"),
            serializer.dumps(dict(made.metadata), "metadata"),
            tuple(out),
        )

    def batch(
        self,
        place: Place,
        batch: Batch,
        values: Sequence[Any],
        outline: Snapshot,
        weaver: Weaver,
        serializer: Serializer,
    ) -> Batch:
        """A batch of writes in its second form, with the first.

        Raises:
            EvolutionError: if it cannot be brought there.
            ValueRefusedError: if a value of it would not come back.
        """
        older = self._shape.beside
        assert older is not None
        if serializer.screen is not None:
            values = [self._reader.value(write, serializer) for write in batch.writes]
        of, version = (batch.task, batch.path), self._shape.version
        pairs = [(w.name, value) for w, value in zip(batch.writes, values, strict=True)]
        # That nothing it wrote is known to the older code must not look as if it had not run.
        writes = tuple(Write(*of, *pair, version) for pair in (*pairs, (NO_WRITES, None)))
        known = self._known(values)
        made = self._shape.before(place, replace(outline, writes=writes), known).writes
        kept = [write for write in made if write.channel != NO_WRITES] or made
        self._learn(pairs, kept)
        same = {id(value): w for w, value in zip(batch.writes, values, strict=True)}
        channels = []
        for write in kept:
            found = same.get(id(write.value))
            if found is not None:
                channels.append(replace(found, name=write.channel))
            else:
                channels.append(weaver.write(write.task, write.channel, write.value))
        task, path = made[0].task, made[0].path
        return Batch(batch.id, task, path, batch.slot, tuple(channels), older, batch)

    def _known(self, values: Sequence[Any]) -> dict[str, str]:
        """The other ids of interrupts that were raised further in."""
        ids = [each for value in values for each in _ids(value)]
        return {id: old for id in ids if (old := self._interrupts.get(id)) is not None}

    def _learn(self, before: Sequence[tuple[str, Any]], after: Sequence[Write]) -> None:
        ids = [each for name, value in before if name == INTERRUPT for each in _ids(value)]
        olds = [each for w in after if w.channel == INTERRUPT for each in _ids(w.value)]
        for id, old in zip(ids, olds, strict=False):
            self._interrupts.put(id, old)


def _ids(value: Any) -> list[str]:
    each = value if isinstance(value, (list, tuple)) else [value]
    return [one.id for one in each if isinstance(getattr(one, "id", None), str)]
