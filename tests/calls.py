"""One of each call, on a thread of three checkpoints, and whether it did what it should."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.cases import at, cp, id_of, ids_of, put, values_of

STEPS = [{"c": n, "long": [f"{i} " + "x" * 80 for i in range(n + 1)]} for n in range(3)]

Open = Callable[..., Any]
"""Opens savers: `open_saver(postgres, redis, **options)`."""

QUICK: dict[str, Any] = {"timeout": 1.0, "redis_timeout": 0.2}
"""Options of a saver that gives up soon."""

CALLS: dict[str, Callable[[Any, list[Any]], Awaitable[Any]]] = {
    "get_tuple of the head": lambda s, _: s.get_tuple(at()),
    "get_tuple by id": lambda s, c: s.get_tuple(c[1]),
    "list": lambda s, _: s.list(at()),
    "list of all threads": lambda s, _: s.list(None),
    "get_delta_channel_history": lambda s, c: s.get_delta_channel_history(
        config=c[2], channels=["c"]
    ),
    "put": lambda s, c: put(s, c[2], cp({"c": 3}, versions={"c": "4"})),
    "put_writes": lambda s, c: s.put_writes(c[2], [("c", "written")], "task"),
    "delete_thread": lambda s, _: s.delete_thread("t"),
    "delete_for_runs": lambda s, _: s.delete_for_runs(["run"]),
    "copy_thread": lambda s, _: s.copy_thread("t", "copy"),
    "prune": lambda s, _: s.prune(["t"]),
    "setup": lambda s, _: s.setup(),
}


async def done_right(name: str, result: Any, reader: Any, configs: list[Any]) -> bool:
    """Whether a call of `CALLS` gave or did what it should."""
    if name == "get_tuple of the head":
        return values_of(result) == STEPS[2]
    if name == "get_tuple by id":
        return values_of(result) == STEPS[1]
    if name.startswith("list"):
        return [values_of(found) for found in result] == STEPS[::-1]
    if name == "get_delta_channel_history":
        return (result["c"]["writes"], result["c"]["seed"]) == ([], 1)
    head = await reader.get_tuple(at())
    if name == "put":
        return values_of(head) == {"c": 3}
    if name == "put_writes":
        return head.pending_writes == [("task", "c", "written")]
    if name in ("delete_thread", "delete_for_runs"):
        return head is None
    if name == "copy_thread":
        copied = await reader.list(at("copy"))
        return [values_of(found) for found in copied] == STEPS[::-1]
    if name == "prune":
        return ids_of(await reader.list(at())) == [id_of(configs[2])]
    return values_of(head) == STEPS[2]


async def three_steps(saver: Any) -> list[Any]:
    """Stores the checkpoints of `STEPS`; their configs."""
    config = at()
    configs = []
    for step, values in enumerate(STEPS):
        versions = dict.fromkeys(values, str(step))
        metadata = {"source": "loop", "step": step, "run_id": "run"}
        config = await put(saver, config, cp(values, versions=versions), metadata)
        configs.append(config)
    return configs
