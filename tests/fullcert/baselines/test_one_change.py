"""One pixel or the label: our own certificate against plain training on images that an attacker left."""

import torch
import torch.nn.functional as F
from torch import nn

import boundflow as bf
from fullcert.reproduce.one_change import CenteredEdges, OneChange

GENERATOR = torch.Generator().manual_seed(0)


def images(number: int) -> torch.Tensor:
    blobs = F.avg_pool2d(torch.randn(number, 1, 32, 32, generator=GENERATOR, dtype=torch.float64), 5, 1)
    return (blobs > 0.05).double()


def test_no_pixel_moves_the_features_further_than_the_reach():
    edges, image = CenteredEdges(), images(1)
    pixels = torch.eye(28 * 28, dtype=torch.float64).view(-1, 1, 28, 28)
    furthest = 0.0
    for picture in (image, torch.zeros_like(image), torch.ones_like(image), (image + torch.arange(28)) % 2):
        flipped = (picture + pixels) % 2
        moved = (edges(flipped) - edges(picture)).abs().sum(1)
        furthest = max(furthest, float(moved.max()))
        assert furthest <= edges.reach()
    assert furthest > 0.1 * edges.reach()


def test_poisoned_training_lies_inside():
    edges, x, y = CenteredEdges(), images(12), torch.arange(12) % 2
    head = nn.Linear(144, 1, bias=False).double()
    nn.init.zeros_(head.weight)
    features = edges(x)
    certificate = bf.certify(
        head,
        (features * (2 * y - 1).unsqueeze(1), torch.ones_like(y)),
        threat=bf.threats.AtMost(2, OneChange(edges.reach())),
        loss="bce",
        optimizer_options={"lr": 0.3},
        epochs=2,
    )
    points = edges(images(20))
    answers = certificate.predict(points)
    assert certificate.model is not None
    weights = next(certificate.model.parameters())
    for trial in range(20):
        other, labels = x.clone(), y.clone()
        for sample in torch.randperm(12, generator=GENERATOR)[:2].tolist():
            if (trial + sample) % 2:
                labels[sample] = 1 - labels[sample]
            else:
                other[sample].view(-1)[int(torch.randint(784, (), generator=GENERATOR))] += 1
        weight = _trained(edges(other % 2), labels)  # on features and labels as they are, not signed
        slack = 1e-13  # this run is another program than the signed one: it rounds otherwise
        assert bool(((weights.lower[0] - slack <= weight) & (weight <= weights.upper[0] + slack)).all())
        assert torch.equal((points @ weight > 0).long()[answers.certified], answers.label[answers.certified])


def _trained(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    weight = torch.zeros(144, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        loss = F.binary_cross_entropy_with_logits(features @ weight, labels.double())
        (slope,) = torch.autograd.grad(loss, weight)
        weight = (weight - 0.3 * slope).detach().requires_grad_()
    return weight.detach()


def test_the_threat_is_written_as_python():
    assert repr(eval(repr(OneChange(2.5)))) == "OneChange(2.5)"
