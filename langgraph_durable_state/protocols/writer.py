"""`put` and `put_writes`, written once.

Both serialize all they need of the caller's objects before their first await, so what the caller
does to them later changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ..decisions import arguments, digest, keys
from ..decisions.codec import Record
from ..decisions.digest import Seal
from ..decisions.serializing import Serializer
from ..errors import (
    ConflictError,
    CorruptionError,
    LeaseLostError,
    NumberTakenError,
    StateLostError,
    UnavailableError,
    UsageError,
)
from ..ports import Commits, Durable
from ..words import (
    Ahead,
    Claim,
    Digest,
    Fenced,
    Head,
    Kept,
    Lost,
    Outcome,
    ParentGone,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Stored,
    Thread,
    Won,
)
from .anchoring import Anchors
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
    same,
)
from .dual_write import DualWrite
from .leasing import fence_of, lose
from .naming import Naming
from .reading import config_of
from .runs import Made, Run, Stance, run_of_versions, stance, tagged_run
from .settling import Settler
from .shared import Known, Shared
from .vault import Vault

TRIES = 20
"""A fork under a key is stored on the head that it found; if that moves each time, it gives up."""

Writes = Sequence[tuple[str, Any]]
"""Channels, and what a task has written to them."""

_SIZES = (0, digest.SIZE)
"""Of the digest of a head, or of none."""


class Writer:
    """Writes through one driver's tiers.

    Args:
        shared: the saver's.
        durable: to read a parent that this process does not know.
        commits: stores durably.
        copies: the hot tier's.
        behind: stores in the hot tier; None if there is none.
        flusher: makes that durable.
        vault: has the keys that it is stored with.
        anchors: have heads signed and witnessed.
        naming: finds namespaces under their former names.
        dual: makes second forms.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        commits: Commits,
        copies: Copies,
        behind: Behind | None,
        flusher: Settler,
        vault: Vault,
        anchors: Anchors,
        naming: Naming,
        dual: DualWrite,
    ) -> None:
        self._shared = shared
        self._naming = naming
        self._dual = dual
        self._vault = vault
        self._anchors = anchors
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
        if not self._naming.is_plain(config):
            asked = asked.frozen(serializer)
            asked = replace(asked, place=await self._naming.place(serializer, config, known=True))
        run = run_of_versions(checkpoint.get("channel_versions") or {})
        loaded = tagged_run(config)
        if run is not None and run.conflict is not None:
            raise run.conflict
        fence = fence_of(self._shared.leases, asked.place.thread, run, loaded)
        actor = run or (loaded if loaded is not None and loaded.addressed else None)
        if actor is not None:
            self._shared.register.started(actor, asked.place, asked.id)
        parent = self._known_parent(run, loaded, asked)
        if parent is None and (before := asked.parent) is not None:
            # A fork of a checkpoint that this process has not seen lately.
            asked = asked.frozen(serializer)
            parent = await self._parent(asked.place, before)
        near = parent.record if parent is not None else None
        seal = self._vault.at_hand(asked.place.thread, near)
        if seal is None:
            asked = asked.frozen(serializer)
            seal = await self._seal(asked.place.thread, near)
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
            seal,
            self._shared.shape,
            self._dual,
            hot,
        ).under(fence)
        if position.run is not None and position.run.apart:
            made = made.anew(serializer, self._shared.blobs)
        if position.run is not None and position.run.head is not None and made.put.seal:
            made = await self._beyond(made)
        await self._store(made, serializer, hot, self._must_be_durable(asked.config))
        return config_of(asked.place, asked.id, None)

    def _prefers_hot(self, run: Run | None, config: Mapping[str, Any]) -> bool:
        if self._behind is None:
            return False
        if run is not None and run.head is not None and len(run.head) not in _SIZES:
            return False  # the hot tier cannot compare a head's digest that was cut off
        return (run is not None and run.hot) or not self._must_be_durable(config)

    def _must_be_durable(self, config: Mapping[str, Any]) -> bool:
        """Whether Postgres has to have what is acknowledged."""
        return not self._policy.write_behind or exits(config)

    def _known_parent(self, run: Run | None, loaded: Run | None, asked: Request) -> Known | None:
        if asked.parent is None:
            return None
        if run is None and loaded is not None and loaded.apart:
            run = loaded
        if run is not None and run.at == asked.parent and run.record is not None:
            return Known(run.record, run.digest)
        return self._shared.recent.get((asked.place, asked.parent))

    async def _load(self, place: Place, id: str) -> Known | None:
        found = await self._stored_row(place, id)
        return Known(*found[:2]) if found is not None else None

    async def _parent(self, place: Place, id: str) -> Known | None:
        """A checkpoint that another process has put, maybe in the hot tier alone."""
        known = await self._load(place, id)
        if known is None and self._policy.asks_hot:
            try:
                await self._flusher.settle(place.thread)
            except StateLostError:
                return None
            known = await self._load(place, id)
        return known

    async def _stored_row(self, place: Place, id: str) -> tuple[Record, Digest, RecordRow] | None:
        """A stored checkpoint, proven."""

        async def read() -> tuple[Record, Digest, RecordRow] | None:
            found = await self._durable.read(place, id, b"", None)
            if found is None or found.row is None:
                return None
            record = self._shared.reader.record(place, found.row, found.chunks)
            return record, found.row.digest, found.row

        return await self._vault.reading(place.thread, read)

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
        try:
            made, outcome, hot = await self._stored(made, serializer, hot, durably)
        except UnavailableError:
            self._doubt(made.put)
            raise
        if isinstance(outcome, ParentGone):
            outcome = Lost(await self._head_id(made.put.place), kept=False)
        if isinstance(outcome, Fenced):
            raise self._fenced(made.put, made.run)
        known = Known(made.record, made.put.digest)
        if isinstance(outcome, Lost):
            there = None if outcome.kept else await self._there(made, serializer)
            if there is None:
                raise _lost(made, outcome)
            known, outcome = there, Won(0, repeated=True)
        elif isinstance(outcome, Won) and outcome.repeated:
            known = await self._as_stored(made.put, hot) or known
        self._shared.recent.put((made.put.place, made.put.id), known)
        if isinstance(outcome, Won):
            self._won(made, known, outcome, hot)
            if not outcome.repeated and not hot:
                await self._copies.follow(made, outcome.seq)
                await self._anchors.note(made.put, force=made.put.claim is Claim.EMPTY)

    def _fenced(self, item: Put | PutWrites, run: Run | None) -> LeaseLostError:
        """The error of what was refused since its lease was taken over; its run is told as well."""
        why = "another holder had taken it over when something was put"
        error = lose(self._shared, item.place.thread, item.fence or 0, why)
        if run is not None:
            run.conflict = error
        return error

    async def _as_stored(self, put: Put, hot: bool) -> Known | None:
        """A put that was there already, perhaps under other chunk numbers, if its tier tells."""
        try:
            held = await self._behind.held(put) if hot and self._behind is not None else None
            return held or await self._load(put.place, put.id)
        except UnavailableError:
            return None

    async def _there(self, made: Draft, serializer: Serializer) -> Known | None:
        """A put that is stored under another mark, since its first answer was lost; None if it is
        not: it was refused, or is not the same."""
        found = await self._stored_row(made.put.place, made.put.id)
        if found is None or found[2].refused or not same(found[0], made.record, serializer):
            return None
        return Known(*found[:2])

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
                if not await self._stands(made):
                    raise
        try:
            made, outcome = await self._submit(made, serializer)
        except UnavailableError as error:
            if self._behind is None or down is not None or not self._policy.queues:
                raise
            if error.tier != "postgres":
                raise
            if error.sent:
                self._doubt(made.put)
            marked = made.marked(serializer, self._shared.blobs, QUEUED)
            return await self._stored_hot(self._behind, marked, serializer, durably=False)
        if not isinstance(outcome, Ahead):
            return made, outcome, False
        if self._behind is not None and down is None:
            return await self._stored_hot(self._behind, made, serializer, durably)
        return await self._without_hot(made, serializer, outcome, down)

    async def _stands(self, made: Draft) -> bool:
        """Whether all that a put is made from is durable: not where the hot tier, which cannot be
        asked, holds the parent alone, or writes that it has consumed. Nobody could replay it."""
        if made.run is None or not made.run.hot or made.put.parent is None:
            return True
        found = await self._durable.read(made.put.place, made.put.parent, b"", -1)
        if found is None or found.head.digest != made.record.parent_digest:
            return False
        stored = {row.digest for row in found.writes}
        return stored.issuperset(made.record.consumed or ())

    async def _stored_hot(
        self, behind: Behind, made: Draft, serializer: Serializer, durably: bool
    ) -> tuple[Draft, Outcome, bool]:
        made, outcome = await behind.put(made, serializer)
        if durably and isinstance(outcome, (Won, Kept)):
            outcome = await self._made_durable(made.put, outcome)
        return made, outcome, True

    async def _made_durable(self, put: Put, outcome: Won | Kept) -> Outcome:
        """What becomes of a put that the hot tier took, once it is flushed: that may have lost it
        in between, or it is found to be on another branch.

        Raises:
            UnavailableError: if it is not durable, and must be.
        """
        if not await self._drained(put.place.thread):
            # What follows is marked.
            return replace(outcome, guarded=False) if isinstance(outcome, Won) else outcome
        row = await self._flusher.row_of(put)
        if row is None or row.digest != put.digest:
            raise _not_kept(put)
        if row.refused:
            return Lost(await self._head_id(put.place))
        return outcome

    async def _drained(self, thread: Thread) -> bool:
        """Makes durable what the hot tier took; tells whether it could, and need not.

        Raises:
            UnavailableError: if it could not and must.
        """
        try:
            await self._flusher.drain(thread)
        except UnavailableError as error:
            if error.tier != "postgres" or not self._policy.queues:
                raise
            return False
        return True

    async def _without_hot(
        self, made: Draft, serializer: Serializer, ahead: Ahead, down: UnavailableError | None
    ) -> tuple[Draft, Outcome, bool]:
        """A put on a head that the hot tier, which cannot be asked, may be ahead of.

        Only what goes on from the durable head gives up what came after it: a put that is made
        from what the hot tier held alone cannot, and waits for it.
        """
        place = made.put.place
        found = await self._durable.read(place, None, b"", -1)
        head = found.head if found is not None else Head("", 0, b"")
        if not self._policy.accepts_loss or not _builds_on(made.put, head):
            raise down or _may_be_ahead(place.thread)
        detail = "Redis cannot be asked; the run goes on from the durable head"
        self._shared.events.emit("state_lost", detail, place=place, checkpoint=head.id or None)
        await self._durable.clear_ahead(place, ahead.token)
        made = made.marked(serializer, self._shared.blobs, HOT_LOST)
        made, outcome = await self._submit(made, serializer)
        if isinstance(outcome, Ahead):
            raise UnavailableError("redis", f"it is ahead again in thread {place.thread.id!r}")
        return made, outcome, False

    async def _submit(self, made: Draft, serializer: Serializer) -> tuple[Draft, Outcome]:
        if not made.put.seal or made.put.claim is not Claim.ANY:
            return await self._submit_once(made, serializer)
        if await self._there(made, serializer) is not None:
            return made, Won(0, repeated=True)
        for _ in range(TRIES):
            made = await self._on_head(made)
            made, outcome = await self._submit_once(made, serializer)
            if not isinstance(outcome, Lost):
                break
        if isinstance(outcome, Ahead):
            made = replace(made, put=replace(made.put, claim=Claim.ANY))
        return made, outcome

    async def _on_head(self, made: Draft) -> Draft:
        """A fork, or a put of a run without proof, that moves the head from where it is now: its
        moves are counted."""
        place = made.put.place
        current = await self._vault.reading(place.thread, partial(self._anchors.current, place))
        made = made.counted(max(current.count + 1, made.record.count), self._shared.blobs)
        if not current.head.digest:
            return replace(made, put=replace(made.put, claim=Claim.EMPTY))
        claim = replace(made.put, claim=Claim.HEAD, expected=current.head.digest)
        return replace(made, put=claim)

    async def _beyond(self, made: Draft) -> Draft:
        """A put of a run that was given an ancestor of the head, as the head's next move."""
        place = made.put.place
        current = await self._vault.reading(place.thread, partial(self._anchors.current, place))
        return made.counted(max(current.count + 1, made.record.count), self._shared.blobs)

    async def _submit_once(self, made: Draft, serializer: Serializer) -> tuple[Draft, Outcome]:
        try:
            outcome = await self._commits.submit(made.put)
        except NumberTakenError:
            # One chance in 2**40 per block of numbers; the record does not hold them.
            self._shared.numbers.draw()
            made = made.renumbered(self._shared.numbers, self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        if isinstance(outcome, ParentGone):
            place = made.put.place
            rows = await self._durable.chain(place, made.put.parent or "", 1)
            gone = not rows
            before = made.record.parent_digest
            if rows and before not in (b"", rows[0].digest):
                # It is under another key or of another shape now: what is made from it says what
                # is no longer true.
                return made, Lost(await self._head_id(place), kept=False)
            if gone and made.needs_ancestors(serializer):
                # Nobody could read it: what it is made from was pruned.
                return made, Lost(await self._head_id(place), kept=False)
            made = made.whole(serializer, self._shared.blobs)
            outcome = await self._commits.submit(made.put)
        return made, outcome

    def _doubt(self, put: Put) -> None:
        self._shared.doubted.put((put.place, put.id), True)

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
        writes = arguments.writes(writes)
        keys.storable_id("task_id", task_id)
        if id is None:
            raise UsageError('put_writes needs config["configurable"]["checkpoint_id"]')
        if not writes:
            return
        given = writes  # what the caller does to them while something is asked changes nothing
        if not self._naming.is_plain(config):
            writes = _own(serializer, writes, given)
            place = await self._naming.place(serializer, config, known=True)
        near = self._near(config, place, id) if self._vault.encrypts else None
        seal = self._vault.at_hand(place.thread, near)
        if seal is None:
            writes = _own(serializer, writes, given)
            seal = await self._seal(place.thread, near)
        outline = None
        if self._dual.on and (outline := self._dual.outline(place, id)) is None:
            writes = _own(serializer, writes, given)
            outline = await self._naming.outline(serializer, place, id)
        if self._dual.is_over(place, id):
            outline = None
        under = self._shared.numbers, seal, self._shared.shape.version, self._dual, outline
        made = draft_writes(place, id, writes, task_id, task_path, serializer, *under)
        run = self._shared.register.of_writes(config, place, id)
        if (fence := fence_of(self._shared.leases, place.thread, run)) is not None:
            made = replace(made, fence=fence)
        if run is not None:
            run.against(id).flying.update((chunk.digest, chunk) for chunk in made.new)
        durably = self._must_be_durable(config)
        item, outcome, hot = await self._stored_writes(made, run, durably)
        if isinstance(outcome, Fenced):
            raise self._fenced(item, run)
        digests: Made = {(row.task, row.slot): row.digest for row in item.rows if row.slot >= 0}
        repeated = isinstance(outcome, Stored) and outcome.repeated
        chunks = [] if repeated or hot else made.ordinary_chunks(item.rows)
        self._shared.register.wrote(run, place, id, digests, chunks)
        self._shared.heads.wrote(place, id, made.batches)

    def _near(self, config: Mapping[str, Any], place: Place, id: str) -> Record | None:
        """A record of the thread that this process knows: the owner is its."""
        run = self._shared.register.of_writes(config, place, id)
        loaded = tagged_run(config)  # writes may come before their checkpoint
        if run is None and loaded is not None and loaded.place is not None:
            run = loaded if loaded.place.thread == place.thread else None
        if run is not None and run.record is not None:
            return run.record
        known = self._shared.recent.get((place, id))
        return known.record if known is not None else None

    async def _seal(self, thread: Thread, near: Record | None) -> Seal:
        """The seal for what is stored of a thread now; see `Vault.seal`."""
        if near is None and thread.user is not None and self._policy.asks_hot:
            with suppress(UnavailableError, StateLostError, CorruptionError):
                await self._flusher.settle(thread)  # whose it is, Redis alone may know
        return await self._vault.seal(thread, near)

    async def _stored_writes(
        self, made: DraftWrites, run: Run | None, durably: bool
    ) -> tuple[PutWrites, Outcome, bool]:
        """Stores writes in the tier that is theirs, or in the other; which one it was."""
        behind, down = self._behind, None
        if behind is not None and (not durably or (run is not None and run.hot)):
            try:
                return await self._writes_hot(behind, made, run, durably)
            except UnavailableError as error:
                if error.tier != "redis":
                    raise
                down = error
        try:
            item, outcome = await self._store_writes(made)
        except UnavailableError as error:
            if behind is None or down or not self._policy.queues or error.tier != "postgres":
                raise
            return await self._writes_hot(behind, made, run, durably=False)
        if isinstance(outcome, Ahead):
            if behind is not None and down is None:
                return await self._writes_hot(behind, made, run, durably)
            item, outcome = await self._writes_without_hot(made, outcome, down)
        if behind is not None and not down and self._policy.queues:
            await behind.note(made.put(self._shared.blobs))
        return item, outcome, False

    async def _writes_without_hot(
        self, made: DraftWrites, ahead: Ahead, down: UnavailableError | None
    ) -> tuple[PutWrites, Outcome]:
        """Writes against a head that the hot tier, which cannot be asked, may be ahead of: whoever
        sees that could miss them."""
        if not self._policy.accepts_loss:
            raise down or _may_be_ahead(made.place.thread)
        item, outcome = await self._store_writes(made, ahead.token or None)
        if isinstance(outcome, Ahead):
            raise _may_be_ahead(made.place.thread)
        return item, outcome

    async def _writes_hot(
        self, behind: Behind, made: DraftWrites, run: Run | None, durably: bool
    ) -> tuple[PutWrites, Outcome, bool]:
        item = made.put(self._shared.blobs)
        outcome = await behind.put_writes(item, run)
        if run is not None:
            run.hot = True
        must = durably and isinstance(outcome, Stored) and await self._drained(made.place.thread)
        if must and not await self._flusher.has_writes(item):
            raise _not_kept(item)
        return item, outcome, True

    async def _store_writes(
        self, made: DraftWrites, spell: bytes | None = None
    ) -> tuple[PutWrites, Outcome]:
        item = made.put(self._shared.blobs, spell)
        try:
            outcome = await self._commits.submit(item)
        except NumberTakenError:
            self._shared.numbers.draw()
            for chunk in made.new:
                chunk.no = next(self._shared.numbers)
            item = made.put(self._shared.blobs, spell)
            outcome = await self._commits.submit(item)
        return item, outcome


def _own(serializer: Serializer, writes: Writes, given: Writes) -> Writes:
    """Copies of the writes that were given, if these are not copies already."""
    if writes is not given:
        return writes
    return [(name, serializer.copied(value, name)) for name, value in writes]


def _not_kept(item: Put | PutWrites) -> UnavailableError:
    return UnavailableError("redis", f"it no longer has what it took of {item.id}")


def _may_be_ahead(thread: Thread) -> UnavailableError:
    return UnavailableError("redis", f"it may be ahead of Postgres in thread {thread.id!r}")


def _builds_on(put: Put, head: Head) -> bool:
    """Whether a put would win on this head."""
    if put.claim is Claim.HEAD:
        return put.expected == head.digest
    return put.claim is Claim.ANY or not head.digest


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
