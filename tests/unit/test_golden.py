"""Stored formats are read for ever: bytes of every format that was ever written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_durable_state.decisions import codec, dictionary, edges, heads
from langgraph_durable_state.decisions.cipher import Masters
from langgraph_durable_state.decisions.codec import Blobs
from langgraph_durable_state.decisions.evolution.operations import (
    add_channel,
    convert_channel,
    rename_channel,
    rename_node,
)
from langgraph_durable_state.decisions.evolution.steps import StateSchema
from langgraph_durable_state.decisions.keyring import Keys, keyring
from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.protocols.reading import Reader
from langgraph_durable_state.protocols.shaping import Shape
from langgraph_durable_state.protocols.vault import DataKeys
from langgraph_durable_state.words import ChunkRow, DataKey, Owner, Place, RecordRow, WriteRow

GOLDEN = Path(__file__).parent.parent / "golden"


def rows_of(stored: dict[str, Any]) -> tuple[RecordRow, dict[int, ChunkRow], list[WriteRow]]:
    """The rows of a fixture: a record, its chunks, and the writes that wait on it."""
    row = stored["row"]
    digest, packed = bytes.fromhex(row["digest"]), bytes.fromhex(row["record"])
    names = stored["ns"], row["id"], row.get("parent")
    edge = bytes.fromhex(row.get("edge", ""))
    record = RecordRow(*names, 1, digest, packed, tuple(row["numbers"]), edge=edge)
    chunks = {
        no: ChunkRow(no, bytes.fromhex(digest), bytes.fromhex(blob))
        for no, digest, blob in stored["chunks"]
    }
    writes = [
        WriteRow(
            w["id"],
            w["task"],
            w["slot"],
            w["path"],
            w["n"],
            bytes.fromhex(w["digest"]),
            bytes.fromhex(w["blob"]),
            tuple(w["numbers"]),
        )
        for w in stored["writes"]
    ]
    return record, chunks, writes


def test_the_dictionary_never_changes() -> None:
    """Blobs of method 1 can only be read with the very bytes they were written with."""
    assert hashlib.sha256(dictionary.VERSION_1).hexdigest() == (
        "4e91f83260665c9e11c69d67c74f85e7ff54d85dd82a8556466c92ea3324b5bf"
    )


def test_format_1_is_read() -> None:
    """A rope, a map, inline values and pending writes, as version 0.1 stored them."""
    stored: dict[str, Any] = json.loads((GOLDEN / "format-1.json").read_text())
    place = Place(named(stored["tenant"], stored["thread"]), stored["ns"])
    record_row, chunks, writes = rows_of(stored)
    reader = Reader(Blobs(), keep=False)
    record = reader.record(place, record_row, chunks)
    batches = reader.batches(place, writes, chunks)
    found = reader.tuple_of(record, batches, Serializer(JsonPlusSerializer()), None, False)
    assert found.checkpoint == {
        "v": 4,
        "id": "1f1ecf3f-3374-6d6d-8058-4e73c882490a",
        "ts": "2026-11-30T19:29:31.276673+00:00",
        "channel_values": {
            "messages": [
                HumanMessage("What is the weather in Lisbon? " * 12, id="h"),
                AIMessage("Sunny, 24 degrees. " * 20, id="a"),
            ],
            "files": {"/a.txt": "text of a " * 40, "/b.txt": "text of b " * 40},
            "note": "lone \ud800 surrogate",
            "counter": 7,
        },
        "channel_versions": {
            "messages": "00000002.77708e68c0",
            "files": "00000002.77708e68c0",
            "note": "00000001.71681284e9",
            "counter": 3,
        },
        "versions_seen": {"agent": {"messages": "00000001.71681284e9"}},
        "updated_channels": ["messages"],
    }
    assert found.metadata == {"source": "loop", "step": 1, "parents": {}, "nul": "a\x00b"}
    assert found.pending_writes == [
        ("task-1", "messages", [AIMessage("More of it. " * 30, id="m")]),
        ("task-1", "counter", 8),
        ("task-2", "__interrupt__", {"question": "go on?"}),
    ]
    assert codec.record_parts(record_row, Blobs()).format == 1


SECRET = b"golden key of thirty-two bytes!!"


def keys_of_format_2(kind: str, stored: dict[str, Any]) -> Keys:
    """The keys that the rows of format 2 were made with."""
    if kind == "signed":
        return keyring([SECRET], accepts_plain=False)
    return data_keys(stored)


def data_keys(stored: dict[str, Any]) -> Keys:
    """The keys of a user whose rows are encrypted."""
    found = DataKeys(Masters([SECRET]), keyring([], False), frozenset(), lambda: 0.0)
    for id, tenant, user, master, wrapped in stored["data_keys"]:
        parts = (bytes.fromhex(part) for part in (id, master, wrapped))
        key_id, of, sealed = parts
        found.hold(found.masters.unwrapped(DataKey(key_id, Owner(tenant, user), of, sealed)))
    return found


@pytest.mark.parametrize("kind", ["signed", "encrypted"])
def test_format_2_is_read(kind: str) -> None:
    """What was stored under a key, counted and signed as a head, and what was encrypted."""
    stored: dict[str, Any] = json.loads((GOLDEN / "format-2.json").read_text())[kind]
    keys = keys_of_format_2(kind, stored)
    place = Place(named(stored["tenant"], stored["thread"]), stored["ns"])
    record_row, chunks, writes = rows_of(stored)
    reader = Reader(Blobs(keys=keys), keep=False)
    record = reader.record(place, record_row, chunks)
    batches = reader.batches(place, writes, chunks)
    found = reader.tuple_of(record, batches, Serializer(JsonPlusSerializer()), None, False)
    assert found.checkpoint["channel_values"] == {
        "messages": [
            HumanMessage("What is the weather in Lisbon? " * 12, id="h"),
            AIMessage("Sunny, 24 degrees. " * 20, id="a"),
        ],
        "note": "lone \ud800 surrogate",
        "counter": 7,
    }
    assert found.metadata["source"] == "loop"
    assert found.pending_writes == [
        ("task-1", "messages", [AIMessage("More of it. " * 30, id="m")]),
        ("task-1", "counter", 8),
    ]
    assert codec.record_parts(record_row, Blobs(keys=keys)).format == 2
    head = bytes.fromhex(stored["head"])
    digest = record_row.digest
    assert heads.signed(place, record.id, digest, head, keys) == heads.Signed(record.id, digest, 1)


@pytest.mark.parametrize("kind", ["signed", "encrypted"])
def test_format_4_is_read(kind: str) -> None:
    """What is left of a pruned thread, under a key: its parent is not missed, as long as the edge
    is there. What is signed is in the shapes of two versions of a state."""
    stored: dict[str, Any] = json.loads((GOLDEN / "format-4.json").read_text())[kind]
    keys = keys_of_format_2(kind, stored)
    place = Place(named(stored["tenant"], stored["thread"]), stored["ns"])
    row, chunks, _ = rows_of(stored)
    blobs = Blobs(keys=keys)
    said = [
        HumanMessage("What is the weather in Lisbon? " * 12, id="h"),
        AIMessage("Sunny, 24 degrees. " * 20, id="a"),
    ]
    values: Any = {0: {"messages": said, "counter": 7}}
    if kind == "signed":
        values[1] = {"said": said, "counter": "7"}
    for version, expected in values.items():
        shape = Shape(schema_of_format_3()) if version else Shape()
        reader = Reader(blobs, keep=False, shape=shape)
        record = reader.record(place, row, chunks)
        found = reader.tuple_of(record, [], Serializer(JsonPlusSerializer()), None, False)
        assert found.checkpoint["channel_values"] == expected
        assert edges.is_told(record, row)
        assert not edges.is_told(record, replace(row, edge=b""))
    head = bytes.fromhex(stored["head"])
    assert heads.signed(place, row.id, row.digest, head, keys) is not None
    assert codec.record_parts(row, blobs).format == 4


def schema_of_format_3() -> StateSchema:
    """How the state of the rows of format 3 came to version 1."""
    schema = StateSchema(1)
    schema.step(
        0,
        rename_channel("messages", "said"),
        convert_channel("counter", str, int),
        add_channel("mood", default="even"),
        rename_node("ask", "ask_human"),
    )
    return schema


OF_FORMAT_3 = {
    "ask": "f39713e8-d5cc-b340-51bc-42c8fd57582f",
    "ask_human": "cad86a24-e4b3-14f0-e4c4-9a2de32be728",
    "f39713e8-d5cc-b340-51bc-42c8fd57582f": "4f802247e8108525d95387dabcaa160b",
    "cad86a24-e4b3-14f0-e4c4-9a2de32be728": "8673d35f9fa2aa62ea26d2c5ceb54532",
}
"""The ids that LangGraph 1.2 gives the task of the node of either name, and its interrupt."""


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
@pytest.mark.parametrize("version", [0, 1])
def test_format_3_is_read(kind: str, version: int) -> None:
    """A checkpoint in the shapes of two versions of a state, and writes in both, in the newer one
    alone and without a version, by code of either version; by the older one without what was
    stored for the newer one alone."""
    stored: dict[str, Any] = json.loads((GOLDEN / "format-3.json").read_text())[kind]
    place = Place(named(stored["tenant"], stored["thread"], "ada"), stored["ns"])
    record_row, chunks, writes = rows_of(stored)
    writes = [row for row in writes if version or row.task != "task-2"]
    blobs = Blobs(keys=data_keys(stored)) if kind == "encrypted" else Blobs()
    shape = Shape(schema_of_format_3()) if version else Shape()
    reader = Reader(blobs, keep=False, shape=shape)
    record = reader.record(place, record_row, chunks)
    batches = reader.batches(place, writes, chunks)
    found = reader.tuple_of(record, batches, Serializer(JsonPlusSerializer()), None, False)
    said = [
        HumanMessage("What is the weather in Lisbon? " * 12, id="h"),
        AIMessage("Sunny, 24 degrees. " * 20, id="a"),
    ]
    more = [AIMessage("More of it. " * 30, id="m")]
    assert found.pending_writes is not None
    pending = {(task, channel): value for task, channel, value in found.pending_writes}
    if version:
        task = OF_FORMAT_3["ask_human"]
        assert found.checkpoint["channel_values"] == {
            "said": said,
            "counter": "7",
            "mood": "good",
            "branch:to:ask_human": None,
        }
        assert pending == {
            (task, "__interrupt__"): pending[task, "__interrupt__"],
            (task, "said"): more,
            (task, "counter"): "8",
            (task, "mood"): "better",
            ("task-2", "counter"): "9",
            ("task-3", "counter"): "10",
        }
    else:
        task = OF_FORMAT_3["ask"]
        assert found.checkpoint["channel_values"] == {
            "messages": said,
            "counter": 7,
            "branch:to:ask": None,
        }
        assert pending == {
            (task, "__interrupt__"): pending[task, "__interrupt__"],
            (task, "messages"): more,
            (task, "counter"): 8,
            ("task-3", "counter"): 10,
        }
    (asked,) = pending[task, "__interrupt__"]
    assert (asked.value, asked.id) == ("go on?", OF_FORMAT_3[task])
    assert codec.record_parts(record_row, blobs).format == 3
