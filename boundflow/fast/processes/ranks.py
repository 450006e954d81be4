"""The processes of one training (`torch.distributed`), and what they tell each other.

    total of a tensor over R ranks  =  x_0 + x_1 + ... + x_(R-1),      added in this order by every rank

An all-reduce may add in another order on every machine, so tensors are gathered and added up in the order of ranks: all
ranks get the same bits and take the same step, and the R - 1 additions of numbers that are not negative are charged.
Every message begins with what it is and how many there were before it: two ranks that are not at the same place of the
same program are told apart at once, and nothing is ever added that does not belong together.

A process that has ended raises `LostRank` on all others: with gloo as soon as they wait for it, with NCCL after
`PATIENCE` (or as soon as `torchrun` notices, which ends the others itself).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...arithmetic import rounding
from ...errors import LostRank

PATIENCE = timedelta(minutes=5)  # how long a rank waits for another one that is alive and says nothing
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets
LOST = (
    "another process of this run has ended or does not answer, so this one stops too: see what the other one said, and "
    "go on from the last checkpoint with as many processes as you like"
)


def local_rank() -> int:
    """Which of the processes on this machine this one is."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))


def joined(wanted: bool | dist.ProcessGroup, device: torch.device) -> Ranks | None:
    """The processes that were asked for; None where there is only this one.

    With True it is the group of the program, or, where there is none yet, the one that `torchrun` describes. That one
    is made here, and lasts as long as the program, which may train again.
    """
    if isinstance(wanted, bool):
        if not wanted:
            return None
        if not dist.is_available():
            raise ValueError("distributed=True: this PyTorch was built without torch.distributed")
        if not dist.is_initialized():
            _begin(device)
    ranks = Ranks(None if wanted is True else wanted)
    return ranks if ranks.count > 1 else None


def _begin(device: torch.device) -> None:
    missing = [name for name in ENVIRONMENT if name not in os.environ]
    if missing:
        raise ValueError(
            f"distributed=True: {missing[0]} is not set. Start the program with torchrun, or call "
            "torch.distributed.init_process_group before"
        )
    if device.type == "cuda":
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a lost rank is then an exception, and no abort
        if device.index not in (None, local_rank()):
            raise ValueError(
                f"distributed=True: every process needs a GPU of its own, and process {local_rank()} of this machine "
                f"was given {device}: use device='cuda', or move the model to cuda:{local_rank()}"
            )
        torch.cuda.set_device(local_rank())
        device = torch.device("cuda", local_rank())
    cuda = device.type == "cuda"
    with _told():
        dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE, device_id=device if cuda else None)
    atexit.register(end)


def end() -> bool:
    """Leave the processes that this one was joined with, if it was."""
    joined = dist.is_available() and dist.is_initialized()
    if joined:
        dist.destroy_process_group()
    return joined


@contextmanager
def _told() -> Iterator[None]:
    """What the transport says of a lost process, as one sentence."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostRank(LOST) from error


class Ranks:
    """The processes of one training, seen from one of them."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        self.group, self.rank, self.count = group, dist.get_rank(group), dist.get_world_size(group)
        nccl = "nccl" in dist.get_backend(group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
        self._messages = 0  # messages so far

    def gathered(self, what: str, x: Tensor) -> Tensor:
        """A tensor of the same shape from every rank, (ranks, *shape), with the same bits everywhere."""
        sent = self._packed(what, x)
        received = [torch.empty_like(sent) for _ in range(self.count)]
        with _told():
            dist.all_gather(received, sent, group=self.group)
        return torch.stack([self._unpacked(message, sent, x) for message in received])

    def collected(self, what: str, x: Tensor) -> list[Tensor] | None:
        """Tensors of any length along their first axis, from all ranks to the first one, on its CPU; None elsewhere."""
        lengths = self.gathered(f"{what}, lengths", torch.tensor(len(x))).tolist()
        sent = self._packed(what, self._filled(x, max(lengths)))
        received = [torch.empty_like(sent) for _ in range(self.count)] if self.rank == 0 else None
        first = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        with _told():
            dist.gather(sent, received, dst=first, group=self.group)
        if received is None:
            return None
        like = x.new_empty(max(lengths), *x.shape[1:], device="cpu")
        return [self._unpacked(message, sent, like)[:length] for message, length in zip(received, lengths, strict=True)]

    def uneven(self, what: str, x: Tensor) -> list[Tensor]:
        """Tensors of any length along their first axis, from every rank."""
        lengths = self.gathered(f"{what}, lengths", torch.tensor(len(x))).tolist()
        found = self.gathered(what, self._filled(x, max(lengths)))
        return [part[:length] for part, length in zip(found, lengths, strict=True)]

    def total(self, what: str, x: Tensor) -> Tensor:
        """The sum over all ranks of numbers that are not negative, rounded up."""
        return self.added(self.gathered(what, x))

    def added(self, found: Tensor) -> Tensor:
        """Numbers of all ranks (ranks, ...) that are not negative, added up in order and rounded up."""
        total = found[0]
        for part in found[1:]:
            total = total + part
        return total * (1 + rounding.of_ours(self.count, total.dtype))

    def everyone(self, what: str, agrees: bool) -> bool:
        """Whether all ranks say so."""
        return bool(self.gathered(what, torch.tensor(agrees)).all())

    def of_first(self, what: str, number: float) -> float:
        """What the first rank says."""
        return float(self.gathered(what, torch.tensor(number, dtype=torch.float64))[0])

    def require_same(self, what: str, parts: Iterable[Tensor | str], why: str) -> None:
        """Raise unless every rank has the same bits."""
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            held = part if isinstance(part, str) else part.detach().cpu().contiguous().numpy().tobytes()
            digest.update(held.encode() if isinstance(held, str) else held)
        found = self.gathered(what, torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8))
        if not bool((found == found[0]).all()):
            raise LostRank(f"the processes of this run do not agree on {what}: {why}")

    # --- messages -------------------------------------------------------------------------------------------------

    @staticmethod
    def _filled(x: Tensor, length: int) -> Tensor:
        return torch.cat((x, x.new_zeros(length - len(x), *x.shape[1:])))

    def _packed(self, what: str, x: Tensor) -> Tensor:
        """A tensor as bytes, behind eight that say what it is."""
        self._messages += 1
        mark = zlib.crc32(f"{self._messages} {what} {tuple(x.shape)} {x.dtype}".encode())
        head = torch.tensor([mark], device=self.device).view(torch.uint8)
        inner = x.detach().reshape(-1).contiguous().to(self.device)
        return torch.cat((head, inner.view(torch.uint8)))

    def _unpacked(self, message: Tensor, sent: Tensor, like: Tensor) -> Tensor:
        if not torch.equal(message[:8], sent[:8]):
            raise LostRank(
                "the processes of this run are not at the same place of the same program: give all of them the same "
                "model, data and recipe, on machines of one kind"
            )
        body: Any = message[8:].clone()  # which begins where any number may begin
        found: Tensor = body.view(like.dtype).view(like.shape)
        return found.to(like.device)
