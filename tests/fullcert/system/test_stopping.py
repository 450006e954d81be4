"""SIGTERM and SIGHUP raise where Ctrl-C would, once, and only while a run is on."""

import os
import signal
import threading
import time

import pytest

from fullcert.system import stopping
from fullcert.system.stopping import Stopped, stoppable

SIGNALS = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_raises_once(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(number)
    with stoppable():
        with pytest.raises(Stopped, match=f"stopped by {number.name}") as stopped:
            os.kill(os.getpid(), number)
        assert stopped.value.code == 128 + number
        os.kill(os.getpid(), number)  # a terminal that closes signals twice
        monkeypatch.setattr(stopping, "REPEATS", 0.0)
        with pytest.raises(Stopped):  # but nobody has to wait for a run that does not end
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As in a run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_leave_signals_alone() -> None:
    found = []

    def work() -> None:
        with stoppable():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, Stopped), (signal.SIGINT, KeyboardInterrupt)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_that_comes_while_an_object_is_taken_apart_is_not_lost(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    class Thing:
        def __del__(self) -> None:
            signal.raise_signal(number)

    with pytest.raises(raised), stoppable():
        thing = Thing()
        del thing
        time.sleep(5)
