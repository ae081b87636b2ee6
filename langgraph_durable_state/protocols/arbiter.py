"""Asks both tiers for a head, and acts on what `decisions.ahead` decides.

What is not current is discarded or reported before anybody is served.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..decisions import ahead
from ..decisions.ahead import Verdict
from ..errors import DurableStateError, StateLostError, UnavailableError
from ..events import Kind
from ..ports import Durable, Outbox
from ..words import Digest, Found, HotFound, Place, Spell
from .shared import Shared

TRIES = 8
"""Looks at a head that changes between one tier's answer and the other's; a flush takes
milliseconds, so that a few of them suffice."""


@dataclass(frozen=True, slots=True)
class View:
    """A head as both tiers tell it: whose counts, and what each said.

    ``down`` is why Postgres did not answer; ``lost`` if a loss was accepted on the way.
    """

    verdict: Verdict
    found: Found | None
    hot: HotFound | None
    down: UnavailableError | None = None
    lost: bool = False

    @property
    def mark(self) -> bytes | None:
        """The token that the durable head is marked with."""
        return self.found.ahead if self.found is not None else None

    @property
    def spell(self) -> Spell | None:
        return self.hot.spell if self.hot is not None else None

    @property
    def adopts(self) -> bool:
        """Whether a restart of the hot tier has lost nothing, and its spell goes on."""
        secured = self.spell is not None and self.spell.secured
        return self.verdict is Verdict.SUSPECT and secured

    @property
    def evidence(self) -> object:
        """What must be found twice before anything is given up. The tiers are asked one after the
        other: what the hot one said before and after is the same, so it held in between too, when
        the durable one was asked the second time."""
        spell = self.spell
        return self.verdict, self.mark, spell and (spell.token, spell.phase, spell.base)


class Arbiter:
    """Over one driver's tiers.

    Args:
        shared: the saver's.
        durable: is asked first, always.
        outbox: the hot tier's; None if there is none.
    """

    def __init__(self, shared: Shared, durable: Durable, outbox: Outbox | None) -> None:
        self._shared = shared
        self._policy = shared.policy
        self._durable = durable
        self._outbox = outbox

    async def view(self, place: Place, held: Digest, most: int | None) -> View:
        """Whose head of `place` is current.

        Args:
            place: which head.
            held: digest of the head that the caller holds.
            most: bytes of a durable record that are wanted at most.

        Raises:
            UnavailableError: if a tier cannot be asked without which nobody can tell.
            StateLostError: if what the hot tier held alone is gone.
        """
        lost = False
        for _ in range(TRIES):
            view = await self._sure(place, held, most)
            if view.verdict not in ahead.DRASTIC:
                return self._allowed(place, view, lost)
            lost = await self._settle(place, view) or lost
        raise _changing()

    async def look(self, place: Place) -> View:
        """The same, without anything being done, or refused."""
        return await self._sure(place, b"", None)

    async def _sure(self, place: Place, held: Digest, most: int | None) -> View:
        """A view that gives nothing up, or that was found twice."""
        before = None
        for _ in range(TRIES):
            view = await self._look(place, held, most)
            if view.verdict not in ahead.DRASTIC or view.evidence == before:
                return view
            before = view.evidence
        raise _changing()

    async def _look(self, place: Place, held: Digest, most: int | None) -> View:
        found, down = None, None
        try:
            found = await self._durable.read(place, None, held, most)
        except UnavailableError as error:
            down = error
        marked = found is not None and found.ahead is not None
        if down is None and not marked and not self._policy.asks_hot:
            return View(Verdict.DURABLE, found, None)
        hot = await self._peek(place, held)
        digest = None if down is not None else found.head.digest if found is not None else b""
        says = ahead.of_durable(found, hot.spell if hot else None) if down is None else None
        verdict = ahead.decide(
            says or ahead.Durable.DOWN, ahead.of_hot(hot, digest) if hot else ahead.Hot.DOWN
        )
        return View(verdict, found, hot, down)

    async def _peek(self, place: Place, held: Digest) -> HotFound | None:
        if self._outbox is None:
            return None
        try:
            return await self._outbox.peek(place, held)
        except UnavailableError:
            return None

    def _allowed(self, place: Place, view: View, lost: bool) -> View:
        """The view, if the policy allows what it says.

        Raises:
            UnavailableError: if it does not.
        """
        if view.verdict is Verdict.NO_HOT:
            if not self._policy.accepts_loss:
                raise self.refusal(place, view)
            self.report(place, view, "Redis cannot be asked; accepted")
            return View(Verdict.DURABLE, view.found, None, lost=True)
        unserved = view.verdict is Verdict.NO_DURABLE or (
            view.verdict is Verdict.UNVERIFIED and not self._policy.queues
        )
        if view.down is not None and unserved:
            raise view.down
        if view.verdict is Verdict.NOBODY and view.down and not self._policy.stale_reads:
            raise view.down
        return View(view.verdict, view.found, view.hot, view.down, lost)

    def refusal(self, place: Place, view: View) -> DurableStateError:
        """The error of a view that does not let anything be served."""
        if view.verdict in (Verdict.GONE, Verdict.SUSPECT):
            return self.lost(place, view)
        if view.verdict is not Verdict.NO_HOT:
            return view.down or _changing()
        none = "" if self._outbox is not None else "this saver was given none, and "
        may = f"{none}it may be ahead of Postgres in thread {place.thread.id!r}"
        return UnavailableError("redis", may)

    async def _settle(self, place: Place, view: View) -> bool:
        """Does what has to be done before anybody is served; whether a loss was accepted.

        Raises:
            StateLostError: if that is not this saver's to accept.
        """
        spell = view.spell
        assert self._outbox is not None  # or nobody would have said so
        if view.verdict is Verdict.DISCARD and spell is not None:
            await self._outbox.discard(place, spell.token, spell.head.digest)
            self._emit(place, "hot_discarded", spell.head.id, "Postgres has moved on without it")
            return False
        if view.adopts and spell is not None:
            await self._adopt(place, spell.token)
            return False
        if not self._policy.accepts_loss:
            self._told_once(place, view)
            raise self.lost(place, view)
        await self.accept(place, view)
        return True

    async def _adopt(self, place: Place, token: bytes) -> None:
        assert self._outbox is not None
        marks = await self._durable.progress([place])
        found = marks.get(place)
        await self._outbox.adopt(place, token, found.flushed if found is not None else 0)

    async def accept(self, place: Place, view: View) -> None:
        """Goes on from what is left after a loss, and reports it."""
        assert self._outbox is not None
        spell = view.spell
        # It is reported first: who dies in between must not take the report along.
        if view.verdict is Verdict.SUSPECT and spell is not None:
            self.report(
                place,
                view,
                "Redis was restarted and may have lost the last of what it held; accepted",
            )
            await self._adopt(place, spell.token)
            return
        self.report(place, view, "Redis no longer has what it held alone; accepted")
        if spell is not None and spell.token == view.mark:
            await self._outbox.discard(place, spell.token, spell.head.digest)
        if view.mark is not None:
            await self._durable.clear_ahead(place, view.mark)

    async def accept_loss(self, place: Place) -> bool:
        """Accepts a loss of this head if there is one; tells whether there was."""
        view = await self._sure(place, b"", -1)
        if view.verdict not in (Verdict.GONE, Verdict.SUSPECT):
            return False
        await self.accept(place, view)
        return True

    def _told_once(self, place: Place, view: View) -> None:
        """Reports a loss that is somebody else's to accept, at the first call that meets it."""
        if self._shared.told.get((place, view.mark or b"")) is None:
            self._shared.told.put((place, view.mark or b""), True)
            self.report(place, view, "nothing is served until it is accepted")

    def lost(self, place: Place, view: View) -> StateLostError:
        """The error that tells of a loss."""
        spell = view.spell
        suspect = view.verdict is Verdict.SUSPECT and spell is not None
        return StateLostError(
            thread=place.thread.id,
            namespace=place.ns,
            last_durable=(view.found.head.id if view.found else "") or None,
            left=spell.head.id if suspect and spell is not None else None,
            tenant=place.thread.tenant,
        )

    def report(self, place: Place, view: View, what: str) -> None:
        """Tells of a loss."""
        self._emit(place, "state_lost", self.lost(place, view).last_durable, what)

    def _emit(self, place: Place, kind: Kind, checkpoint: str | None, detail: str) -> None:
        self._shared.events.emit(kind, detail, place=place, checkpoint=checkpoint)


def _changing() -> UnavailableError:
    return UnavailableError("redis", "what it holds kept changing while it was compared")
