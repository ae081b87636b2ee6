"""What holds for all SQL statements."""

from __future__ import annotations

import re

from langgraph_durable_state.tiers.statements import queries

WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
REFUSES_STANDBYS = "OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END"


def test_every_statement_that_only_reads_refuses_a_standby() -> None:
    """Those that write or lock are refused by the standby itself; `ping` is there to be told."""
    for name, text in queries("schema").items():
        assert name == "ping" or WRITES.search(text) or text.endswith(REFUSES_STANDBYS), name
