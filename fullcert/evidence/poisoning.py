"""Datasets that an attacker could have left behind, drawn at random from the definition of a threat.

Every change of a threat says by how much a feature moves, what a label can become, which samples can be gone. From that
a member is drawn: at most k samples are touched where there is a budget, and two of three draws go to the limit in all
they touch. Nothing here computes a bound.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from boundflow import threats
from boundflow.threats import Change, Threat


class NotDrawn(Exception):
    """A threat of which no members are drawn here; the message says why."""


class Data(NamedTuple):
    """Inputs, targets (class numbers, or numbers for regression), and whether each sample is there."""

    inputs: Tensor
    targets: Tensor
    there: Tensor


def member(threat: Threat, inputs: Tensor, targets: Tensor, classes: int, random: np.random.Generator) -> Data:
    """One dataset of a threat; ``classes`` is 0 for regression."""
    count = len(inputs)
    there = torch.ones(count, dtype=torch.bool, device=inputs.device)
    data, corner = Data(inputs, targets, there), bool(random.random() < 2 / 3)
    for change in (change for clause in threat.clauses for change in clause.changes):
        touched = torch.from_numpy(change.touched(np.arange(count))).to(inputs.device)
        if isinstance(change, threats.Missing):  # first: what is moved must be there
            data = data._replace(inputs=_filled(change, data.inputs, touched, random, corner))
        elif isinstance(change, threats.MissingCategory):
            missing = touched & torch.isnan(inputs[:, change.columns]).all(1)
            data = data._replace(inputs=_another_category(change.columns, False, data.inputs, missing, random))
    for clause in threat.clauses:
        chosen = np.ones(count, dtype=bool)
        if clause.budget is not None:
            chosen[:] = False
            chosen[random.permutation(count)[: clause.budget]] = True
        for change in clause.changes:
            touched = torch.from_numpy(chosen & change.touched(np.arange(count))).to(inputs.device)
            data = _changed(change, data, inputs, touched, classes, random, corner)
    return data


def _changed(
    change: Change, data: Data, raw: Tensor, touched: Tensor, classes: int, random: np.random.Generator, corner: bool
) -> Data:
    """A dataset in which one change was made to the touched samples."""
    if isinstance(change, threats.Missing | threats.MissingCategory):
        return data
    if isinstance(change, threats.Linf | threats.Tolerance) and type(change) not in (threats.L1, threats.L2):
        return data._replace(inputs=_moved(change, data.inputs, raw, touched, random, corner))
    if isinstance(change, threats.Labels):
        return data._replace(targets=_relabelled(change, data.targets, touched, classes, random, corner))
    if isinstance(change, threats.Removal):
        return data._replace(there=data.there & ~touched)
    if isinstance(change, threats.Replacement):
        return _replaced(data, touched, classes, random)
    if isinstance(change, threats.Category):
        return data._replace(inputs=_another_category(change.columns, change.unknown, data.inputs, touched, random))
    raise NotDrawn(f"no members of {type(change).__name__} are drawn here")


def _factors(shape: tuple[int, ...], random: np.random.Generator, corner: bool) -> Tensor:
    """Numbers in [-1, 1]: its ends, one direction for all samples, or anything."""
    if not corner:
        return torch.from_numpy(random.uniform(-1, 1, size=shape))
    own = random.random() < 0.5
    return torch.from_numpy(random.choice([-1.0, 1.0], size=shape if own else (1, *shape[1:]))).expand(shape)


def _moved(
    change: threats.Linf | threats.Tolerance,
    inputs: Tensor,
    raw: Tensor,
    touched: Tensor,
    random: np.random.Generator,
    corner: bool,
) -> Tensor:
    """Features moved by at most their amounts, in floats that are no further away than that."""
    amounts = torch.nan_to_num(change.amounts(raw).double().cpu()).expand(inputs.shape)
    amounts = torch.where(_features(change, inputs) & touched.cpu().view(-1, *(1,) * (inputs.dim() - 1)), amounts, 0.0)
    wide = inputs.double().cpu()
    moved = (wide + amounts * _factors(tuple(inputs.shape), random, corner)).to(inputs.dtype)
    for _ in range(2):
        too_far = (moved.double() - wide).abs() > amounts
        moved = torch.where(too_far, torch.nextafter(moved, inputs.cpu()), moved)
    if change.clip is not None:
        inside = torch.where(amounts > 0, moved.clamp(*change.clip), moved)
        moved = torch.where((inside.double() - wide).abs() <= amounts, inside, inputs.cpu())
    return moved.to(inputs.device)


def _features(change: threats.Linf | threats.Tolerance | threats.Missing, inputs: Tensor) -> Tensor:
    """Which features the change is about."""
    allowed = torch.ones(inputs.shape[1:], dtype=torch.bool)
    for chosen in change.features:
        mask = torch.from_numpy(chosen)
        if mask.dtype is not torch.bool:
            mask = torch.zeros(allowed.numel(), dtype=torch.bool).index_fill(0, mask, True).view(allowed.shape)
        allowed = allowed & mask
    return allowed


def _filled(
    change: threats.Missing, inputs: Tensor, touched: Tensor, random: np.random.Generator, corner: bool
) -> Tensor:
    ends = change.ranges.expand(*inputs.shape[1:], 2) if change.ranges.dim() == 1 else change.ranges
    low, high = ends[..., 0], ends[..., 1]
    share = 0.5 + 0.5 * _factors(tuple(inputs.shape), random, corner)
    value = (low + (high - low) * share).clamp(low, high).to(inputs.device, inputs.dtype)
    mine = _features(change, inputs).to(inputs.device) & touched.view(-1, *(1,) * (inputs.dim() - 1))
    return torch.where(torch.isnan(inputs) & mine, value, inputs)


def _relabelled(
    change: threats.Labels, targets: Tensor, touched: Tensor, classes: int, random: np.random.Generator, corner: bool
) -> Tensor:
    if change.epsilon is None:
        shift = torch.from_numpy(random.integers(1, max(2, classes), size=len(targets))).to(targets)
        return torch.where(touched, (targets + shift) % classes, targets)
    wide = targets.double()
    step = change.epsilon * _factors((len(targets), 1), random, corner)[:, 0].to(targets.device)
    moved = (wide + step).to(targets.dtype)
    moved = torch.where((moved.double() - wide).abs() > change.epsilon, torch.nextafter(moved, targets), moved)
    return torch.where(touched, moved, targets)


def _replaced(data: Data, touched: Tensor, classes: int, random: np.random.Generator) -> Data:
    """Samples replaced by others that are three times as far away, with any label."""
    order = torch.from_numpy(random.permutation(len(data.inputs))).to(data.inputs.device)
    mask = touched.view(-1, *(1,) * (data.inputs.dim() - 1))
    inputs, targets = torch.where(mask, 3 * data.inputs[order], data.inputs), data.targets[order]
    if classes:
        targets = torch.from_numpy(random.integers(0, classes, size=len(data.targets))).to(data.targets)
    return Data(inputs, torch.where(touched, targets, data.targets), data.there)


def _another_category(
    columns: list[int], unknown: bool, inputs: Tensor, touched: Tensor, random: np.random.Generator
) -> Tensor:
    """Categories drawn anew; where one may be unknown, a row of zeros is among them."""
    new = torch.from_numpy(random.integers(0, len(columns) + unknown, size=len(inputs)))
    hot = torch.nn.functional.one_hot(new, len(columns) + unknown)[:, : len(columns)].to(inputs.device, inputs.dtype)
    changed = inputs.clone()
    changed[:, columns] = torch.where(touched.unsqueeze(1), hot, inputs[:, columns])
    return changed
