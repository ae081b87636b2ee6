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
    the copy, or the head's own digest, tells which of those seen it is."""
    head = sight.heads.get(ns)
    rows = [raw for raw in sight.records.values() if raw.ns == ns and not raw.refused]
    if head is not None and (not head.digest or (ns, head.id) in sight.records):
        return None
    copy = sources.copies.get(ns)
    known = (copy.id, copy.digest) if copy is not None else None
    named = next((raw for raw in rows if (raw.id, raw.digest) == known), None)
    if head is None:
        if not rows:
            return None
        reason = "it is missing"
        last = max(raw.seq for raw in sight.records.values() if raw.ns == ns)
        right = RawHead(ns, last, named.id, named.digest) if named is not None else None
        return Flaw("head", ns, None, reason, Repair(right, None, None) if right else None)
    named = next((raw for raw in rows if raw.digest == head.digest), named)
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
