"""`put` and `put_writes`, written once.

Both serialize all they need of the caller's objects before their first await, so what the caller
does to them later changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..decisions import keys
from ..decisions.serializing import Serializer
from ..errors import ConflictError, NumberTakenError, UsageError
from ..ports import Commits, Durable
from ..words import Claim, Lost, Outcome, ParentGone, Place, Stored, Won, WriteRow
from .copies import Copies
from .drafting import Draft, DraftWrites, Request, draft, draft_writes, request
from .reading import config_of
from .runs import Made, Run, Stance, run_of_versions, stance, tagged_run
from .shared import Known, Shared


class Writer:
    """Writes through one driver's tiers.

    Args:
        shared: the saver's.
        durable: to read a parent that this process does not know.
        commits: stores.
        copies: the hot tier's.
    """

    def __init__(self, shared: Shared, durable: Durable, commits: Commits, copies: Copies) -> None:
        self._shared = shared
        self._durable = durable
        self._commits = commits
        self._copies = copies

    # -- put ---------------------------------------------------------------------------------

    async def put(
        self,
        serializer: Serializer,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> Any:
        asked = request(config, checkpoint, metadata, new_versions)
        run = run_of_versions(checkpoint.get("channel_versions") or {})
        loaded = tagged_run(config)
        if run is not None and run.conflict is not None:
            raise run.conflict
        actor = run or (loaded if loaded is not None and loaded.addressed else None)
        if actor is not None:
            self._shared.register.started(actor, asked.place, asked.id)
        parent = self._known_parent(run, asked)
        if parent is None and asked.parent is not None:
            # A fork of a checkpoint that this process has not seen lately.
            asked = asked.frozen(serializer)
            parent = await self._load(asked.place, asked.parent)
        position = self._stance(run, loaded, asked, parent)
        consumed = None
        if position.run is not None and position.run.at == asked.parent and asked.parent:
            consumed = self._shared.register.consumed(position.run, asked.place)
        made = draft(
            asked, position, parent, consumed, serializer, self._shared.numbers, self._shared.blobs
        )
        await self._store(made)
        return config_of(asked.place, asked.id, None)

    def _known_parent(self, run: Run | None, asked: Request) -> Known | None:
        if asked.parent is None:
            return None
        if run is not None and run.at == asked.parent and run.record is not None:
            return Known(run.record, run.digest)
        return self._shared.recent.get((asked.place, asked.parent))

    async def _load(self, place: Place, id: str | None) -> Known | None:
        found = await self._durable.read(place, id, b"", None)
        if found is None or found.row is None:
            return None
        return Known(self._shared.reader.record(place, found.row, found.chunks), found.row.digest)

    def _stance(
        self, run: Run | None, loaded: Run | None, asked: Request, parent: Known | None
    ) -> Stance:
        found = stance(run, loaded, asked.place, asked.parent, asked.stub)
        if found is None:
            if parent is None:
                raise UsageError(
                    f"thread {asked.place.thread.id!r} has no checkpoint {asked.parent}"
                )
            found = Stance(run, Claim.HEAD, parent.digest)
        if self._shared.fork_on_conflict and found.claim is not Claim.ASIDE:
            return replace(found, claim=Claim.ANY)
        return found

    async def _store(self, made: Draft) -> None:
        made, outcome = await self._submit(made)
        if isinstance(outcome, Lost):
            raise _lost(made, outcome)
        known = Known(made.record, made.put.digest)
        if isinstance(outcome, Won) and outcome.repeated:
            known = await self._load(made.put.place, made.put.id) or known
        self._shared.recent.put((made.put.place, made.put.id), known)
        if isinstance(outcome, Won):
            self._shared.register.settled(made.put.place, made.put.parent)
            if made.run is not None:
                made.run.advanced(known.record, known.digest)
            self._shared.heads.put(made.put.place, known.record, known.digest)
            if not outcome.repeated:
                await self._copies.follow(made, outcome.seq)

    async def _submit(self, made: Draft) -> tuple[Draft, Outcome]:
        try:
            outcome = await self._commits.submit(made.put)
        except NumberTakenError:
            # One chance in 2**40 per block of numbers; the record does not hold them.
            self._shared.numbers.draw()
            made = made.renumbered(self._shared.numbers, self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        if isinstance(outcome, ParentGone):
            made = made.whole(self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        return made, outcome

    # -- put_writes --------------------------------------------------------------------------

    async def put_writes(
        self,
        serializer: Serializer,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        place = keys.place_of(config)
        id = keys.checkpoint_id_of(config)
        if id is None:
            raise UsageError('put_writes needs config["configurable"]["checkpoint_id"]')
        if not writes:
            return
        made = draft_writes(place, id, writes, task_id, task_path, serializer, self._shared.numbers)
        run = self._shared.register.of_writes(config, place, id)
        if run is not None:
            run.against(id).flying.update((chunk.digest, chunk) for chunk in made.new)
        rows, outcome = await self._store_writes(made)
        digests: Made = {(row.task, row.slot): row.digest for row in rows if row.slot >= 0}
        repeated = isinstance(outcome, Stored) and outcome.repeated
        chunks = [] if repeated else made.ordinary_chunks(rows)
        self._shared.register.wrote(run, place, id, digests, chunks)

    async def _store_writes(self, made: DraftWrites) -> tuple[tuple[WriteRow, ...], Outcome]:
        item = made.put(self._shared.blobs)
        try:
            outcome = await self._commits.submit(item)
        except NumberTakenError:
            self._shared.numbers.draw()
            for chunk in made.new:
                chunk.no = next(self._shared.numbers)
            item = made.put(self._shared.blobs)
            outcome = await self._commits.submit(item)
        return item.rows, outcome


def _lost(made: Draft, outcome: Lost) -> ConflictError:
    """The error of a put that lost; its run is told as well."""
    run = made.run
    error = ConflictError(
        thread=made.put.place.thread.id,
        namespace=made.put.place.ns,
        expected=run.at if run is not None else made.put.parent,
        actual=outcome.actual,
        refused=made.put.id if outcome.kept and outcome.actual is not None else None,
    )
    if run is not None:
        run.conflict = error
    return error
