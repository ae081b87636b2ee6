"""Results as tables (with rich if it is installed) and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from itertools import groupby
from sys import stderr
from typing import Any

from .figures import Figure, Outage, Results

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, the columns' headings, and the rows."""

RICH = find_spec("rich") is not None
_BESIDE = 3
"""Characters a column takes beside its text."""


def as_json(results: Results) -> str:
    """Everything, for machines."""
    return json.dumps(asdict(results), indent=1)


def show(results: Results, width: int) -> None:
    """Prints the tables, none wider than `width` characters if that can be."""
    print(", ".join(f"{name} {value}" for name, value in results.about.items()))
    for table in tables(results, width):
        _print(table, width)


def tables(results: Results, width: int) -> Iterator[Table]:
    title = "Milliseconds: median, 95th percentile, ratio of medians to the stock saver"
    subjects = list(dict.fromkeys(figure.subject for figure in results.rows))
    while subjects:
        sizes = range(len(subjects), 0, -1)
        fitting = next((n for n in sizes if _fits(subjects[:n], results, width)), 1)
        yield _grid(title, results.rows, subjects[:fitting])
        subjects = subjects[fitting:]
    if results.floors:
        names = list(dict.fromkeys(figure.subject for figure in results.floors))
        yield _grid("Floors, in milliseconds: median, 95th percentile", results.floors, names)
    if results.stored:
        yield _stored(results)
    if results.outages:
        yield _outages(results.outages)


def _grid(title: str, figures: Sequence[Figure], columns: Sequence[str]) -> Table:
    rows = []
    for (workload, size), row in groupby(figures, lambda f: (f.workload, f.size)):
        cells = {figure.subject: _cell(figure) for figure in row}
        rows.append([f"{workload}, {size}", *(cells.get(name, "") for name in columns)])
    return title, ("", *columns), rows


def _fits(columns: Sequence[str], results: Results, width: int) -> bool:
    _, headings, rows = _grid("", results.rows, columns)
    return (
        sum(max(map(len, column)) + _BESIDE for column in zip(headings, *rows, strict=True)) < width
    )


def _cell(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"  {figure.ratio:5.2f}x"
    return f"{_digits(figure.median)} {_digits(figure.p95)}{ratio}"


def _digits(milliseconds: float) -> str:
    places = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:6.{places}f}"


def _stored(results: Results) -> Table:
    rows = [
        [f"{s.subject}: {s.where}", f"{s.bytes:,}", f"{s.bytes / s.state:,.2f}"]
        for s in results.stored
    ]
    turns = results.about["turns"]
    title = f"Stored after the chat of {turns} turns: bytes, and times the final state"
    return title, ("", "bytes", "times"), rows


def _outages(outages: Sequence[Outage]) -> Table:
    rows = []
    for row in outages:
        added = "" if row.added is None else f"{row.added:+.3f}"
        figures = (_digits(each) for each in (row.median, row.p95, row.worst))
        rows.append([f"{row.what}, {row.tier}", *figures, added, str(row.samples)])
    title = "Outages, in milliseconds; added to the median of the same without Redis"
    return title, ("", "median", "95th", "worst", "added", "samples"), rows


def _print(table: Table, width: int) -> None:
    title, headings, rows = table
    if RICH:
        _print_rich(title, headings, rows, width)
        return
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    print(f"\n{title}")
    for row in (headings, *rows):
        first, *others = (cell for cell in row)
        cells = (cell.rjust(size) for cell, size in zip(others, widths[1:], strict=True))
        print(first.ljust(widths[0]), *cells, sep="  ")


def _print_rich(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    print()
    Console(width=width).print(grid)


@contextmanager
def progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar on the standard error; call it with what is measured and how many samples are new."""
    if not RICH:
        with _plain_progress(total) as step:
            yield step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("{task.description:<34}")
    columns = (words, BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
    # Drawn when asked only: a thread that draws in between would disturb the samples.
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
    with bar:
        task = bar.add_task("starting", total=total)
        yield _seldom(lambda words, done: _draw(bar, task, words, done), total)


def _draw(bar: Any, task: Any, words: str, done: int) -> None:
    bar.update(task, description=words, completed=done, refresh=True)


@contextmanager
def _plain_progress(total: int) -> Iterator[Callable[[str, int], None]]:
    def draw(words: str, done: int) -> None:
        if not stderr.isatty():
            return
        stderr.write(f"\r{100 * done // max(total, 1):3d}% {words:<40}")
        stderr.flush()

    yield _seldom(draw, total)
    if stderr.isatty():
        stderr.write("\n")


def _seldom(draw: Callable[[str, int], None], total: int) -> Callable[[str, int], None]:
    done, drawn, before = 0, -1, ""

    def step(words: str, more: int) -> None:
        nonlocal done, drawn, before
        done += more
        if words != before or 200 * done // max(total, 1) != drawn:
            drawn, before = 200 * done // max(total, 1), words
            draw(words, done)

    return step
