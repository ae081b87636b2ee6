"""What the protocols need of the world, as narrow protocols with few verbs.

Tiers are written once above `Sql` and `Scripts`; only those exist per face. The memory driver
implements `Durable` and `Hot` directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .words import (
    ChunkRow,
    Digest,
    Found,
    Head,
    Listing,
    Outcome,
    Page,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Thread,
    WriteRow,
)


class Sql(Protocol):
    """Statements of the durable tier, run on a pooled connection, each within a deadline."""

    async def fetch(self, name: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of one named statement, in a transaction of its own.

        Raises:
            UnavailableError: if Postgres cannot be reached or does not answer in time.
        """

    async def transaction(
        self,
        steps: Sequence[tuple[str, Sequence[object]]],
        go_on: Callable[[list[tuple[Any, ...]]], bool] | None = None,
    ) -> list[list[tuple[Any, ...]]]:
        """The rows of each of several statements, run one after the other in one transaction.

        If `go_on`, asked with the first statement's rows, says no, the others are not run.
        """

    async def script(self, sql: str) -> None:
        """Runs SQL text that may hold several statements, in one transaction."""

    async def ping(self) -> None:
        """Asks whether Postgres answers and takes writes.

        Raises:
            UnavailableError: if it does not.
        """


class Scripts(Protocol):
    """Scripts of the hot tier."""

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """What one named script returns.

        Raises:
            UnavailableError: if Redis cannot be reached, refuses, or does not answer in time.
        """


class Durable(Protocol):
    """The tier that acknowledged state survives in."""

    async def setup(self) -> None:
        """Installs or upgrades the tables, once, whoever comes first."""

    async def ping(self) -> None:
        """Asks whether the tier can be used at all, tables aside, in one round trip.

        Raises:
            UnavailableError: if it cannot.
        """

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        """Stores a batch, at most one put per head, in one round trip; each wins or loses alone."""

    async def read(
        self, place: Place, id: str | None, held: Digest, most: int | None
    ) -> Found | None:
        """A checkpoint with its pending writes, in one round trip; the head if `id` is None.

        The record is left out if its digest is `held`, or if its chunks exceed `most` bytes.
        """

    async def page(self, listing: Listing) -> Page:
        """One page of checkpoints with all that they need."""

    async def chain(self, place: Place, id: str, limit: int) -> list[RecordRow]:
        """Up to `limit` rows from `id` up through its parents, without their chunks."""

    async def rest(
        self, place: Place, ids: Sequence[str], numbers: Sequence[int], light: Sequence[int]
    ) -> Page:
        """The writes of some checkpoints, and the chunks of these numbers and of those writes;
        of `light` numbers only digests and item counts."""

    async def delete_thread(self, thread: Thread) -> Sequence[str]:
        """Removes all of a thread; returns the namespaces it had."""

    async def runs(self, tenant: str, run_ids: Sequence[str]) -> list[tuple[Thread, str, str]]:
        """The thread, namespace and id of each checkpoint made by these runs."""

    async def remove(self, thread: Thread, doomed: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Removes checkpoints (namespace, id), the chunks that only they needed, and moves a
        head that was among them to the newest that is left; returns the namespaces touched."""

    async def heads(self, thread: Thread) -> dict[str, Head]:
        """The heads of a thread, by namespace."""

    async def keep(
        self, thread: Thread, kept: Sequence[tuple[str, str]], heads: Mapping[str, Head]
    ) -> bool:
        """Removes all checkpoints of a thread but `kept` (namespace, id), if its heads are still
        `heads`; tells whether they were."""

    async def copy(
        self,
        source: Thread,
        target: Thread,
        rows: Sequence[RecordRow],
        writes: Sequence[tuple[str, WriteRow]],
        heads: Sequence[tuple[str, str]],
    ) -> None:
        """Copies chunks, and stores re-digested rows and writes (with their namespaces); `heads`
        (namespace, id), given last, make the copy visible."""


class Hot(Protocol):
    """The tier that serves copies, by digest."""

    async def ping(self) -> None:
        """Asks whether the tier answers, in one round trip.

        Raises:
            UnavailableError: if it does not.
        """

    async def raise_to(self, put: Put, seq: int, previous: Digest, dropped: Sequence[int]) -> bool:
        """Brings the copy from `previous` to this put, without the chunks `dropped`; removes an
        older copy that is neither. Tells whether the copy is this put now."""

    async def fill(self, place: Place, row: RecordRow, chunks: Sequence[ChunkRow]) -> None:
        """Stores a whole copy, unless a newer one is there."""

    async def fetch(
        self, place: Place, digest: Digest
    ) -> tuple[RecordRow, dict[int, ChunkRow]] | None:
        """The copy with this digest, or None."""

    async def drop(self, thread: Thread, namespaces: Sequence[str]) -> None:
        """Removes the copies of these namespaces."""


class Commits(Protocol):
    """Groups what several callers store at once."""

    async def submit(self, item: Put | PutWrites) -> Outcome:
        """Stores `item`, together with whatever else is waiting."""
