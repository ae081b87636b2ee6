"""What checkpoints and messages have in common, for zstd to refer to instead of storing it.

A single message or record is too small to compress by itself; most of it is the same in every
one. Each version of this text is part of the storage format: blobs name it by their method byte,
and it must never change. A better text gets a new method byte.
"""

from __future__ import annotations

_MESSAGE = (
    b"\xc8\x02\x17\x05\x94%blangchain_core.messages.%b\x86\xa7content\xda\x01\x90"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type%b\xa4name\xc0\xa2id%b"
    b"\xb3model_validate_json"
)
_RUN_ID = b"\xd9*lc_run--019b0000-0000-7000-8000-000000000000-0"
_UUID = b"\xd9$00000000-0000-4000-8000-000000000000"
_TOOL_CALL = (
    b"\x84\xa4name\xa6search\xa4args\x81\xa5query\xa2id\xbdcall_000000000000000000000000"
    b"\xa4type\xa9tool_call"
)
_AI_FIELDS = (
    b"\x8a\xa7content\xda\x01\x90\xb1additional_kwargs\x80\xb1response_metadata\x81"
    b"\xaemodel_provider\xa6openai\xaamodel_name\xa5gpt-4\xaffinish_reason\xa4stop"
    b"\xa4type\xa2ai\xa4name\xc0\xa2id" + _RUN_ID + b"\xaatool_calls\x91" + _TOOL_CALL + b"\xb2"
    b"invalid_tool_calls\x90\xaeusage_metadata\x85\xacinput_tokens\xcd\x01\x00\xadoutput_tokens"
    b"\xcc\x80\xactotal_tokens\xcd\x01\x80\xb3input_token_details\x82\xa5audio\x00\xaa"
    b"cache_read\x00\xb4output_token_details\x82\xa5audio\x00\xa9reasoning\x00"
    b"\xb3model_validate_json"
)
_AI_PLAIN = (
    b"\xc8\x02\x17\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda\x01\x90"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id"
    + _UUID
    + b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
)
_RECORD = (
    b"\x98\x01\x00\xc4\x10\x92\xa7msgpack\xc4\xf0\x85\xa1v\x04\xa2ts\xd9 2026-12-01T00:00:00.000000"
    b"+00:00\xb0channel_versions\x83\xa9__start__\xb300000002.0000000000\xa8messages\xb3"
    b"00000002.0000000000\xacbranch:to:agent\xb300000002.0000000000\xadversions_seen\x83\xa9"
    b"__input__\x80\xa9__start__\x81\xa9__start__\xb300000001.0000000000\xa5agent\x81\xb0"
    b"branch:to:agent\xb300000002.0000000000\xb0updated_channels\x92\xabbranch:to:n\xa8messages"
    b"\x92\xa7msgpack\xc4!\x83\xa6source\xa4loop\xa4step\xcd\x01\x00\xa7parents\x80\x92\x96\xc4"
    b"\x08messages\xa7msgpack\xa1a\xc4\x00\x10\x90\x94\xc4\x0bbranch:to:n\xa4null\xa1i\xc4\x00"
    b"\x92\xb300000002.0000000000\xc4\x10"
)

VERSION_1 = b"".join(
    (
        b"__interrupt__ __resume__ __error__ __pregel_tasks langgraph.types Interrupt Send value "
        b"interrupts branch:to:tools branch:to:model join: true false null error result output "
        b"\xaccounters_since_delta_snapshot\xa6run_id\xa6update\xa4fork",
        _TOOL_CALL,
        b"\xc8\x02\x17\x05\x94\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xa4type"
        b"\xa4tool\xactool_call_id\xa8artifact\xc0\xa6status\xa7success",
        _MESSAGE % (b"\xbe", b"system\xadSystemMessage", b"\xa6system", _UUID),
        b"\xc8\x02\x17\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage" + _AI_FIELDS,
        _RECORD,
        b"\x81\xa8messages\x91",
        _AI_PLAIN,
        _MESSAGE % (b"\xbd", b"human\xacHumanMessage", b"\xa5human", b"\xd9$"),
    )
)
"""Most common last: what is near is cheaper to refer to."""
