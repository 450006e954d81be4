"""Many pieces of work, several at a time: how far they are, how long the rest takes, and where they run.

What is finished is known by its own files, so work that was interrupted, or killed, goes on with what is left. It
runs one piece after the other, in processes of this machine, or on Ray, here or on a cluster, where that is installed.
"""

import importlib.util
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fullcert.system.mistakes import Mistake


class Piece(Protocol):
    """One piece of work: pieces of one kind take about as long as each other."""

    @property
    def kind(self) -> Hashable: ...


Some = TypeVar("Some", bound=Piece)
Times = dict[Hashable, list[float]]


@dataclass(frozen=True)
class Progress:
    """How far the work is."""

    done: int
    total: int
    seconds_left: float | None  # None: nothing has been timed yet
    now: str


def followed(
    total: int,
    left: Sequence[Some],
    taken: Times,
    ended: Iterator[tuple[Some, float]],
    jobs: int,
    tell: Callable[[Progress], None],
) -> None:
    """Work off what is left, and tell after every piece how far it is; ``taken`` are seconds of finished pieces."""
    rest = list(left)
    tell(Progress(total - len(rest), total, seconds_left(rest, taken, jobs), str(rest[0]) if rest else ""))
    for piece, seconds in ended:
        taken.setdefault(piece.kind, []).append(seconds)
        rest.remove(piece)
        now = str(rest[0] if rest else piece)
        tell(Progress(total - len(rest), total, seconds_left(rest, taken, jobs), now))


def seconds_left(rest: Sequence[Piece], taken: Times, jobs: int) -> float | None:
    """What is left takes as long as its like has taken; what has no like yet, as long as the mean of all."""
    if not taken:
        return None if rest else 0.0
    means = {kind: sum(times) / len(times) for kind, times in taken.items()}
    usual = sum(means.values()) / len(means)
    return sum(means.get(piece.kind, usual) for piece in rest) / max(1, min(jobs, len(rest)))


class Counted:
    """Like parts that one process works off: how far they are is told as they are done, and what is done now."""

    def __init__(
        self, total: int, tell: Callable[[Progress], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.total, self.tell, self.clock = total, tell, clock
        self.done, self.doing, self.began = 0, "", clock()

    def now(self, doing: str) -> None:
        """What is done from here on."""
        self.doing = doing
        self.count(0)

    def count(self, parts: int) -> None:
        """So many more are done; each of the rest takes as long as those before."""
        self.done = min(self.done + parts, self.total)
        left = (self.clock() - self.began) * (self.total - self.done) / self.done if self.done else None
        self.tell(Progress(self.done, self.total, left, self.doing))

    def part(self) -> Callable[[int, int], None]:
        """What counts a part of the work, of which it is told how much is done."""
        before = self.done
        return lambda done, total: self.count(before + done - self.done)


UNFOLLOWED = Counted(0, lambda progress: None)


def time_left(seconds: float | None) -> str:
    """How long it still takes, in words."""
    if seconds is None:
        return "time left unknown"
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{round(seconds)} s left"
    return f"{minutes} min left" if minutes < 90 else f"{seconds / 3600:.1f} h left"


# --- where it runs --------------------------------------------------------------------------------------------------

Perform = Callable[[Any], float]  # a piece that can be sent elsewhere; gives the seconds it took
PLACES = ("auto", "ray", "processes")


def has_ray() -> bool:
    return importlib.util.find_spec("ray") is not None


def place_of(name: str, address: str | None) -> str:
    """Where pieces run: on Ray where it is installed or asked for, in processes of this machine otherwise."""
    if name not in PLACES:
        raise Mistake(f"--on is one of {', '.join(PLACES)}, not {name}")
    if name == "processes" and address is not None:
        raise Mistake("--address is that of a Ray cluster: use it with --on ray")
    if (name == "ray" or address is not None) and not has_ray():
        raise Mistake("Ray is not installed: pip install ray, or use --on processes")
    return "ray" if has_ray() and name != "processes" else "processes"


def in_threads(pieces: Sequence[Some], perform: Perform, jobs: int, stop: Callable[[], None]) -> Iterator[Any]:
    """Every piece in a thread that waits for a process of its own; ``stop`` ends those processes."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(perform, piece): piece for piece in pieces}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            stop()
            pool.shutdown(cancel_futures=True)
            raise


def in_turn(pieces: Sequence[Some], perform: Callable[[Some], float]) -> Iterator[tuple[Some, float]]:
    """One piece after the other, here. What fails is told when all else is finished, a mistake of the user at once."""
    failed: list[tuple[Some, BaseException]] = []
    for piece in pieces:
        try:
            seconds = perform(piece)
        except Mistake:
            raise
        except Exception as error:
            failed.append((piece, error))
        else:
            yield piece, seconds
    _tell(failed)


def in_processes(
    pieces: Sequence[Some], call: Callable[[Some], tuple[Any, ...]], jobs: int
) -> Iterator[tuple[Some, float]]:
    """So many processes; ``call`` gives the function of a piece and its arguments, which can be sent there.

    What fails is told when everything else is finished. A process that the system ends, most often for memory, takes
    its pool with it: what is left goes on in half as many.
    """
    waiting, failed = list(pieces), list[tuple[Some, BaseException]]()
    while waiting:
        lost: list[Some] = []
        with ProcessPoolExecutor(min(jobs, len(waiting)), multiprocessing.get_context("spawn")) as pool:
            futures = {pool.submit(*call(piece)): piece for piece in waiting}
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    if error is None:
                        yield futures[future], future.result()
                    elif isinstance(error, BrokenProcessPool):
                        lost.append(futures[future])
                    elif isinstance(error, Mistake):
                        raise error
                    else:
                        failed.append((futures[future], error))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if lost and jobs == 1:
            raise Mistake(
                f"the system has ended a process, most often for memory; {len(lost)} left, among them {lost[0]}"
            )
        waiting, jobs = lost, max(1, jobs // 2)
    _tell(failed)


def _tell(failed: list[tuple[Some, BaseException]]) -> None:
    if failed:
        piece, error = failed[0]
        error.add_note(f"{len(failed)} failed, all else is finished; the first: {piece}")
        raise error


def on_ray(pieces: Sequence[Some], perform: Perform, jobs: int, address: str | None) -> Iterator[Any]:
    """Every piece as a task of Ray with one processor; without an address Ray is started on this machine."""
    import ray

    environment = {name: os.environ[name] for name in ("PYTHONPATH", "BOUNDFLOW_DATA") if name in os.environ}
    cpus = None if address else jobs
    ray.init(
        address, num_cpus=cpus, runtime_env={"env_vars": environment}, include_dashboard=False, log_to_driver=False
    )
    try:
        task = ray.remote(num_cpus=1)(perform)
        waiting = {task.remote(piece): piece for piece in pieces}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for found in ready:
                yield waiting.pop(found), ray.get(found)
    except Exception as error:  # what a task has raised comes wrapped in where it ran
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, Mistake) else error) from None
    finally:
        ray.shutdown()


class Children:
    """Processes that this one has started, so that they can be ended with it."""

    def __init__(self) -> None:
        self._lock, self._running, self._stopped = threading.Lock(), set[Any](), False

    def add(self, process: Any) -> None:
        with self._lock:
            self._running.add(process)
            if self._stopped:
                process.terminate()

    def remove(self, process: Any) -> None:
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """End all of them as a signal does: each writes down its last step first."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()
