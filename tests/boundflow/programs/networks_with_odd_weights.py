"""Networks whose parameters are shared, frozen, unused, made by other modules, or read from elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from .networks_with_state import Net
from .table import certified


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


@certified()
def tied_layers() -> nn.Module:
    """One module is used twice in a row."""
    model = layers()
    model[2] = model[0]
    return model


@certified()
def tied_weights() -> nn.Module:
    """A weight belongs to two modules, and one of them uses it transposed."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.decode.weight = self.encode.weight

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.tanh(self.encode(x))
            return self.head(torch.tanh(self.decode(hidden)) + hidden @ self.encode.weight.T)

    return Tied()


@certified()
def tied_by_every_name() -> nn.Module:
    """A weight has a second name as a parameter of the network and a third in a list."""

    class Named(Net):
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.inner.weight
            self.all = nn.ParameterList([self.inner.weight, self.head.bias])

        def between(self, h: Tensor) -> Tensor:
            return h + self.weight.sum(1) + self.all[1].sum()

    return Named()


@certified()
def frozen_layers() -> nn.Module:
    """The first layer and one bias are frozen."""
    model = layers()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


@certified()
def unused_parameters() -> nn.Module:
    """A layer is never called, and another only in evaluation mode."""

    class Unused(Net):
        def __init__(self) -> None:
            super().__init__()
            self.never, self.late = nn.Linear(3, 3), nn.Linear(3, 3)

        def between(self, h: Tensor) -> Tensor:
            return h if self.training else self.late(h)

    return Unused()


@certified("either", clip_gradients=1.0)
def unused_parameters_clipped() -> nn.Module:
    """A layer is never called, and the gradient of every sample is clipped."""
    model = Net()
    model.never = nn.Linear(3, 3)
    return model


@certified()
def forgotten_layers() -> nn.Module:
    """Layers in a plain list are no parameters of the network: they are used and never trained."""

    class Forgetful(Net):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [nn.Linear(3, 3).double()]

        def between(self, h: Tensor) -> Tensor:
            return torch.tanh(self.hidden[0](h))

    return Forgetful()


@certified()
def a_parameter_of_no_dimension() -> nn.Module:
    """A temperature without dimensions, and parameters in a dictionary."""

    class Scaled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.tensor(1.5))
            self.more = nn.ParameterDict({"shift": torch.zeros(3)})

        def between(self, h: Tensor) -> Tensor:
            return h * self.temperature + self.more["shift"]

    return Scaled()


@certified("either")
def an_empty_parameter() -> nn.Module:
    """A parameter without elements is appended to every batch."""

    class Empty(Net):
        def __init__(self) -> None:
            super().__init__()
            self.nothing = nn.Parameter(torch.zeros(0, 3))

        def between(self, h: Tensor) -> Tensor:
            return torch.cat((h, self.nothing))

    return Empty()


@certified("either")
def whole_numbers_as_a_parameter() -> nn.Module:
    """A frozen parameter holds indices."""

    class Indexed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.index = nn.Parameter(torch.tensor([2, 0, 1]), requires_grad=False)

        def between(self, h: Tensor) -> Tensor:
            return h[:, self.index]

    return Indexed()


@certified("either")
def lazy_layers() -> nn.Module:
    """A layer learns its shape from the first batch."""
    return nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.Linear(3, 2))


# --- parametrisations -------------------------------------------------------------------------------------------------


@certified("either")
def weight_normalisation() -> nn.Module:
    """Weights have a direction and a length, as a parametrisation."""
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2))


@certified("either")
def weight_normalisation_by_a_hook() -> nn.Module:
    """The older weight normalisation computes the weight in a hook and stores it as an attribute."""
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2))


class Positive(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return F.softplus(weight)


@certified()
def positive_weights() -> nn.Module:
    """A parametrisation of one's own keeps weights positive, as in monotone networks."""
    model = layers()
    parametrize.register_parametrization(model[2], "weight", Positive())
    return model


@certified("either")
def orthogonal_weights() -> nn.Module:
    """Weights are orthogonal by a matrix exponential."""
    model = layers()
    parametrizations.orthogonal(model[2], orthogonal_map="matrix_exp")
    return model


@certified("either")
def pruned_weights() -> nn.Module:
    """Half of the weights are masked by a hook before each forward pass."""
    model = layers()
    prune.random_unstructured(model[2], "weight", amount=0.5)
    return model


@certified()
def weights_from_a_network() -> nn.Module:
    """One network puts out the weights of another."""

    class Hyper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.code, self.maker, self.head = nn.Parameter(torch.ones(1, 2)), nn.Linear(2, 16), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            weight = torch.tanh(self.maker(self.code)).view(4, 4)
            return self.head(torch.tanh(F.linear(x, weight)))

    return Hyper()


@certified("either")
def cached_by_version() -> nn.Module:
    """Normalised weights are kept until the version counter of the weight says that it has changed."""

    class Cached(Net):
        kept: tuple[int, Tensor] | None = None

        def between(self, h: Tensor) -> Tensor:
            version = self.inner.weight._version
            if self.kept is None or self.kept[0] != version:
                weight = self.inner.weight.detach()
                self.kept = (version, weight / (1 + weight.abs().sum(1, keepdim=True)))
            return h @ self.kept[1][:, :3]

    return Cached()
