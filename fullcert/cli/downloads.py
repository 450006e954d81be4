"""What `fullcert datasets fetch` shows while it works: a bar for each file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def progress_bars(hidden: bool) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Bars on standard error: a name and a size make one, which is told how many bytes there are."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=hidden) as bars:

        def bar(name: str, size: int) -> Callable[[int], None]:
            task = bars.add_task(name, total=size)
            return lambda done: bars.update(task, completed=done)

        yield bar
