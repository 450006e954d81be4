"""The interval baseline: its budget is counted in every step, and retrained models lie inside."""

import torch
from torch import nn

import boundflow as bf
from fullcert.baselines import interval


def test_a_threat_in_every_step():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(30) % 2
    x = torch.randn(30, 2, generator=generator, dtype=torch.float64) + 2.0 * y.unsqueeze(1)
    torch.manual_seed(0)
    network = nn.Linear(2, 2).double()
    recipe = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 3}
    certificate = interval.certify(network, (x, y), bf.threats.Linf(0.1), k=2, **recipe)
    assert certificate.record["domain"] == "interval"
    assert "at most 2 samples in every batch" in " ".join(certificate.record["not_tracked"])
    # other samples in every step: the larger threat that this method answers
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in network.parameters())
    for step in range(3):
        moved = x.clone()
        moved[2 * step : 2 * step + 2] += 0.1 * torch.tensor([1.0, -1.0], dtype=torch.float64)
        loss = nn.functional.cross_entropy(nn.functional.linear(moved, weight, bias), y)
        slopes = torch.autograd.grad(loss, (weight, bias))
        weight, bias = ((p - 0.5 * g).detach().requires_grad_() for p, g in zip((weight, bias), slopes, strict=True))
    assert certificate.model is not None
    for name, value in (("weight", weight), ("bias", bias)):
        bounds = dict(certificate.model.named_parameters())[name]
        assert bool((bounds.lower <= value).all() and (value <= bounds.upper).all())
    everyone = interval.certify(network, (x, y), bf.threats.Linf(0.1), **recipe)
    assert not everyone.record["not_tracked"]
    assert everyone.accuracy(x, y).certified <= certificate.accuracy(x, y).certified
