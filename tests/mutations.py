"""Files with a little changed: bytes, JSON, tensors, and the content of certificates with the digest of that."""

import random
from collections.abc import Callable
from typing import Any

import torch
from forging import Record, Tensors

NUMBERS = (0, 1, -1, 2**31, 2**40, 2**63 - 1, -(2**63), 10**30, 0.5, -0.0, 1e308, True)
ODD: tuple[Any, ...] = (*NUMBERS, None, "", "x", "__class__", [], [[]], {}, {"value": []}, {"set": {}}, "9" * 5000)
REALS = (0.0, -1.0, 1e300, float("nan"), float("inf"), 2.0**40)
WHOLE = (0, -1, -2, 7, 2**31, 2**40, 2**62, -(2**62))


def mutated(content: bytes, pick: random.Random) -> bytes:
    """Bytes that were flipped, cut out, doubled or replaced."""
    made = bytearray(content)
    for _ in range(pick.choice((1, 1, 2, 8))):
        place, length = pick.randrange(len(made) + 1), pick.choice((1, 1, 2, 4, 30))
        kind = pick.randrange(5)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << pick.randrange(8)
        elif kind == 1:
            made[place : place + length] = bytes(pick.randrange(256) for _ in range(length))
        elif kind == 2:
            del made[place : place + length]
        elif kind == 3:
            made[place:place] = made[place : place + length] * pick.choice((1, 2, 100))
        else:
            made[place : place + length] = pick.choice((b"9" * 40, b"[" * 40, b"-", b"\xff" * 8, b"nan", b"''", b"\0"))
    return bytes(made)


def mutated_data(data: Any, pick: random.Random) -> Any:
    """JSON in which one value is another, is gone, or is there under another name."""
    if isinstance(data, dict) and data and pick.random() < 0.9:
        key = pick.choice(sorted(data))
        if pick.random() < 0.1:
            return {name: value for name, value in data.items() if name != key}
        return {**data, key: mutated_data(data[key], pick)}
    if isinstance(data, list) and data and pick.random() < 0.8:
        place = pick.randrange(len(data))
        changed = [mutated_data(data[place], pick)] if pick.random() < 0.8 else [data[place]] * pick.choice((0, 2))
        return [*data[:place], *changed, *data[place + 1 :]]
    return pick.choice(ODD)


def mutated_tensor(tensor: torch.Tensor, pick: random.Random) -> torch.Tensor:
    """A tensor with another value, shape or dtype."""
    kind = pick.randrange(6)
    if kind == 0 and tensor.numel():
        made = tensor.flatten().clone()
        numbers = REALS if tensor.is_floating_point() else WHOLE if tensor.dtype is torch.int64 else (0, 1)
        made[pick.randrange(len(made))] = pick.choice(numbers)
        return made.view(tensor.shape)
    if kind == 1:
        return tensor.flip(0) if tensor.dim() else tensor.reshape(1)
    if kind == 2:
        return tensor.reshape(-1)[: pick.randrange(tensor.numel() + 1)]
    if kind == 3:
        return tensor.to(pick.choice((torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8)))
    if kind == 4:
        return torch.cat((tensor, tensor)) if tensor.dim() else tensor
    return -tensor if tensor.dtype not in (torch.bool, torch.uint8) else tensor


def forging(pick: random.Random) -> Callable[[Record, Tensors], Record]:
    """A forgery of a record, of a tensor, or of both."""

    def forge(record: Record, tensors: Tensors) -> Record:
        kind = pick.randrange(4)
        if kind != 0:
            name = pick.choice(sorted(tensors))
            if pick.random() < 0.1:
                del tensors[name]
            else:
                tensors[name] = mutated_tensor(tensors[name], pick)
        return mutated_data(record, pick) if kind in (0, 3) else record  # type: ignore[no-any-return]

    return forge
