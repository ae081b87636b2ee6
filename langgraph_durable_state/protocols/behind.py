"""Puts and writes that the hot tier acknowledges, and Postgres is told of later.

The hot head decides who wins, as long as it is current; whatever is in doubt is settled in
Postgres, after what is in the outbox.
"""

from __future__ import annotations

from dataclasses import replace

from ..decisions import codec, keys
from ..decisions.ahead import Verdict
from ..decisions.codec import Record, Unsound
from ..decisions.serializing import Serializer
from ..errors import KeyMissingError, StateLostError, UnavailableError
from ..ports import Durable, Outbox
from ..words import (
    Ahead,
    Claim,
    Cold,
    Fenced,
    Head,
    HotFound,
    Kept,
    Lost,
    Opened,
    Outcome,
    Phase,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Spell,
    Step,
    Stored,
    Unfit,
    Won,
)
from .anchoring import Anchors
from .arbiter import Arbiter, View
from .drafting import QUEUED, Draft, same
from .flushing import Flusher
from .runs import Run
from .shared import Known, Shared

TRIES = 8
"""Answers of the hot tier that ask for something else first; more than three need a race."""

FORK_TRIES = 40
"""Of a fork that is stored on the head that it finds, while others move it."""


class Behind:
    """Writes through one driver's hot tier.

    Args:
        shared: the saver's.
        durable: to mark heads in, and to settle what is in doubt.
        outbox: the hot tier's.
        arbiter, flusher, anchors: over the same.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        outbox: Outbox,
        arbiter: Arbiter,
        flusher: Flusher,
        anchors: Anchors,
    ) -> None:
        self._anchors = anchors
        self._shared = shared
        self._durable = durable
        self._outbox = outbox
        self._arbiter = arbiter
        self._flusher = flusher

    # -- puts --------------------------------------------------------------------------------

    async def put(self, made: Draft, serializer: Serializer) -> tuple[Draft, Outcome]:
        """Stores a put in the hot tier; what of it was stored, and what became of it.

        Raises:
            UnavailableError: if the hot tier cannot be reached, or Postgres cannot where it has to
                be asked.
            StateLostError: if what the hot tier held alone is gone.
        """
        place = made.put.place
        if made.put.claim is Claim.ANY:
            hot = await self._outbox.peek(place, b"")
            made = made.whole(serializer, self._shared.blobs)
            decided = await self._of_fork(made, hot, serializer)
            if decided is not None:
                return made, decided
        # Under a key moves of a head are counted, so a fork is stored on the head that it finds.
        forks = made.put.claim is Claim.ANY and bool(made.put.seal)
        token, opened, whole = keys.token(), None, False
        for _ in range(FORK_TRIES if forks else TRIES):
            if forks:
                if not await self._stands(made):
                    return made, Lost(None, kept=False)
                made = await self._on_head(made)
            item = made.put if made.put.covered else made.whole(serializer, self._shared.blobs).put
            answer = await self._outbox.append(
                item, self._step(made, whole), token, opened, refused=False
            )
            opened = None
            if isinstance(answer, (Won, Kept)):
                guarded = not isinstance(answer, Won) or answer.guarded
                self._shared.unflushed.add(item, guarded)
                return made, answer
            if isinstance(answer, Cold) and answer.token == answer.previous:
                token = keys.token()  # somebody is closing the spell of that name
            elif isinstance(answer, Cold):
                token, whole = answer.token, True
                claimed = None if forks else _claimed(made.put)
                found = await self._open(made.put, answer, claimed)
                if isinstance(found, Fenced):
                    return made, found
                opened = found
                if opened is not None and not opened.marked:
                    made = made.marked(serializer, self._shared.blobs, QUEUED)
            elif answer is Unfit.WHOLE:
                whole = True
            elif answer is Unfit.FULL:
                await self._flusher.drain(place.thread)
            elif answer is Unfit.FENCED:
                return made, Fenced()
            elif not (forks and answer is Unfit.LOST):
                outcome = await self._settled(made, answer, serializer)
                if outcome is not None and not (forks and isinstance(outcome, Lost)):
                    return made, outcome
        raise UnavailableError("redis", "the state of the thread kept changing")

    async def _of_fork(self, made: Draft, hot: HotFound, serializer: Serializer) -> Outcome | None:
        """What becomes of a fork that is not to be tried: made again after its answer was lost, it
        would take the head back from others; and nobody could read it without its ancestors."""
        put, spell = made.put, hot.spell
        if spell is not None:
            counted = bool(put.seal) and self._is_there(made, hot, serializer)
            if counted or put.digest in spell.chain:
                return Won(spell.head.seq, repeated=True, guarded=spell.marked)
        is_held = spell is not None and made.record.parent_digest in spell.chain
        try:
            # What is no longer in the hot tier's chain is durable.
            rows = await self._durable.chain(put.place, put.id, 1)
            if rows and rows[0].digest == put.digest and not rows[0].refused:
                return Won(rows[0].seq, repeated=True)
            if put.refers is None or is_held or await self._is_durable(put.place, put.refers):
                return None
            await self._flusher.drain(put.place.thread)
            if await self._is_durable(put.place, put.refers):
                return None
            head = await self._durable.read(put.place, None, b"", -1)
        except UnavailableError as error:
            if error.tier != "postgres" or self._shared.doubted.get((put.place, put.id)):
                raise  # it may be there, and others may have gone on from it
            return None
        return Lost((head.head.id if head is not None else "") or None, kept=False)

    async def _is_durable(self, place: Place, id: str) -> bool:
        return bool(await self._durable.chain(place, id, 1))

    async def _stands(self, made: Draft) -> bool:
        """Whether a fork's parent, if it is durable, is still what the fork was made from: not if
        it was brought under another key meanwhile."""
        parent, known = made.put.parent, made.record.parent_digest
        if not made.put.seal or parent is None or not known:
            return True
        try:
            found = await self._durable.read(made.put.place, parent, b"", -1)
        except UnavailableError:
            return True
        return found is None or found.head.digest == known

    async def _on_head(self, made: Draft) -> Draft:
        """A fork that moves the head from where it is now, as the move that it is then."""
        hot = await self._outbox.peek(made.put.place, b"")
        spell = hot.spell if hot.spell is not None and hot.spell.phase is Phase.OPEN else None
        digest, count = (None, 0) if spell is None else (spell.head.digest, len(spell.chain))
        if spell is not None and spell.base is None and not spell.chain:
            digest = None  # nobody knows its head
        try:
            current = await self._anchors.current(made.put.place)
            digest, count = digest if spell else current.head.digest, count + current.count
        except (UnavailableError, KeyMissingError):
            pass  # what is known of it is the best that there is
        if hot.row is not None and hot.row.digest == digest:
            count = self._count(hot.row) or count  # what is flushed meanwhile is counted twice
        made = made.counted(max(count + 1, made.record.count), self._shared.blobs)
        claim = Claim.ANY if digest is None else Claim.HEAD if digest else Claim.EMPTY
        return replace(made, put=replace(made.put, claim=claim, expected=digest or b""))

    def _count(self, row: RecordRow) -> int:
        """How often the head had moved by this record, as it says."""
        try:
            return codec.record_parts(row, self._shared.blobs).count
        except (Unsound, KeyMissingError):
            return 0

    def _step(self, made: Draft, whole: bool) -> Step:
        """How the copy of the hot head is to follow."""
        if whole or made.parent is None or not made.put.covered:
            return Step(b"", made.rows(self._shared.blobs))
        return Step(made.put.base, made.news(self._shared.blobs), made.dropped())

    async def _open(
        self, item: Put | PutWrites, cold: Cold, claimed: Head | None
    ) -> Opened | Fenced | None:
        """Marks the durable head; None if another spell's mark had to be dealt with first."""
        place, accepted = item.place, [cold.token, *keys.tokens(cold.previous)]
        try:
            # The hot tier may have lost the fence together with the spell.
            found = await self._durable.mark_ahead(place, cold.token, accepted, item.fence)
        except UnavailableError:
            if not self._shared.policy.queues:
                raise
            detail = "Postgres cannot be reached"
            self._shared.events.emit("queued", detail, place=place, checkpoint=item.id)
            return Opened(claimed, marked=False)
        if found is None:
            return Fenced()
        head, mark = found
        if mark == cold.token:
            return Opened(head, marked=True)
        await self._arbiter.view(place, b"", -1)
        return None

    async def _settled(self, made: Draft, answer: object, serializer: Serializer) -> Outcome | None:
        """What becomes of a put that is not on the hot head; None if it is to be tried again."""
        view = await self._arbiter.view(made.put.place, b"", -1)
        if answer is Unfit.RESTARTED and view.verdict is not Verdict.UNVERIFIED:
            return None
        if view.down is not None:
            return await self._refuse(made, view, serializer)
        await self._flusher.drain(made.put.place.thread)
        whole = made.whole(serializer, self._shared.blobs).put
        outcome = (await self._durable.commit([replace(whole, spell=view.mark)]))[0]
        if isinstance(outcome, Ahead):
            return None
        if view.lost and isinstance(outcome, Lost):
            # Nobody was faster: what this run stood on is gone.
            raise StateLostError(
                thread=whole.place.thread.id,
                namespace=whole.place.ns,
                last_durable=outcome.actual,
                left=None,
                tenant=whole.place.thread.tenant,
            )
        spell = view.hot.spell if view.hot is not None else None
        if isinstance(outcome, Won) and not outcome.repeated and spell is not None:
            await self._outbox.discard(whole.place, spell.token, b"")
        return outcome

    async def _refuse(self, made: Draft, view: View, serializer: Serializer) -> Outcome | None:
        """Keeps a put that lost while Postgres cannot be asked; None if it has not lost to what is
        there now: the spell was adopted meanwhile, say."""
        spell = view.hot.spell if view.hot is not None else None
        doubted = self._shared.doubted.get((made.put.place, made.put.id))
        if spell is None or spell.restarted or (doubted and made.put.digest not in spell.chain):
            # What was sent before may be stored: nobody can say that it lost.
            raise view.down or UnavailableError("postgres", "it could not be asked")
        if made.put.digest in spell.chain:  # an acknowledgement was lost, and others went on
            return Won(spell.head.seq, repeated=True, guarded=spell.marked)
        if _fits(made.put, spell):
            return None
        if not _follows(spell, made.put):
            # The hot head may be an old one that Postgres has moved on from.
            raise view.down or UnavailableError("postgres", "it could not be asked")
        if view.hot is not None and self._is_there(made, view.hot, serializer):
            return Won(spell.head.seq, repeated=True, guarded=spell.marked)
        whole = made.whole(serializer, self._shared.blobs).put
        kept = await self._outbox.append(whole, Step(b"", ()), spell.token, None, refused=True)
        if isinstance(kept, Kept):
            self._shared.unflushed.add(whole, spell.marked)
            return Lost(spell.head.id or None)
        if isinstance(kept, Won):
            return kept
        return Fenced() if kept is Unfit.FENCED else Lost(spell.head.id or None, kept=False)

    def _is_there(self, made: Draft, hot: HotFound, serializer: Serializer) -> bool:
        """Whether the hot head is this put, taken before under another mark."""
        record = self._record(made.put, hot)
        return record is not None and same(record, made.record, serializer)

    async def held(self, put: Put) -> Known | None:
        """A put as the hot tier took it before, perhaps under other chunk numbers; None if it is
        not the hot head any more."""
        record = self._record(put, await self._outbox.peek(put.place, b""))
        known = Known(record, put.digest) if record is not None else None
        return known if known is not None and known.record.digest() == put.digest else None

    def _record(self, put: Put, hot: HotFound) -> Record | None:
        """The hot copy, if it is of this put's id, and sound."""
        if hot.row is None or hot.row.id != put.id:
            return None
        try:
            chunks = self._shared.reader.chunks(hot.chunks)
            return codec.read_record(put.place, hot.row, chunks, self._shared.blobs)
        except (Unsound, KeyMissingError):  # this process has the key of what it put
            return None

    # -- writes ------------------------------------------------------------------------------

    async def put_writes(self, item: PutWrites, run: Run | None) -> Stored | Fenced:
        """Stores a task's writes in the hot tier.

        Raises:
            UnavailableError, StateLostError: as `put`.
        """
        token, opened = keys.token(), None
        for _ in range(TRIES):
            answer = await self._outbox.append_writes(item, token, opened)
            opened = None
            if isinstance(answer, Stored):
                self._shared.unflushed.add(item, answer.guarded)
                return answer
            if isinstance(answer, Cold) and answer.token == answer.previous:
                token = keys.token()  # somebody is closing the spell of that name
            elif isinstance(answer, Cold):
                token = answer.token
                found = await self._open(item, answer, _left_at(run))
                if isinstance(found, Fenced):
                    return found
                opened = found
            elif answer is Unfit.FULL:
                await self._flusher.drain(item.place.thread)
            elif answer is Unfit.FENCED:
                return Fenced()
            else:
                await self._arbiter.view(item.place, b"", -1)
        raise UnavailableError("redis", "the state of the thread kept changing")

    async def note(self, item: PutWrites) -> None:
        """Keeps writes that are durable, for a time when Postgres cannot be asked."""
        try:
            await self._outbox.note(item)
        except UnavailableError:
            pass  # what is served then is marked unverified


def _fits(put: Put, spell: Spell) -> bool:
    """Whether a put would advance the head of this spell, or open it."""
    if spell.phase is not Phase.OPEN or put.claim is Claim.ANY:
        return True
    if spell.base is None and not spell.chain:
        return True  # nobody knows its head
    return spell.head.digest == (put.expected if put.claim is Claim.HEAD else b"")


def _follows(spell: Spell, put: Put) -> bool:
    """Whether the hot head is known to be made from the one that a put expects."""
    return put.claim is not Claim.HEAD or put.expected in (spell.base, *spell.chain)


def _claimed(put: Put) -> Head | None:
    """The head that a put says there is; None if it says nothing."""
    if put.claim is Claim.HEAD:
        return Head(put.parent or "", 0, put.expected)
    return Head("", 0, b"") if put.claim is Claim.EMPTY else None


def _left_at(run: Run | None) -> Head | None:
    """The head that a run knows."""
    if run is None or run.addressed or not run.digest:
        return None
    return Head(run.at or "", 0, run.digest if run.head is None else run.head)
