"""The documentation says what the code does."""

from __future__ import annotations

from pathlib import Path

from langgraph_durable_state.decisions.ahead import TABLE, Durable, Hot

PAGE = Path(__file__).parents[2] / "docs" / "outages.md"
BEGIN, END = ("<!-- decisions.ahead: " + word + " -->\n" for word in ("begin", "end"))


def rendered() -> str:
    """The table of decisions as Markdown: a row per answer of Redis, a column per Postgres's."""
    head = ["Redis, of the same head", *(f"Postgres: {durable.value}" for durable in Durable)]
    rows = [[hot.value, *(TABLE[durable][hot].value for durable in Durable)] for hot in Hot]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_page_on_outages_has_the_table_of_decisions() -> None:
    """Copied from what the code looks up; `rendered()` is what belongs there."""
    page = PAGE.read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == rendered()
