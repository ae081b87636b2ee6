"""`DurableSaver`: LangGraph's checkpointer interface on both faces, from one object."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .custody import Custody
from .decisions import arguments
from .decisions.codec import Blobs, Compression
from .decisions.evolution.snapshot import Snapshot
from .decisions.evolution.steps import StateSchema
from .decisions.keys import Numbers, thread_of
from .decisions.redaction import Redaction, Screen
from .decisions.reviving import Allow, permitting
from .decisions.serializing import OnUnknownClass, Serializer, Verify
from .decisions.versions import Tagged, following, run_of
from .drivers.background import Background
from .drivers.blocking import run
from .drivers.caches import HeadCache, Lately
from .drivers.clients import PostgresSource, RedisSource, check_sources
from .drivers.events import EventLog
from .drivers.faces import Faces
from .errors import UsageError
from .events import Observer
from .integrity import Integrity, check_hook
from .key_sources import KeySources, keys_for
from .leases import LeaseGiver
from .migrating import Migrating
from .operations import Operations
from .protocols.drafting import request
from .protocols.engine import listing_of
from .protocols.leases import Leases
from .protocols.leasing import fence_of
from .protocols.reading import Reader
from .protocols.runs import Register, Run
from .protocols.shaping import shape_of
from .protocols.shared import Known, Shared
from .protocols.upkeep import check_strategy
from .recovery import OnRecovery
from .settings import (
    HotReads,
    OnConflict,
    OnCorrupt,
    OnHotLost,
    Settings,
    WhenDurableDown,
    WritePolicy,
    check_schema,
)
from .tiers.statements import schema_sql
from .words import Place, Thread

if TYPE_CHECKING:  # LangGraph has DeltaChannels since 1.2
    from langgraph.checkpoint.base import DeltaChannelHistory

_FILLED = 10_000
"""Places noted as brought to the hot tier once; an entry is a few hundred bytes."""

_RECENT = 32
"""Records kept to build on when a checkpoint given by id is forked."""


class DurableSaver(Operations, Integrity, Custody, Migrating, LeaseGiver, BaseCheckpointSaver[str]):
    """A LangGraph checkpointer over Postgres (durable) and, if given, Redis (hot copies).

    It serves `invoke` and `ainvoke` alike, from any thread and any number of event loops. The
    constructor does no I/O; the tables are installed at first use. It may be used with `with` /
    `async with`, or closed with `close()` / `aclose()`, or neither.

    Args:
        postgres: a URL or conninfo string, or a `psycopg_pool` pool. Of several hosts
            (``postgresql://a:5432,b:5432/db``) the one that takes writes is used, unless
            `target_session_attrs` says otherwise. A standby, which may be behind, is never read.
        redis: Redis 6+ or Valkey 7+; None for Postgres alone. A URL: ``redis://``, ``rediss://``
            or ``unix://`` as redis-py reads them;
            ``redis+cluster://user:password@host:port,host:port`` with some nodes of a Cluster;
            ``redis+sentinel://user:password@host:port,host:port/service/database`` with Sentinels,
            whose own login, if they have one, is ``?sentinel_username=…&sentinel_password=…``;
            ``rediss+…`` for TLS. Or a client of redis-py: `Redis`, `RedisCluster`, or what
            `Sentinel.master_for` returns, of either face. It is used as it is on its face, in the
            loop that used it first; elsewhere we connect where and as whom it does.
        serde: LangGraph's serializer (`JsonPlusSerializer` by default) or any other.
        schema: the schema of the tables in Postgres.
        prefix: stands before every key in Redis.
        auto_setup: install the tables at first use; otherwise call `setup()` once.
        on_conflict: what a run meets whose head was advanced by another run: ``"raise"`` a
            `ConflictError`, or ``"fork"``, LangGraph's own behaviour, by which the last one wins.
        hot_reads: which heads Redis serves: large ones (``"auto"``), all, or none. Always by
            digest, after Postgres said which: never a stale one.
        hot_ttl: seconds a hot copy lives after it was last written.
        touch_on_read: let it live on when it is read, too.
        head_cache_bytes: bound on the decoded heads kept in this process; 0 for none.
        compression: of what is stored: ``"zstd"``, ``"lz4"`` (needs the lz4 package) or ``"none"``.
        compression_level: zstd's, 1 to 22; 1 to 3 make sense.
        verify_round_trip: what to do with a value that would not come back as it was: ``"raise"``
            before anything is written, ``"warn"``, or ``"off"``. Plain values and LangChain
            messages are known to come back and cost nothing.
        max_value_bytes: refuse larger values, serialized; None for no limit.
        timeout: seconds one Postgres operation may take in all.
        redis_timeout: seconds to wait for a Redis server to connect, and to answer; Sentinels
            share it.
        pool_size: connections per face to Postgres at most.
        write_policy: ``"write_through"``: a put is in Postgres when it is acknowledged;
            ``"write_behind"``: it is in Redis, and is flushed to Postgres in the background.
        when_durable_down: while Postgres cannot be reached, let Redis acknowledge what is put and
            serve heads marked unverified (``"queue"``, the default of write-behind), or ``"raise"``
            an `UnavailableError` (the default of write-through).
        on_hot_lost: where Redis may be ahead of Postgres and cannot be asked, or lost what it
            held: ``"raise"``, or ``"accept"`` the durable head, which is reported.
        stale_reads: serve the head this process saw last, marked stale, while neither tier can be
            asked.
        outbox_limit: entries of a thread that Redis may hold alone; beyond it a put flushes first.
        wait_aof: ``(1, 0)`` waits for Redis to have what it acknowledges on its own disk,
            ``(1, 1)`` on a replica's as well (WAITAOF, Redis 7.2+); a restart loses nothing then.
        allow_eviction: accept a Redis whose ``maxmemory-policy`` may evict what it alone holds.
        allow: classes of which objects may be made from what is stored, beside LangGraph's own list
            of safe ones (messages, dates, sets and the like) and what the serde allows: a list of
            classes, or of pairs of module and name; True for all. An object of any other class is
            refused when it is put.
        on_unknown_class: what a stored object becomes whose class is not allowed, is gone, or does
            not take what was stored: an `EvolutionError` (``"raise"``), or what is stored of it,
            a dict for the most part (``"raw"``), which is logged and told the observer.
        redact: what to take out of state, writes and metadata before anything of it is serialized:
            `Redact` rules, functions, or a list of both, one after the other. A function is called
            with the channel's name and an item of a list, or the whole value if it is none, and
            returns what to store; it is not called again for items that are stored already. A
            function that raises is a `ValueRefusedError`.
        detect_secrets: log, and tell the observer of, what looks like a token, key or password
            that its issuer gave a known shape: its channel and path, never itself, once for each
            place. It is stored all the same.
        on_corrupt: where a head is not what was written, and neither tier has it right: serve the
            newest ancestor that is sound (``"fall_back"``), which is reported and marked in the
            metadata, or ``"raise"`` a `CorruptionError`.
        stale_after: seconds after which a head that is served is marked in its metadata
            (``durable_state_aged``), by its own ``ts``; None for never.
        on_recovery: called with the `RecoveryReport` by a read of a head that is not served just as
            it was left: it is damaged, or stale. What it raises is raised by that read. On the
            thread or in the loop that reads.
        observer: called with an `Event` when a tier fails or is back, or something else happens
            that an operator wants to hear of; on the thread or in the loop that noticed it, so it
            should be quick. What it raises is logged once and fails nothing.
        integrity_key: what digests are made under, so that nobody without it can change what is
            stored and not be noticed: at least 32 bytes; or ``"env:NAME"`` or ``"file:/path"``,
            which hold it in hex or base64; or a callable that returns it, called once. Of several,
            in a list or where it is read from, the first makes, the others verify what they made.
        encryption_key: the master key (given like `integrity_key`) of the keys, one for each user,
            that all values, metadata and pending writes are encrypted with in both tiers. Digests
            are made under those then. Of several the first wraps, the others unwrap.
        clear_metadata: metadata keys whose values are not to be encrypted, so that they can be
            filtered by, beside LangGraph's own (``source``, ``step``, ``parents``, ``run_id``).
        accept_plain: believe what was stored without a key, or not encrypted, too, while a key is
            introduced.
        state_schema: the versions of the graph's state, and how each came from the one before: what
            older code stored is read in the shape that the graph has now. None for version 0.
        dual_write: ``(n - 1, n)`` stores everything in the shape of the version before as well, as
            long as workers with older code are at work; n is the schema's version.

    Raises:
        UsageError: if an argument cannot be used.
    """

    def __init__(
        self,
        postgres: PostgresSource,
        redis: RedisSource | None = None,
        *,
        serde: SerializerProtocol | None = None,
        schema: str = "durable_state",
        prefix: str = "durable_state",
        auto_setup: bool = True,
        on_conflict: OnConflict = "raise",
        hot_reads: HotReads = "auto",
        hot_ttl: int = 24 * 60 * 60,
        touch_on_read: bool = False,
        head_cache_bytes: int = 64 * 1024 * 1024,
        compression: Compression = "zstd",
        compression_level: int = 1,
        verify_round_trip: Verify = "raise",
        max_value_bytes: int | None = None,
        timeout: float = 5.0,
        redis_timeout: float = 0.5,
        pool_size: int = 10,
        write_policy: WritePolicy = "write_through",
        when_durable_down: WhenDurableDown | None = None,
        on_hot_lost: OnHotLost = "raise",
        stale_reads: bool = False,
        outbox_limit: int = 1_000,
        wait_aof: tuple[int, int] | None = None,
        allow_eviction: bool = False,
        allow: Allow = (),
        on_unknown_class: OnUnknownClass = "raise",
        redact: Redaction | None = None,
        detect_secrets: bool = False,
        on_corrupt: OnCorrupt = "fall_back",
        stale_after: float | None = None,
        on_recovery: OnRecovery | None = None,
        observer: Observer | None = None,
        integrity_key: KeySources | None = None,
        encryption_key: KeySources | None = None,
        clear_metadata: Sequence[str] = (),
        accept_plain: bool = False,
        state_schema: StateSchema | None = None,
        dual_write: tuple[int, int] | None = None,
    ) -> None:
        if serde is not None and not hasattr(serde, "loads_typed") and not hasattr(serde, "loads"):
            raise UsageError(f"serde must be a LangGraph serializer, not {serde!r}")
        super().__init__(serde=permitting(serde, allow))
        check_sources(postgres, redis, waits_for_disk=wait_aof is not None)
        self._settings = Settings(
            schema,
            prefix,
            auto_setup,
            on_conflict,
            hot_reads,
            hot_ttl,
            touch_on_read,
            head_cache_bytes,
            compression,
            compression_level,
            verify_round_trip,
            max_value_bytes,
            timeout,
            redis_timeout,
            pool_size,
            write_policy,
            when_durable_down,
            on_hot_lost,
            stale_reads,
            outbox_limit,
            wait_aof,
            allow_eviction,
            on_unknown_class,
            detect_secrets,
            on_corrupt,
            stale_after,
        )
        if redis is None and self._settings.policy.asks_hot:
            raise UsageError("write_behind and when_durable_down='queue' need a redis")
        self._leases = Leases()
        heads = HeadCache(head_cache_bytes)
        background = Background()
        keys = keys_for(integrity_key, encryption_key, accept_plain, clear_metadata)
        self._clear = keys.clear
        blobs = Blobs(compression, compression_level, keys)
        recent: Lately[tuple[Place, str], Known] = Lately(_RECENT)
        filled: Lately[Place, bool] = Lately(_FILLED)
        doubted: Lately[tuple[Place, str], bool] = Lately(_FILLED)
        told: Lately[tuple[Place, bytes], bool] = Lately(_FILLED)
        events = EventLog(observer)
        shape = shape_of(state_schema, dual_write)
        outlines: Lately[tuple[Place, str], Snapshot] = Lately(_FILLED)
        over: Lately[tuple[Place, str], bool] = Lately(_FILLED)
        namespaces: Lately[Place, Place] = Lately(_FILLED)
        interrupts: Lately[str, str] = Lately(_FILLED)
        shared = Shared(
            blobs=blobs,
            numbers=Numbers(),
            register=Register(),
            heads=heads,
            recent=recent,
            filled=filled,
            doubted=doubted,
            told=told,
            events=events,
            reader=Reader(blobs, head_cache_bytes > 0, events.unknown_class, shape),
            hot_from=self._settings.hot_from,
            fork_on_conflict=on_conflict == "fork",
            policy=self._settings.policy,
            unflushed=background,
            leases=self._leases,
            clock=time.time,
            shape=shape,
            outlines=outlines,
            over=over,
            namespaces=namespaces,
            interrupts=interrupts,
            serializer=Serializer(self.serde),
            on_recovery=check_hook(on_recovery),
        )
        caches = (heads, recent, filled, doubted, told, outlines, over, interrupts, namespaces)
        self._faces = Faces(postgres, redis, self._settings, shared, caches, background)
        screen = Screen(redact, events.secret_seen if self._settings.detect_secrets else None)
        self._screen = None if screen.idle else screen
        self._made_serializer: Serializer | None = None
        self._servers: Any = None

    @classmethod
    def embedded(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """A saver over a Postgres and a Valkey of its own, from wheels, with their data in `path`.

        Several processes may open one path at once; the last one to close stops the servers.

        Args:
            path: a directory; made if it is not there.
            options: as for `DurableSaver`.

        Raises:
            UsageError: if the extra ``embedded`` is not installed.
        """
        from . import embedded

        cls("", "redis://", **options).close()  # what cannot be used is said before servers start
        servers = embedded.start(path)
        saver = cls(servers.postgres, servers.redis, **options)
        saver._servers = servers
        return saver

    @property
    def _serializer(self) -> Serializer:
        # `with_allowlist` copies the saver and swaps `serde`, so it is read at each call.
        made = self._made_serializer
        if made is None or made.serde is not self.serde:
            settings = self._settings
            made = self._made_serializer = Serializer(
                self.serde,
                settings.verify_round_trip,
                settings.max_value_bytes,
                settings.on_unknown_class,
                self._screen,
            )
        return made

    # -- life --------------------------------------------------------------------------------

    def setup(self) -> None:
        """Installs or upgrades the tables. Safe to call often, and by several at once.

        Redis is asked as well, and the log says if it does not answer: without it all works, only
        slower.

        Raises:
            UnavailableError: if Postgres cannot be reached.
            UsageError: if they are not installed and this role may not do it.
        """
        run(self._setup_blocking())

    async def asetup(self) -> None:
        """Installs or upgrades the tables; see `setup`."""
        driver = await self._faces.native()
        await driver.durable.setup()
        await driver.copies.check()

    async def _setup_blocking(self) -> None:
        driver = await self._faces.blocking()
        await driver.durable.setup()
        await driver.copies.check()

    @staticmethod
    def ddl(schema: str = "durable_state") -> str:
        """The tables as SQL, for an administrator to review and run in one transaction.

        Raises:
            UsageError: if the schema's name would need quoting.
        """
        check_schema(schema)
        return schema_sql(schema)

    def close(self) -> None:
        """Flushes and closes what this saver opened. Afterwards every call raises `ClosedError`.

        Raises:
            UnavailableError: if something could not be flushed; it is closed all the same, and
                Redis holds it for whoever flushes next.
        """
        try:
            self._flush_at_end()
        finally:
            run(self._faces.close_blocking())
            self._stop_servers()

    async def aclose(self) -> None:
        """Closes what this saver opened; see `close`."""
        try:
            await self._aflush_at_end()
        finally:
            await self._faces.close_native()
            self._stop_servers()

    def _stop_servers(self) -> None:
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.close()

    def __enter__(self) -> Self:
        self._faces.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._faces.check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # -- reading -----------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names by id, or the thread's head.

        Raises:
            UnavailableError: if Postgres cannot be reached: an outage is never an empty thread.
            CorruptionError: if what is stored is not what was written.
            UsageError: if the config cannot be used.
        """
        return run(self._get_tuple_blocking(config))

    async def _get_tuple_blocking(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await (await self._faces.blocking()).engine.get(self._serializer, config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names by id, or the thread's head; see `get_tuple`."""
        return await (await self._faces.native()).engine.get(self._serializer, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first within each namespace; read in pages.

        Args:
            config: the thread, and optionally namespace and checkpoint id; None for all threads.
            filter: metadata that must be equal, JSON types included (True is not 1; None is an
                explicit null).
            before: only what comes before this checkpoint: by position in the namespace it
                belongs to, by id elsewhere.
            limit: at most so many.

        Raises:
            UsageError: if an argument cannot be used.
        """
        listing = listing_of(config, filter, before, self._clear)
        pages = run(self._pages_blocking(config, listing, arguments.limit(limit)))
        while (page := run(_next_page(pages))) is not None:
            yield from page

    async def _pages_blocking(
        self, config: RunnableConfig | None, listing: Any, limit: int | None
    ) -> AsyncIterator[Sequence[CheckpointTuple]]:
        engine = (await self._faces.blocking()).engine
        return engine.list(self._serializer, config, listing, limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first within each namespace; see `list`."""
        listing = listing_of(config, filter, before, self._clear)
        arguments.limit(limit)
        engine = (await self._faces.native()).engine
        async for page in engine.list(self._serializer, config, listing, limit):
            for found in page:
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes that DeltaChannels replay along one branch, and where they start from.

        Only writes that the branch itself consumed are replayed. The number of round trips is
        bounded by the logarithm of the chain's length.

        Raises:
            CorruptionError: if anything of the chain is missing or is not what was written.
        """
        return run(self._delta_blocking(config, channels))

    async def _delta_blocking(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        engine = (await self._faces.blocking()).engine
        return await engine.delta_history(self._serializer, config, channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes that DeltaChannels replay; see `get_delta_channel_history`."""
        engine = (await self._faces.native()).engine
        return await engine.delta_history(self._serializer, config, channels)

    # -- writing -----------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, durably.

        A checkpoint whose id is stored already with the same content is there already; with other
        content it is replaced and becomes the head, as in LangGraph's own savers.

        Raises:
            ConflictError: if another run advanced the thread first; the checkpoint is kept.
            LeaseLostError: if the lease that it is made under was lost; nothing was written.
            ValueRefusedError: if a value would not come back; nothing was written.
            UnavailableError: if Postgres cannot be reached.
        """
        return run(self._put_blocking(config, checkpoint, metadata, new_versions))

    async def _put_blocking(self, config: RunnableConfig, *what: Any) -> RunnableConfig:
        driver = await self._faces.blocking()
        return await driver.writer.put(self._serializer, config, *what)  # type: ignore[no-any-return]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, durably; see `put`."""
        if not self._faces.ready:  # installing waits, and the caller may change its objects
            request(config, checkpoint, metadata, new_versions)  # says what cannot be used
            checkpoint = self._serializer.copied_checkpoint(checkpoint)
        driver = await self._faces.native()
        return await driver.writer.put(  # type: ignore[no-any-return]
            self._serializer, config, checkpoint, metadata, new_versions
        )

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores a task's writes against a checkpoint, which may not be stored yet.

        A task's first batch of ordinary writes stays; of each special channel the last counts.

        Raises:
            LeaseLostError: if the lease that they are made under was lost; nothing was written.
            ValueRefusedError: if a value would not come back; nothing was written.
            UnavailableError: if Postgres cannot be reached.
        """
        run(self._put_writes_blocking(config, writes, task_id, task_path))

    async def _put_writes_blocking(self, config: RunnableConfig, *what: Any) -> None:
        driver = await self._faces.blocking()
        await driver.writer.put_writes(self._serializer, config, *what)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores a task's writes against a checkpoint; see `put_writes`."""
        if not self._faces.ready:  # installing waits, and the caller may change its objects
            writes = [
                (name, self._serializer.copied(value, name))
                for name, value in arguments.writes(writes)
            ]
        driver = await self._faces.native()
        await driver.writer.put_writes(self._serializer, config, writes, task_id, task_path)

    def get_next_version(self, current: str | None, channel: None = None) -> str:
        """The channel version after `current`; it carries on the proof of the run it belongs to.

        Raises:
            ConflictError: if that run has lost the head: LangGraph stops it here.
            LeaseLostError: if the lease that it is made under was lost, likewise.
        """
        found = run_of(current)
        if found is None and current is not None:
            return following(current)  # type: ignore[return-value]
        owner = found.resolved() if found is not None else Run()
        if owner.conflict is not None:
            raise owner.conflict
        if owner.place is not None:
            fence_of(self._leases, owner.place.thread, owner)
        return Tagged(str(following(current)), owner)

    # -- upkeep ------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str, *, tenant_id: str = "") -> None:
        """Removes all of a thread, in both tiers.

        Args:
            thread_id: which.
            tenant_id: whose, if the thread was put with a `tenant_id` in its config.
        """
        run(self._delete_thread_blocking(_thread(thread_id, tenant_id)))

    async def _delete_thread_blocking(self, thread: Thread) -> None:
        await (await self._faces.blocking()).upkeep.delete_thread(thread)

    async def adelete_thread(self, thread_id: str, *, tenant_id: str = "") -> None:
        """Removes all of a thread, in both tiers.

        Args:
            thread_id: which.
            tenant_id: whose, if the thread was put with a `tenant_id` in its config.
        """
        thread = _thread(thread_id, tenant_id)
        await (await self._faces.native()).upkeep.delete_thread(thread)

    def delete_for_runs(self, run_ids: Sequence[str], *, tenant_id: str = "") -> None:
        """Removes the checkpoints whose metadata names one of these runs, and their writes.

        A head among them moves to the newest checkpoint that is left. What the DeltaChannels of
        a head that stays are made from is not removed, and the log says so.
        """
        ids = arguments.texts("run_ids", run_ids)
        run(self._delete_for_runs_blocking(ids, arguments.text("tenant_id", tenant_id)))

    async def _delete_for_runs_blocking(self, run_ids: Sequence[str], tenant_id: str) -> None:
        upkeep = (await self._faces.blocking()).upkeep
        await upkeep.delete_for_runs(self._serializer, tenant_id, run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str], *, tenant_id: str = "") -> None:
        """Removes the checkpoints of these runs; see `delete_for_runs`."""
        ids = arguments.texts("run_ids", run_ids)
        arguments.text("tenant_id", tenant_id)
        upkeep = (await self._faces.native()).upkeep
        await upkeep.delete_for_runs(self._serializer, tenant_id, ids)

    def copy_thread(
        self,
        source_thread_id: str,
        target_thread_id: str,
        *,
        latest_only: bool = False,
        tenant_id: str = "",
    ) -> None:
        """Copies a thread to a new one.

        Args:
            source_thread_id: what to copy; nothing happens if it is empty.
            target_thread_id: must have no checkpoints.
            latest_only: copy each namespace's head, and the ancestors that DeltaChannels need.
            tenant_id: whose both are.

        Raises:
            UsageError: if the target has checkpoints.
            ConflictError: if the source was pruned meanwhile at each of several tries.
        """
        source, target = _thread(source_thread_id, tenant_id), _thread(target_thread_id, tenant_id)
        arguments.flag("latest_only", latest_only)
        run(self._copy_thread_blocking(source, target, latest_only))

    async def _copy_thread_blocking(self, source: Thread, target: Thread, latest: bool) -> None:
        upkeep = (await self._faces.blocking()).upkeep
        await upkeep.copy(self._serializer, source, target, latest)

    async def acopy_thread(
        self,
        source_thread_id: str,
        target_thread_id: str,
        *,
        latest_only: bool = False,
        tenant_id: str = "",
    ) -> None:
        """Copies a thread to a new one; see `copy_thread`."""
        source, target = _thread(source_thread_id, tenant_id), _thread(target_thread_id, tenant_id)
        arguments.flag("latest_only", latest_only)
        upkeep = (await self._faces.native()).upkeep
        await upkeep.copy(self._serializer, source, target, latest_only)

    def prune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", tenant_id: str = ""
    ) -> None:
        """Removes history that nothing needs.

        Args:
            thread_ids: which threads.
            strategy: ``"keep_latest"`` keeps each namespace's head with its pending writes, and
                the ancestors its DeltaChannels are made from; ``"delete"`` keeps nothing.
            tenant_id: whose they are.

        Raises:
            UsageError: if the strategy is unknown.
            ConflictError: if a thread moved on at each of several tries.
        """
        threads = [_thread(id, tenant_id) for id in arguments.texts("thread_ids", thread_ids)]
        check_strategy(strategy)
        run(self._prune_blocking(threads, strategy))

    async def _prune_blocking(self, threads: Sequence[Thread], strategy: str) -> None:
        upkeep = (await self._faces.blocking()).upkeep
        for thread in threads:
            await upkeep.prune(self._serializer, thread, strategy)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", tenant_id: str = ""
    ) -> None:
        """Removes history that nothing needs; see `prune`."""
        threads = [_thread(id, tenant_id) for id in arguments.texts("thread_ids", thread_ids)]
        check_strategy(strategy)
        upkeep = (await self._faces.native()).upkeep
        for thread in threads:
            await upkeep.prune(self._serializer, thread, strategy)


async def _next_page(
    pages: AsyncIterator[Sequence[CheckpointTuple]],
) -> Sequence[CheckpointTuple] | None:
    return await anext(pages, None)


def _thread(thread_id: str, tenant_id: str) -> Thread:
    return thread_of({"configurable": {"thread_id": thread_id, "tenant_id": tenant_id}})
