"""A set has the memory layout of the plain tensor it stands for, so masks are drawn as plain PyTorch draws them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import Linf

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2),
    "permuted": lambda x: x.permute(3, 0, 2, 1),
    "flattened and transposed": lambda x: x.flatten(2).transpose(1, 2),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].expand(-1, 4, -1, -1),
    "sliced": lambda x: x[:, :, ::2],
    "transposed, then added": lambda x: x.transpose(1, 2) + 1.0,
    "transposed, then through a function": lambda x: torch.tanh(x.transpose(2, 3)),
    "transposed, then made contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "transposed and reshaped": lambda x: x.transpose(1, 2).reshape(x.shape[0], -1),
    "selected": lambda x: x.select(2, 1),
    "two layouts meet": lambda x: x.transpose(2, 3) * x.permute(0, 1, 3, 2),
    "stacked": lambda x: torch.stack((x.transpose(1, 2), x.transpose(1, 2)), -1),
    "split": lambda x: x.transpose(1, 2).split(2, 1)[1],
    "unbound": lambda x: x.permute(3, 0, 2, 1).unbind(0)[0],
    "moved axis": lambda x: x.movedim(1, -1) - 0.5,
    "clone of a transposed": lambda x: x.transpose(0, 1).clone(),
    "flipped": lambda x: x.transpose(1, 3).flip(0),
    "where": lambda x: torch.where(torch.ones(4, 1, dtype=torch.bool), x.transpose(1, 2), x.transpose(1, 2)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_and_masks_are_those_of_plain_tensors(name: str) -> None:
    x = torch.randn(2, 4, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, sets = LAYOUTS[name](x), LAYOUTS[name](bf.ball(x, 1e-9))
    assert plain.shape == sets.shape and plain.stride() == sets.stride()
    for drop in (F.dropout, *((F.dropout1d,) if plain.dim() == 3 else (F.dropout2d,) if plain.dim() == 4 else ())):
        torch.manual_seed(3)
        wanted = drop(plain, 0.5, True)
        torch.manual_seed(3)
        found = drop(sets, 0.5, True)
        assert bool(found.contains(wanted).all())


class Tokens(nn.Module):
    """Dropout on a transposed operand, as in a mixer or a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 2), nn.Linear(3 * 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.tanh(self.first(x)).flatten(2).transpose(1, 2)
        return self.second(F.dropout(tokens, 0.5, self.training).flatten(1))


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_the_nominal_model_lies_inside_its_bounds(domain: str) -> None:
    torch.manual_seed(0)
    model = Tokens().double()
    x = torch.randn(12, 1, 3, 3, dtype=torch.float64)
    y = (x.mean((1, 2, 3)) > 0).double()
    options = {"optimizer_options": {"lr": 0.5}, "epochs": 3, "domain": domain, "order": 2}
    certificate = bf.certify(model, (x, y), threat=Linf(1e-6), loss="bce", **options)
    assert certificate.model is not None
    for sets, values in zip(certificate.model.parameters(), certificate.nominal.parameters(), strict=True):
        assert bool(sets.contains(values.detach()).all())  # type: ignore[operator]


def test_a_gradient_in_another_layout_than_its_parameter() -> None:
    """Autograd copies it into the layout of the parameter."""
    weight = torch.nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    plain = torch.nn.Parameter(weight.detach().clone())
    holder = nn.ParameterList([weight])
    bf.lift(holder)
    scale = torch.rand(4, 3, dtype=torch.float64)
    (holder[0].t() * scale).sum().backward()
    (plain.t() * scale).sum().backward()
    assert holder[0].grad.stride() == plain.grad.stride()
    assert bool(holder[0].grad.contains(plain.grad).all())
