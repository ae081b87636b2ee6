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
from ..errors import ConflictError, NumberTakenError, UnavailableError, UsageError
from ..ports import Commits, Durable
from ..words import Ahead, Claim, Lost, Outcome, ParentGone, Place, Stored, Won, WriteRow
from .behind import Behind
from .copies import Copies
from .drafting import (
    HOT_LOST,
    QUEUED,
    Draft,
    DraftWrites,
    Request,
    draft,
    draft_writes,
    exits,
    request,
)
from .flushing import Flusher
from .reading import config_of
from .runs import Made, Run, Stance, run_of_versions, stance, tagged_run
from .shared import Known, Shared


class Writer:
    """Writes through one driver's tiers.

    Args:
        shared: the saver's.
        durable: to read a parent that this process does not know.
        commits: stores durably.
        copies: the hot tier's.
        behind: stores in the hot tier; None if there is none.
        flusher: makes that durable.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        commits: Commits,
        copies: Copies,
        behind: Behind | None,
        flusher: Flusher,
    ) -> None:
        self._shared = shared
        self._policy = shared.policy
        self._durable = durable
        self._commits = commits
        self._copies = copies
        self._behind = behind
        self._flusher = flusher

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
        hot = self._prefers_hot(position.run, asked.config)
        made = draft(
            asked,
            position,
            parent,
            consumed,
            serializer,
            self._shared.numbers,
            self._shared.blobs,
            hot,
        )
        await self._store(made, serializer, hot, self._must_be_durable(asked.config))
        return config_of(asked.place, asked.id, None)

    def _prefers_hot(self, run: Run | None, config: Mapping[str, Any]) -> bool:
        if self._behind is None:
            return False
        return (run is not None and run.hot) or not self._must_be_durable(config)

    def _must_be_durable(self, config: Mapping[str, Any]) -> bool:
        """Whether Postgres has to have what is acknowledged."""
        return not self._policy.write_behind or exits(config)

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

    async def _store(self, made: Draft, serializer: Serializer, hot: bool, durably: bool) -> None:
        made, outcome, hot = await self._stored(made, serializer, hot, durably)
        if isinstance(outcome, Lost):
            raise _lost(made, outcome)
        known = Known(made.record, made.put.digest)
        if isinstance(outcome, Won) and outcome.repeated:
            known = await self._load(made.put.place, made.put.id) or known
        self._shared.recent.put((made.put.place, made.put.id), known)
        if isinstance(outcome, Won):
            self._won(made, known, outcome, hot)
            if not outcome.repeated and not hot:
                await self._copies.follow(made, outcome.seq)

    def _won(self, made: Draft, known: Known, outcome: Won, hot: bool) -> None:
        self._shared.register.settled(made.put.place, made.put.parent)
        self._shared.heads.put(made.put.place, known.record, known.digest, ())
        if made.run is not None:
            made.run.advanced(known.record, known.digest)
            made.run.hot = hot
            made.run.degraded = None if outcome.guarded else QUEUED

    async def _stored(
        self, made: Draft, serializer: Serializer, hot: bool, durably: bool
    ) -> tuple[Draft, Outcome, bool]:
        """Stores a put in the tier that is its own, or in the other; which one it was."""
        down: UnavailableError | None = None
        if hot and self._behind is not None:
            try:
                return await self._stored_hot(self._behind, made, serializer, durably)
            except UnavailableError as error:
                if error.tier != "redis":
                    raise
                down = error
        try:
            made, outcome = await self._submit(made, serializer)
        except UnavailableError as error:
            if self._behind is None or down is not None or not self._policy.queues:
                raise
            if error.tier != "postgres":
                raise
            made = made.marked(serializer, self._shared.blobs, QUEUED)
            return await self._stored_hot(self._behind, made, serializer, durably=False)
        if not isinstance(outcome, Ahead):
            return made, outcome, False
        if self._behind is not None and down is None:
            return await self._stored_hot(self._behind, made, serializer, durably)
        return await self._without_hot(made, serializer, outcome, down)

    async def _stored_hot(
        self, behind: Behind, made: Draft, serializer: Serializer, durably: bool
    ) -> tuple[Draft, Outcome, bool]:
        made, outcome = await behind.put(made, serializer)
        if durably:
            await self._flusher.drain(made.put.place.thread)
        return made, outcome, True

    async def _without_hot(
        self, made: Draft, serializer: Serializer, ahead: Ahead, down: UnavailableError | None
    ) -> tuple[Draft, Outcome, bool]:
        """A put on a head that the hot tier, which cannot be asked, may be ahead of."""
        place = made.put.place
        if not self._policy.accepts_loss:
            raise down or UnavailableError(
                "redis", f"it may be ahead of Postgres in thread {place.thread.id!r}"
            )
        self._shared.events.emit(
            "state_lost",
            thread=place.thread.id,
            namespace=place.ns,
            checkpoint=made.put.parent,
            detail="Redis cannot be asked; the run goes on from the durable head",
        )
        await self._durable.clear_ahead(place, ahead.token)
        made = made.marked(serializer, self._shared.blobs, HOT_LOST)
        made, outcome = await self._submit(made, serializer)
        if isinstance(outcome, Ahead):
            raise UnavailableError("redis", f"it is ahead again in thread {place.thread.id!r}")
        return made, outcome, False

    async def _submit(self, made: Draft, serializer: Serializer) -> tuple[Draft, Outcome]:
        try:
            outcome = await self._commits.submit(made.put)
        except NumberTakenError:
            # One chance in 2**40 per block of numbers; the record does not hold them.
            self._shared.numbers.draw()
            made = made.renumbered(self._shared.numbers, self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        if isinstance(outcome, ParentGone):
            place = made.put.place
            gone = not await self._durable.chain(place, made.put.parent or "", 1)
            if gone and made.needs_ancestors(serializer):
                # Nobody could read it: what it is made from was pruned.
                return made, Lost(await self._head_id(place), kept=False)
            made = made.whole(self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        return made, outcome

    async def _head_id(self, place: Place) -> str | None:
        found = await self._durable.read(place, None, b"", -1)
        return (found.head.id if found is not None else "") or None

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
        durably = self._must_be_durable(config)
        rows, outcome, hot = await self._stored_writes(made, run, durably)
        digests: Made = {(row.task, row.slot): row.digest for row in rows if row.slot >= 0}
        repeated = isinstance(outcome, Stored) and outcome.repeated
        chunks = [] if repeated or hot else made.ordinary_chunks(rows)
        self._shared.register.wrote(run, place, id, digests, chunks)
        self._shared.heads.wrote(place, id, made.batches)

    async def _stored_writes(
        self, made: DraftWrites, run: Run | None, durably: bool
    ) -> tuple[tuple[WriteRow, ...], Outcome, bool]:
        """Stores writes in the tier that is theirs, or in the other; which one it was."""
        behind = self._behind
        down = False
        if behind is not None and (not durably or (run is not None and run.hot)):
            try:
                return await self._writes_hot(behind, made, run, durably)
            except UnavailableError as error:
                down = True
                if error.tier != "redis" or await self._may_be_ahead(made.place):
                    raise
        try:
            rows, outcome = await self._store_writes(made)
        except UnavailableError as error:
            if behind is None or down or not self._policy.queues or error.tier != "postgres":
                raise
            return await self._writes_hot(behind, made, run, durably=False)
        if behind is not None and not down and self._policy.queues:
            await behind.note(made.put(self._shared.blobs))
        return rows, outcome, False

    async def _writes_hot(
        self, behind: Behind, made: DraftWrites, run: Run | None, durably: bool
    ) -> tuple[tuple[WriteRow, ...], Outcome, bool]:
        item = made.put(self._shared.blobs)
        outcome = await behind.put_writes(item, run)
        if run is not None:
            run.hot = True
        if durably:
            await self._flusher.drain(made.place.thread)
        return item.rows, outcome, True

    async def _may_be_ahead(self, place: Place) -> bool:
        """Whether writes that Postgres takes could be missed by those who see the hot tier."""
        if self._policy.accepts_loss:
            return False
        found = await self._durable.read(place, None, b"", -1)
        return found is not None and found.ahead is not None

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
