"""Arguments that cannot be used are said to be so, on each face, before anything is done."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from langgraph_durable_state import (
    DurableSaver,
    UsageError,
    arerun_on_conflict,
    rerun_on_conflict,
)
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep

KEY = b"k" * 32
DEEP: Any = "[" * 100_000
NESTED: Any = {"a": 1}
for _ in range(5_000):
    NESTED = {"a": NESTED}

CHECKPOINT = superstep(memory_saver(), None, "1", {})[1]
NAMED = config()
WITH_ID = config(id="1")

CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "get_tuple": [((bad,), {}) for bad in (None, 5, "t", {}, {"configurable": 5}, config("") )],
    "list": [
        ((5,), {}),
        (("t",), {}),
        (({"configurable": "t"},), {}),
        ((None,), {"filter": 5}),
        ((None,), {"filter": {5: 1}}),
        ((None,), {"filter": {"a": object()}}),
        ((None,), {"filter": NESTED}),
        ((None,), {"before": 5}),
        ((None,), {"limit": "5"}),
        ((None,), {"limit": 1.5}),
        ((None,), {"limit": True}),
    ],
    "get_delta_channel_history": [
        ((), {"config": None, "channels": ["c"]}),
        ((), {"config": NAMED, "channels": None}),
        ((), {"config": NAMED, "channels": "abc"}),
        ((), {"config": NAMED, "channels": [5]}),
    ],
    "put": [
        ((None, CHECKPOINT, {}, {}), {}),
        ((NAMED, None, {}, {}), {}),
        ((NAMED, {}, {}, {}), {}),
        ((NAMED, CHECKPOINT | {"id": 5}, {}, {}), {}),
        ((NAMED, CHECKPOINT | {"channel_values": 5}, {}, {}), {}),
        ((NAMED, CHECKPOINT | {"channel_versions": 5}, {}, {}), {}),
        ((NAMED, CHECKPOINT, None, {}), {}),
        ((NAMED, CHECKPOINT, 5, {}), {}),
        ((NAMED, CHECKPOINT, {}, None), {}),
    ],
    "put_writes": [
        ((None, [("c", 1)], "task"), {}),
        ((NAMED, [("c", 1)], "task"), {}),
        ((WITH_ID, None, "task"), {}),
        ((WITH_ID, 5, "task"), {}),
        ((WITH_ID, ["c"], "task"), {}),
        ((WITH_ID, [("c",)], "task"), {}),
        ((WITH_ID, [(5, 1)], "task"), {}),
        ((WITH_ID, [("c", 1)], None), {}),
        ((WITH_ID, [("c", 1)], "task", None), {}),
    ],
    "delete_thread": [((None,), {}), ((5,), {}), (("",), {}), (("t",), {"tenant_id": 5})],
    "delete_for_runs": [
        ((None,), {}), ((5,), {}), (("run",), {}), (([5],), {}), ((["run"],), {"tenant_id": 5}),
    ],
    "copy_thread": [
        ((None, "b"), {}), (("a", 5), {}), (("a", "b"), {"tenant_id": 5}),
        (("a", "b"), {"latest_only": "yes"}),
    ],
    "prune": [
        ((None,), {}), ((5,), {}), (("t",), {}), (([5],), {}), ((["t"],), {"strategy": None}),
        ((["t"],), {"tenant_id": 5}), (([],), {"strategy": "all"}),
    ],
    "flush": [((bad,), {}) for bad in (None, "5", 0, -1, float("nan"), True)]
    + [((), {"everyone": "yes"})],
    "accept_loss": [((None,), {}), ((5,), {}), (("t",), {"tenant_id": 5})],
    "recover": [((bad,), {}) for bad in (None, 5, {}, "t")],
    "fork_from": [((bad,), {}) for bad in (None, 5, "t")],
    "verify": [
        ((5,), {}), (("t",), {}), (([5],), {}), ((), {"repair": "yes"}), ((), {"after": 5}),
        ((), {"after": "x"}), ((), {"tenant_id": 5}), ((), {"progress": 5}),
    ],
    "export_head": [((None,), {}), ((5,), {}), (("t",), {"tenant_id": 5}),
        (("t",), {"checkpoint_ns": 5})],
    "check_head": [((bad,), {}) for bad in (None, 5, "", "{}", "[]", DEEP, '{"a":' * 100_000)],
    "accept_rollback": [((5,), {}), ((), {"tenant_id": 5}), (("t",), {"tenant_id": 5})],
    "rekey": [
        ((5,), {}), (("abc",), {}), (([5],), {}), ((), {"tenant_id": 5}), ((), {"tenant_id": None}),
        ((), {"renew": "yes"}), ((), {"progress": 5}),
    ],
    "migrate": [
        ((5,), {}), (("abc",), {}), (([5],), {}), ((), {"tenant_id": 5}), ((), {"dry_run": "yes"}),
        ((), {"progress": 5}), ((), {"to": "1"}),
    ],
    "shred": [
        ((bad,), {}) for bad in (None, 5, "")
    ] + [(("u",), {"tenant_id": None}), (("u",), {"tenant_id": 5})],
    "lease": [((None,), {}), ((5,), {}), (("t",), {"tenant_id": 5}), (("t",), {"ttl": "x"}),
        (("t",), {"wait": "x"})],
}  # fmt: skip

INTERNALS = ("object has no attribute", "object is not", "NoneType", "positional argument")


async def called(saver: DurableSaver, name: str, args: Any, options: Any) -> Any:
    """Calls a method to its end."""
    made = getattr(saver, name)(*args, **options)
    if isinstance(made, AsyncIterator):
        return [each async for each in made]
    if isinstance(made, Iterator):
        return list(made)
    if hasattr(made, "__aenter__") and not hasattr(made, "__enter__"):
        async with made:
            return None
    if hasattr(made, "__enter__"):
        with made:
            return None
    return await made if inspect.isawaitable(made) else made


@pytest.mark.parametrize("native", [False, True], ids=["blocking", "native"])
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [(name, *call) for name, calls in CALLS.items() for call in calls],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_used_is_a_usage_error(
    name: str, args: Any, options: Any, native: bool
) -> None:
    """With a message in the caller's words; nothing is stored."""
    saver = memory_saver(encryption_key=KEY)
    with pytest.raises(UsageError) as refused:
        asyncio.run(called(saver, f"a{name}" if native else name, args, options))
    assert not any(told in str(refused.value) for told in INTERNALS)
    assert list(saver.list(None)) == []


def test_every_public_method_is_asked() -> None:
    """But those that take nothing, or what LangGraph itself gives them."""
    public = {name for name in dir(DurableSaver) if not name.startswith("_")}
    asked = CALLS.keys() | {f"a{name}" for name in CALLS}
    without = {"get", "aget", "setup", "asetup", "close", "aclose", "health", "ahealth", "ddl"}
    from_langgraph = {"serde", "config_specs", "get_next_version", "with_allowlist", "embedded"}
    assert public == asked | without | from_langgraph


@pytest.mark.parametrize("schema", [None, 5, "", "a b"])
def test_a_schema_that_is_none_is_a_usage_error(schema: Any) -> None:
    """Where it is printed, and where a saver is made."""
    with pytest.raises(UsageError, match="schema"):
        DurableSaver.ddl(schema)
    with pytest.raises(UsageError, match="schema"):
        DurableSaver("", schema=schema)


@pytest.mark.parametrize(
    ("call", "options"),
    [(5, {}), (None, {}), *((dict, {"tries": bad}) for bad in (0, -1, "3", None, 1.5, True))],
)
def test_what_cannot_be_called_again_is_a_usage_error(call: Any, options: Any) -> None:
    """Before it is called."""
    with pytest.raises(UsageError):
        rerun_on_conflict(call, **options)
    with pytest.raises(UsageError):
        asyncio.run(arerun_on_conflict(call, **options))
