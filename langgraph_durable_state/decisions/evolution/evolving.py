"""A snapshot of one version of a graph in the shape of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .snapshot import Snapshot
from .steps import StateSchema


def evolved(
    snapshot: Snapshot,
    schema: StateSchema,
    to: int,
    ns: str | None = None,
    interrupts: Mapping[str, str] | None = None,
) -> Snapshot:
    """The snapshot in the shape of version `to`; each write from the version that it is of.

    Args:
        snapshot: as stored; it is not changed.
        schema: the graph's.
        to: the version asked for.
        ns: the namespace under the names of that version; None if it is the same.
        interrupts: new ids of interrupts that subgraphs below raised; see `moved_interrupts`.

    Raises:
        EvolutionError: if it cannot be brought there without losing anything.
    """
    raise NotImplementedError


def moved_interrupts(
    snapshot: Snapshot, schema: StateSchema, to: int, ns: str | None = None
) -> dict[str, str]:
    """The new id of each interrupt that this snapshot's own tasks wait at, by the old one."""
    raise NotImplementedError


def moved_namespace(
    snapshot: Snapshot, schema: StateSchema, to: int, below: str, ns: str | None = None
) -> str:
    """What the namespace `below`, of a subgraph that one of this snapshot's tasks ran, is called
    at version `to`.

    Args:
        snapshot: of the graph around it, whose task the namespace names: its ``metadata`` and
            ``checkpoint`` suffice. Only its own level is mapped; go on with the snapshot below.
        below: a namespace that starts with `snapshot.ns`, one level deeper.
        ns: as for `evolved`, of `snapshot`.

    Raises:
        EvolutionError: if the task that it names is none of this checkpoint's.
    """
    raise NotImplementedError


def touched(schema: StateSchema, from_: int, to: int, path: str) -> frozenset[str] | None:
    """Channels of the shape of `to` whose stored bytes of version `from_` must not be reused;
    None for all of them.

    Args:
        path: the graph's, in the names of `to`; see `path_of`.
    """
    raise NotImplementedError


def path_of(ns: str) -> str:
    """The path of a graph's nodes that `StateSchema` knows it by, of its namespace."""
    raise NotImplementedError


def stored_name(schema: StateSchema, channel: str, from_: int, to: int, path: str) -> str | None:
    """What a channel of version `from_` was called at version `to`; None if it was not there.

    Args:
        path: the graph's, in the names of `from_`.

    Raises:
        EvolutionError: if it came from several channels or by a function: its history cannot be
            replayed.
    """
    raise NotImplementedError


def value_up(schema: StateSchema, channel: str, value: Any, from_: int, to: int, path: str) -> Any:
    """One stored value of a channel, or one write to it, in the shape of version `to`.

    Args:
        channel: what it is called at version `to`.
        path: the graph's, in the names of `to`.
    """
    raise NotImplementedError
