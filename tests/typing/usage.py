"""How users write it, for a type checker: `test_public_types.py` runs mypy over this file."""

from collections.abc import Awaitable
from typing import assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_durable_state import (
    ConflictError,
    CorruptionError,
    DurableSaver,
    DurableStateError,
    Event,
    Health,
    LeaseHeldError,
    LeaseLostError,
    RecoveryReport,
    Redact,
    UnavailableError,
    ValueRefusedError,
    VerifyReport,
    arerun_on_conflict,
    rerun_on_conflict,
)

saver = DurableSaver("postgresql://", "redis://", on_conflict="fork", head_cache_bytes=0)
as_langgraph_sees_it: BaseCheckpointSaver[str] = saver
DurableSaver(ConnectionPool("", open=False))
DurableSaver(AsyncConnectionPool("", open=False), compression="none")
DurableSaver("", allow=[Event, ("app", "State")], redact=[Redact("x"), Redact(path="$..y", by=0)])
DurableSaver("", allow=True, redact=lambda channel, value: (channel, value), detect_secrets=True)
assert_type(DurableSaver.embedded("./state", timeout=1.0), DurableSaver)
assert_type(DurableSaver.ddl(), str)

config: RunnableConfig = {"configurable": {"thread_id": "t"}}
assert_type(saver.get_tuple(config), CheckpointTuple | None)
saver.copy_thread("a", "b", latest_only=True)


def observer(event: Event) -> None:
    assert_type((event.kind == "tier_down", event.tier, event.at), tuple[bool, str | None, float])


def hook(report: RecoveryReport) -> None:
    assert_type((report.checkpoint, report.age), tuple[str | None, float | None])


DurableSaver("", observer=observer)
DurableSaver("", on_corrupt="raise", stale_after=60, on_recovery=hook)
assert_type(saver.recover(config), RecoveryReport)
assert_type(saver.fork_from(saver.recover(config)), RunnableConfig)
health = saver.health()
assert_type(health, Health)
report = saver.verify(["t"], repair=True, progress=lambda now: print(now.share))
assert_type(report, VerifyReport)
assert_type([found.outcome == "lost" for found in report.findings], list[bool])
assert_type((health.ok, health.outbox_depth), tuple[bool, int | None])

with saver as opened:
    assert_type(opened, DurableSaver)

with saver.lease("t", wait=1.0, ttl=10, tenant_id="a") as lease:
    lease.check()
    assert_type((lease.thread_id, lease.fence, lease.held), tuple[str, int, bool])


def answer() -> int:
    return 1


async def aanswer() -> int:
    async with saver as also_opened:
        assert_type(also_opened, DurableSaver)
        async with also_opened.alease("t") as held:
            held.check()
        assert_type(await also_opened.ahealth(), Health)
        report = await also_opened.arecover(config)
        assert_type(await also_opened.afork_from(report), RunnableConfig)
        assert_type(await also_opened.averify(after="token"), VerifyReport)
    return 1


assert_type(rerun_on_conflict(answer), int)
pending: Awaitable[int] = arerun_on_conflict(aanswer, tries=2)

try:
    saver.setup()
except ConflictError as error:
    assert_type((error.thread, error.expected, error.refused), tuple[str, str | None, str | None])
except LeaseHeldError as error:
    assert_type((error.thread, error.holder, error.left), tuple[str, str, float])
except LeaseLostError as error:
    assert_type((error.thread, error.fence), tuple[str, int])
except CorruptionError as error:
    assert_type((error.checkpoint, error.channel), tuple[str, str | None])
except UnavailableError as error:
    assert_type((error.tier, error.retryable), tuple[str, bool])
except ValueRefusedError as error:
    assert_type((error.where, error.reason), tuple[str, str])
except DurableStateError:
    pass

DurableSaver("", hot_reads="sometimes")  # type: ignore[arg-type]
DurableSaver(5)  # type: ignore[arg-type]
saver.lease("t", 5)  # type: ignore[call-arg]
saver.verify("t", True)  # type: ignore[call-arg]
DurableSaver("", observer=lambda: None)  # type: ignore[arg-type, misc]
DurableSaver("", on_corrupt="ignore")  # type: ignore[arg-type]
DurableSaver("", colour="red")  # type: ignore[call-arg]
