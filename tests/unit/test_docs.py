"""The documentation says what the code does."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langgraph_durable_state import cli_schema
from langgraph_durable_state.decisions.ahead import TABLE, Durable, Hot
from langgraph_durable_state.decisions.recovery import KINDS, RULES, Rule
from langgraph_durable_state.evolution import StateSchema

DOCS = Path(__file__).parents[2] / "docs"


def between(page: str, name: str) -> str:
    """What stands between the marks of a table."""
    begin, end = (f"<!-- {name}: {word} -->\n" for word in ("begin", "end"))
    return (DOCS / page).read_text().partition(begin)[2].partition(end)[0]


def markdown(lines: list[list[str]]) -> str:
    """A table, the first line being its head."""
    head, *rows = lines
    whole = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


def rendered() -> str:
    """The table of decisions as Markdown: a row per answer of Redis, a column per Postgres's."""
    head = ["Redis, of the same head", *(f"Postgres: {durable.value}" for durable in Durable)]
    rows = [[hot.value, *(TABLE[durable][hot].value for durable in Durable)] for hot in Hot]
    return markdown([head, *rows])


def test_the_page_on_outages_has_the_table_of_decisions() -> None:
    """Copied from what the code looks up; `rendered()` is what belongs there."""
    assert between("outages.md", "decisions.ahead") == rendered()


COLUMNS = (
    "the current head is",
    "its tier has",
    "the other tier has",
    "an earlier one is sound",
    "asked for, `on_corrupt`",
    "its shape is",
    "`stale_after`",
)


def recovery() -> str:
    """The rules of recovery as Markdown: a row per rule, a column per kind of evidence."""
    rows = [[*_words(rule), f"**{rule.decision.value}**: {rule.means}"] for rule in RULES]
    return markdown([[*COLUMNS, "decision"], *rows])


def _words(rule: Rule) -> list[str]:
    return [
        " / ".join(word.value for word in kind if word in rule.when.get(kind, ()))
        if len(rule.when.get(kind, ())) < len(kind)
        else ""
        for kind in KINDS
    ]


def test_the_page_on_integrity_has_the_rules_of_recovery() -> None:
    """Copied from what the code looks up; `recovery()` is what belongs there."""
    assert between("integrity.md", "decisions.recovery") == recovery()


class Before(TypedDict):
    msgs: Annotated[list[str], operator.add]
    draft: str


class After(TypedDict):
    messages: Annotated[list[str], operator.add]
    score: float
    tags: Annotated[list[str], operator.add]


def support(state: Any, node: str) -> Any:
    graph = StateGraph(state)
    graph.add_node(node, lambda _: {})
    graph.add_edge(START, node)
    return graph.compile(name="support")


def checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What `durable-state schema check` prints of a change that was not declared."""
    monkeypatch.setenv("COLUMNS", "100")
    recorded = StateSchema(0, "support").record(support(Before, "ask"))
    report = StateSchema(0, "support").check(support(After, "ask_human"), recorded)
    cli_schema._show(report, Path("support.fingerprint.json"))
    return f"```text\n{capsys.readouterr().out}```\n"


def test_the_page_on_evolution_has_what_schema_check_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied from the command; `checked()` is what belongs there."""
    assert between("evolution.md", "schema.check") == checked(monkeypatch, capsys)
