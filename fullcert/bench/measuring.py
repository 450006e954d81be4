"""Clocks and memory: the best of several blocks that take turns, and the peak above the start."""

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

BLOCK = 0.05  # seconds of steps that are timed together
ROUNDS = 12

Work = Callable[[], object]


def wait(device: torch.device) -> None:
    """For what was launched on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clock_of(device: torch.device) -> Callable[[], float]:
    """By which forecasts are told: of the wall for a GPU, else of the processor, where other work does not count."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def seconds(work: Work, device: torch.device, times: int = 1) -> float:
    """The mean time of a few calls."""
    wait(device)
    started = time.perf_counter()
    for _ in range(times):
        work()
    wait(device)
    return (time.perf_counter() - started) / times


def taking_turns(works: dict[str, Work], device: torch.device, rounds: int = ROUNDS) -> dict[str, float]:
    """The best milliseconds of each, in blocks that take turns so that all see the same machine."""
    times = {name: max(1, min(1000, round(BLOCK / seconds(work, device)))) for name, work in works.items()}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            best[name] = min(best[name], 1000 * seconds(work, device, times[name]))
    return best


class Peak:
    """The most memory that was taken inside, above what was there before; None where the system does not say."""

    bytes: int | None = None


@contextmanager
def peak(device: torch.device) -> Iterator[Peak]:
    found = Peak()
    before = _memory(device, begin=True)
    yield found
    after = _memory(device, begin=False)
    if before is not None and after is not None:
        found.bytes = max(0, after - before)


def _memory(device: torch.device, begin: bool) -> int | None:
    """Bytes in use as a measurement begins, and the most since then."""
    if device.type == "cuda":
        if begin:
            torch.cuda.reset_peak_memory_stats(device)
            return torch.cuda.memory_allocated(device)
        return torch.cuda.max_memory_allocated(device)
    try:
        if begin:
            given_back()
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    name = "VmRSS:" if begin else "VmHWM:"
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), None)


def given_back() -> None:
    """Give memory that is free back to the system: what an allocator still holds would hide what is taken next."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
