"""Whether a thread's entry and its heads are there and name what is there.

This file decides and never acts.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ..asfound import RawHead, RawThread, Repair, Sight
from . import keys
from .evidence import Flaw, Sources, quarantined


def misplaced_head(key: UUID, sight: Sight, ns: str, sources: Sources) -> Flaw | None:
    """A head that is missing though checkpoints stand in its namespace, or that names none of them;
    the head's own digest, or the copy, tells which of those seen it is. A copy that is older than
    one of them proves nothing."""
    head = sight.heads.get(ns)
    rows = [raw for raw in sight.records.values() if raw.ns == ns and not raw.refused]
    if head is not None and (not head.digest or (ns, head.id) in sight.records):
        return None
    last = max((raw.seq for raw in sight.records.values() if raw.ns == ns), default=0)
    newest = max(rows, key=lambda raw: raw.seq, default=None)
    copy = sources.copies.get(ns)
    agree = copy and newest and (copy.id, copy.digest) == (newest.id, newest.digest)
    copied = newest if agree else None
    if head is None:
        if newest is None:
            return None
        right = RawHead(ns, last, copied.id, copied.digest) if copied is not None else None
        return Flaw("head", ns, None, "it is missing", Repair(right, None, None) if right else None)
    named = next((raw for raw in rows if raw.digest == head.digest), None)
    if named is None and head.seq <= last:  # or what came last is what is missing
        named = copied
    if named is None:
        return None  # its checkpoint is what is missing
    reason = f"it names {head.id}, which is not there"
    kept = quarantined(key, "head", ns, head, reason)
    right = replace(head, id=named.id, digest=named.digest)
    return Flaw("head", ns, head.id, reason, Repair(right, head, kept))


def misnamed(key: UUID, entry: RawThread | None, names: RawThread | None) -> Flaw | None:
    """What is wrong with a thread's entry; `names` are what it is known by elsewhere."""
    if entry is not None and is_key(key, entry):
        return None
    reason = "it is missing" if entry is None else "its names are not those of its key"
    right = names if names is not None and is_key(key, names) else None
    if right is None:
        return Flaw("thread", "", None, reason)
    if entry is not None:
        right = replace(right, user=entry.user, session=entry.session)
    kept = quarantined(key, "thread", "", entry, reason) if entry is not None else None
    return Flaw("thread", "", None, reason, Repair(right, entry, kept))


def is_key(key: UUID, names: RawThread) -> bool:
    """Whether these are the names that a key is made from."""
    try:
        return keys.thread_key(keys.decoded(names.tenant), keys.decoded(names.id)) == key
    except UnicodeDecodeError:
        return False
