"""Tables of every version that was ever installed become those of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from langgraph_durable_state import DurableSaver

GOLDEN = Path(__file__).parent.parent / "golden"

CATALOG = """
SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attcollation::regcollation::text
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
 WHERE c.relnamespace = 'durable_state'::regnamespace AND c.relkind = 'r'
   AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index', tablename, indexname, indexdef, NULL, NULL, NULL, NULL
  FROM pg_indexes WHERE schemaname = 'durable_state'
UNION ALL
SELECT 'table', relname, array_to_string(reloptions, ','), NULL, NULL, NULL, NULL, NULL
  FROM pg_class WHERE relnamespace = 'durable_state'::regnamespace AND relkind = 'r'
UNION ALL
SELECT 'function', proname, pg_get_functiondef(oid), NULL, NULL, NULL, NULL, NULL
  FROM pg_proc WHERE pronamespace = 'durable_state'::regnamespace
UNION ALL
SELECT 'version', max(version)::text, NULL, NULL, NULL, NULL, NULL, NULL
  FROM durable_state.installed
ORDER BY 1, 2, 3
"""


def catalog(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(CATALOG).fetchall()


def test_version_1_becomes_what_is_installed_today(postgres_url: str) -> None:
    """The upgraded tables cannot be told from fresh ones, and what was in them is still there."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        with DurableSaver(postgres_url) as saver:
            saver.setup()
        fresh = catalog(connection)
        connection.execute("DROP SCHEMA durable_state CASCADE")
        old = (GOLDEN / "schema-1.sql").read_text().format(schema="durable_state")
        connection.execute(old)
        assert catalog(connection) != fresh
        connection.execute(
            "INSERT INTO durable_state.head (tk, ns, seq, id, digest)"
            " VALUES (gen_random_uuid(), '', 7, 'a', 'digest')"
        )
        with DurableSaver(postgres_url) as saver:
            saver.setup()
        assert catalog(connection) == fresh
        kept = connection.execute("SELECT ns, seq, id, ahead, flushed FROM durable_state.head")
        assert kept.fetchall() == [("", 7, "a", None, 0)]
