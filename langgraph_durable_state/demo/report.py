"""The pictures of `durable-state demo`: who did what, the tree of checkpoints, what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langchain_core.messages import AnyMessage
from langgraph.types import StateSnapshot
from rich import box
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .agent import Entry
from .storage import TableSize


def work_table(entries: Sequence[Entry]) -> Table:
    """Each piece of work, and what each process did of it."""
    workers = list(dict.fromkeys(entry.worker for entry in entries))
    table = Table(
        "piece of work",
        *workers,
        "times done",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    table.columns[-1].justify = "right"
    for work in dict.fromkeys(entry.work for entry in entries):
        cells = [_cell(entries, worker, work) for worker in workers]
        table.add_row(work, *cells, str(times_done(entries)[work]))
    return table


def _cell(entries: Iterable[Entry], worker: str, work: str) -> str:
    whats = {entry.what for entry in entries if (entry.worker, entry.work) == (worker, work)}
    if "done" in whats:
        return "[green]done[/]"
    return "[yellow]only begun[/]" if whats else ""


def times_done(entries: Iterable[Entry]) -> dict[str, int]:
    """How often each piece of work was finished."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.work] = counts.get(entry.work, 0) + (entry.what == "done")
    return counts


# -- the tree of checkpoints -----------------------------------------------------------------


def id_of(snapshot: StateSnapshot) -> str:
    """A snapshot's checkpoint id."""
    return str(snapshot.config["configurable"]["checkpoint_id"])


def parent_of(snapshot: StateSnapshot) -> str | None:
    """The id of the checkpoint before it."""
    parent = snapshot.parent_config
    return None if parent is None else str(parent["configurable"]["checkpoint_id"])


def short(id: str) -> str:
    """The part of a checkpoint id that tells it from its neighbours: the low digits of its time."""
    return id[9:18]


def checkpoint_tree(snapshots: Sequence[StateSnapshot], head: str) -> Tree:
    """A thread's history, oldest first; where it forks, each branch is indented."""
    children: dict[str | None, list[StateSnapshot]] = {}
    for snapshot in sorted(snapshots, key=id_of):
        children.setdefault(parent_of(snapshot), []).append(snapshot)
    tree = Tree("[bold]checkpoint[/] > what comes next, last message", guide_style="dim")
    _grow(tree, children, None, head)
    return tree


def _grow(
    tree: Tree, children: dict[str | None, list[StateSnapshot]], parent: str | None, head: str
) -> None:
    following = children.get(parent, [])
    while len(following) == 1:
        tree.add(_label(following[0], head))
        following = children.get(id_of(following[0]), [])
    for number, snapshot in enumerate(following, start=1):
        branch = tree.add(f"[magenta]branch {number}[/]")
        branch.add(_label(snapshot, head))
        _grow(branch, children, id_of(snapshot), head)


def _label(snapshot: StateSnapshot, head: str) -> Text:
    id = id_of(snapshot)
    messages: list[AnyMessage] = snapshot.values.get("messages", [])
    last = str(messages[-1].content) if messages else "..."
    next = ", ".join(dict.fromkeys(snapshot.next)).strip("_") or "end"
    mark = "[head] " if id == head else ""
    where = Text.assemble((short(id), "cyan"), (f" > {next:<9} ", "dim"), (mark, "bold green"))
    return Text.assemble(where, last, no_wrap=True, overflow="crop")


# -- what is stored --------------------------------------------------------------------------

_HOLDS = {
    "checkpoint": "a record per checkpoint",
    "chunk": "values, each piece once",
    "head": "what a thread resumes from",
    "installed": "the tables' version",
    "thread": "ids and owners",
    "write": "each task's answers",
}


def storage_table(sizes: Iterable[TableSize], redis: int) -> Table:
    """Rows and bytes per table, and what Redis holds."""
    table = Table(
        "table",
        "holds",
        "rows",
        "in rows",
        "on disk",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for size in sizes:
        what = _HOLDS.get(size.name, "")
        table.add_row(size.name, what, f"{size.rows:,}", in_kb(size.values), in_kb(size.disk))
    table.add_section()
    table.add_row("Redis", "copies of the heads", "", in_kb(redis), "")
    return table


def comparison(rows: Sequence[tuple[str, int]]) -> Table:
    """Bytes as bars, to scale."""
    most = max(size for _, size in rows)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=40)
    for name, size in rows:
        bar = ProgressBar(most, size, complete_style="cyan", finished_style="cyan")
        table.add_row(name, in_kb(size), bar)
    return table


def in_kb(size: int) -> str:
    """Bytes for people."""
    return f"{size / 1024:,.1f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:,.1f} MB"
