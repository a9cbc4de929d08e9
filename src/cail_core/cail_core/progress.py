"""What a person sees in the terminal while something takes long, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # it is called while the error is handled; `cail` ends quietly, as for any closed pipe


def console(*, stderr: bool = False) -> Console:
    """Prints text as it is: names of people and folders may hold brackets."""
    return _Console(stderr=stderr, markup=False, highlight=False)


def table(*columns: str) -> Table:
    """An empty table: the first column text, numbers to the right."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        made.add_column(
            name,
            justify="left" if i == 0 or name in ("outcomes", "outcome", "demonstrator", "ranked", "what for", "") else "right",
        )
    return made


@contextmanager
def bar(text: str, total: int) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr; call what it gives with the number done so far, and of how many where that is known only then.
    It shows from the first call on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console(stderr=True))
    job = progress.add_task(text, total=total)

    def advance(done: int, of: int = total) -> None:
        progress.start()
        progress.update(job, completed=done, total=of)

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()
