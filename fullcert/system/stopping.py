"""Signals that end a run as Ctrl-C does: with a checkpoint, one sentence, and 128 + the number of the signal.

SIGTERM is what `kill`, batch systems and a machine that shuts down send; SIGHUP comes when a terminal is closed. Both
raise in the main thread, where the last finished step is then written down like after any other exception. Python drops
what is raised while an object is being taken apart: then the signal is sent again, a moment later, and so is Ctrl-C.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType

NAMES = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP
MOMENT = 0.02  # seconds
REPEATS = 10.0  # seconds: a terminal that closes signals twice, and the second must not cut the checkpoint short


class Stopped(BaseException):
    """A signal has ended the run. Like KeyboardInterrupt it is no `Exception`: nothing takes it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """While this lasts, the signals raise `Stopped`; one that is ignored, as `nohup` does, stays so."""
    if threading.current_thread() is not threading.main_thread():  # which alone may say what signals do
        yield
        return
    last = -inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last >= REPEATS:
            last = time.monotonic()
            raise Stopped(number)

    told = sys.unraisablehook

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        nonlocal last
        if isinstance(dropped.exc_value, Stopped):
            last = -inf
            _send(dropped.exc_value.code - 128)
        elif isinstance(dropped.exc_value, KeyboardInterrupt):
            _send(signal.SIGINT)
        else:
            told(dropped)

    sys.unraisablehook = again
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}
    taken = {number: handler for number, handler in previous.items() if handler is signal.SIG_DFL}
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        sys.unraisablehook = told
        for number, handler in taken.items():
            signal.signal(number, handler)


def _send(number: int) -> None:
    """A signal to this process, a moment later."""
    threading.Timer(MOMENT, os.kill, (os.getpid(), number)).start()
