"""Data keys in the durable tier, on every driver."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_durable_state.words import DataKey, Owner
from tests.contract.rows import Ports, at, put, thread

ANNE, BOB = Owner("acme", "anne"), Owner("acme", "bob")
NOBODY = Owner("acme", None)


def key(name: str, owner: Owner = ANNE, master: str = "master") -> DataKey:
    return DataKey(name.encode(), owner, master.encode(), f"{name} wrapped".encode())


async def test_a_key_is_found_by_its_id_and_by_its_owner(ports: Ports) -> None:
    """An owner's newest first; of nobody else."""
    durable = ports.durable
    for one in (key("a1"), key("b1", BOB), key("n1", NOBODY), key("a2")):
        await durable.add_data_key(one)
    assert await durable.data_keys(ANNE) == [key("a2"), key("a1")]
    assert await durable.data_keys(BOB) == [key("b1", BOB)]
    assert await durable.data_keys(NOBODY) == [key("n1", NOBODY)]
    assert await durable.data_keys(Owner("", "anne")) == []
    assert await durable.data_key(b"b1") == key("b1", BOB)
    assert await durable.data_key(b"n1") == key("n1", NOBODY)
    assert await durable.data_key(b"x") is None


async def test_a_key_that_is_there_is_stored_anew(ports: Ports) -> None:
    """Under another master key, and at its place in the order."""
    for one in (key("a1"), key("a2"), key("a1", master="new")):
        await ports.durable.add_data_key(one)
    assert await ports.durable.data_keys(ANNE) == [key("a2"), key("a1", master="new")]


async def test_dropping_an_owners_keys_leaves_those_of_others(ports: Ports) -> None:
    for one in (key("a1"), key("a2"), key("b1", BOB), key("n1", NOBODY)):
        await ports.durable.add_data_key(one)
    assert await ports.durable.drop_data_keys(ANNE) == 2
    assert await ports.durable.drop_data_keys(ANNE) == 0
    assert await ports.durable.data_key(b"a1") is None
    assert await ports.durable.data_keys(BOB) == [key("b1", BOB)]
    assert await ports.durable.drop_data_keys(NOBODY) == 1
    assert await ports.durable.data_keys(BOB) == [key("b1", BOB)]


@pytest.mark.parametrize("user", ["anne", None])
async def test_a_thread_belongs_to_whom_it_was_begun_for(ports: Ports, user: str | None) -> None:
    """Whoever asks later, until it is deleted."""
    owners: Any = {"user": user} if user else {}
    await ports.durable.commit([put("a", place=at(tenant="acme", **owners))])
    for asks in ({"user": "bob"}, {"user": "anne"}, {}):
        assert await ports.durable.owner(thread(tenant="acme", **asks)) == Owner("acme", user)
    await ports.durable.delete_thread(thread(tenant="acme"))
    assert await ports.durable.owner(thread(tenant="acme", user="bob")) == BOB
