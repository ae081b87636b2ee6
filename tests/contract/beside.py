"""What another process does between two statements of a call, on the drivers that have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph_durable_state import DurableSaver


def plain(saver: Any) -> DurableSaver:
    """The saver itself, whose blocking methods may be called from any place."""
    return getattr(saver, "saver", saver)


async def beside(saver: Any, name: str, act: Callable[[], Any], *, held: bool = False) -> list[str]:
    """Does `act`, once, just before the next statement of this name that `saver` runs.

    Args:
        held: just after it instead, while its transaction is still to be committed.

    Returns:
        a list that holds the name once it was done.
    """
    faces = plain(saver)._faces
    driver: Any = await (faces.native() if plain(saver) is saver else faces.blocking())
    sql = driver.upkeep._durable._sql
    connections, text = sql._connections, sql._queries[name]
    ask, done = connections.ask, []

    async def asked(connection: Any, said: str, *rest: Any) -> Any:
        if said != text or done:
            return await ask(connection, said, *rest)
        done.append(name)
        if not held:
            act()
            return await ask(connection, said, *rest)
        _, _, until = rest
        await ask(connection, "BEGIN", None, False, until)
        rows = await ask(connection, said, *rest)
        act()
        await ask(connection, "COMMIT", None, False, until)
        return rows

    connections.ask = asked
    return done
