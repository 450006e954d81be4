"""Networks of unusual structure: recurrences, attention, branches, choices, several outputs, compiled code."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .networks_with_noise import Between
from .networks_with_state import Net
from .recipe import Attack
from .table import certified, variant

SERIES = {"shape": (3, 2), "samples": 8, "batch_size": 4}


class OverTime(nn.Module):
    """A recurrent layer over three steps of two features, and a head on what is left at the end."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


@certified(**SERIES)
def recurrence_by_hand() -> nn.Module:
    """A cell of two linear layers is called in a loop over time steps."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.head = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.zeros(len(x), 3, dtype=x.dtype)
            for step in x.unbind(1):
                hidden = torch.tanh(self.inner(step) + self.outer(hidden))
            return self.head(hidden)

    return Cell()


@certified(**SERIES)
def gated_recurrence_by_hand() -> nn.Module:
    """Gates written with chunk and sigmoid decide what a cell keeps."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates, self.head = nn.Linear(5, 9), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = x.new_zeros(len(x), 3)
            for step in range(x.shape[1]):
                keep, write, value = self.gates(torch.cat((x[:, step], hidden), 1)).chunk(3, 1)
                hidden = keep.sigmoid() * hidden + write.sigmoid() * value.tanh()
            return self.head(hidden)

    return Cell()


@certified("either", **SERIES)
def long_short_term_memory() -> nn.Module:
    """`nn.LSTM`, which flattens its weights."""
    return OverTime(nn.LSTM(2, 3, batch_first=True))


@certified("either", **SERIES)
def gated_recurrent_unit() -> nn.Module:
    """`nn.GRUCell`, which is one fused operator."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(2, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = None
            for step in x.unbind(1):
                hidden = self.cell(step, hidden)
            return self.head(hidden)

    return Steps()


class Attends(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x, x, x)[0].mean(1))


@certified("either", **SERIES)
def attention() -> nn.Module:
    """`nn.MultiheadAttention` with one head."""
    return Attends(nn.MultiheadAttention(2, 1, batch_first=True))


@certified("either", **SERIES)
def attention_with_dropout() -> nn.Module:
    """Attention weights are dropped, in a tensor whose axes were moved."""
    return Attends(nn.MultiheadAttention(2, 2, dropout=0.4, batch_first=True))


@certified("either", **SERIES)
def fused_attention() -> nn.Module:
    """`scaled_dot_product_attention`, with its own dropout."""

    class Fused(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3 if self.training else 0.0), None

    return Attends(Fused())


@certified("either", attack=Attack(0.002), **SERIES)
def transformer_layer() -> nn.Module:
    """`nn.TransformerEncoderLayer`, which has a faster path in evaluation mode."""

    class Encoder(nn.TransformerEncoderLayer):
        def forward(self, x: Tensor, *rest: Tensor) -> tuple[Tensor, None]:
            return super().forward(x), None

    return Attends(Encoder(2, 1, 4, 0.2, layer_norm_eps=0.1, batch_first=True))


@certified()
def branches() -> nn.Module:
    """Three branches, one of them skipped, added and concatenated."""

    class Branches(Net):
        def between(self, h: Tensor) -> Tensor:
            first, second = h.relu(), torch.exp(h) * h.detach()
            return torch.cat((first[:, :1] + h[:, :1], second[:, 1:] - h[:, :2]), 1)

    return Branches()


@certified()
def a_mixture_of_experts() -> nn.Module:
    """A softmax weighs what experts say."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            said = torch.stack([expert(x) for expert in self.experts], 1)
            return (self.gate(x).softmax(1).unsqueeze(2) * said).sum(1)

    return Mixture()


@variant("the best expert, undecided", "Attackers can send samples to another expert.", "either", attack=Attack(0.5))
@certified("either")
def the_best_expert() -> nn.Module:
    """Each sample goes to the expert with the largest weight."""

    class Hard(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 2), nn.ModuleList(nn.Linear(4, 2) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            said = torch.stack([expert(x) for expert in self.experts], 1)
            return said[torch.arange(len(x)), self.gate(x).argmax(1)]

    return Hard()


@certified("raises", attack=Attack(1.0))
def a_branch_on_data() -> nn.Module:
    """An `if` on the mean of a batch, which attackers can move to either side."""

    class Branch(Net):
        def between(self, h: Tensor) -> Tensor:
            return h * 2 if (h.mean() > 0) else -h

    return Branch()


@certified()
def a_decided_branch() -> nn.Module:
    """An `if` and a `while` on data that always take the same way."""

    def decided(h: Tensor, net: nn.Module) -> Tensor:
        while h.abs().amax() > 2:
            h = h / 2
        return h * 3 if h.square().sum() < 1e6 else h

    return Between(decided)


@certified("either")
def a_fallback() -> nn.Module:
    """An operator that is not implemented is caught, and something else computed instead."""

    def fallback(h: Tensor, net: nn.Module) -> Tensor:
        try:
            return torch.special.i0e(h)
        except NotImplementedError:
            return h

    return Between(fallback)


@certified("either")
def several_outputs() -> nn.Module:
    """The network returns logits and what lies before them, and the loss would take the first."""

    class Several(Net):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.inner(x)
            return self.head(hidden), hidden

    return Several()


@certified("either")
def recomputed_activations() -> nn.Module:
    """`torch.utils.checkpoint` runs a part of the forward pass, with its dropout, again in the backward pass."""

    def part(h: Tensor) -> Tensor:
        return F.dropout(torch.tanh(h), 0.4, True)

    def recomputed(h: Tensor, net: nn.Module) -> Tensor:
        return checkpoint(part, h, use_reentrant=False) if net.training else h

    return Between(recomputed)


@certified("either")
def recomputed_by_reentering() -> nn.Module:
    """The older form of `torch.utils.checkpoint`, with dropout inside."""

    def part(h: Tensor) -> Tensor:
        return F.dropout(torch.tanh(h), 0.4, True)

    def recomputed(h: Tensor, net: nn.Module) -> Tensor:
        return checkpoint(part, h, use_reentrant=True) if net.training else h

    return Between(recomputed)


@certified("either")
def a_scripted_layer() -> nn.Module:
    """`torch.jit.script` has compiled a layer, whose parameters live outside of Python."""
    return nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2))


@certified("either")
def a_traced_network() -> nn.Module:
    """`torch.jit.trace` has recorded the network."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    return torch.jit.trace(model, torch.zeros(2, 4).double())


@certified("either", domains=("interval",))
def a_compiled_network() -> nn.Module:
    """`torch.compile` has taken the network over, without generating code."""
    return torch.compile(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), backend="eager")


@certified(batch_size=1)
def masked_copies_of_one_sample() -> nn.Module:
    """A condition repeats the one sample of a batch in five rows, each without some of its features."""

    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)
            self.register_buffer("kept", torch.arange(20).view(5, 4) % 3 != 2)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.head(torch.where(self.kept, one, 0.0)).mean(0, keepdim=True) for one in x.split(1)])

    return Copies()


@certified()
def bias_without_an_axis() -> nn.Module:
    """The bias of a product is a number in a tensor without an axis."""

    class Offset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.1 * torch.arange(8.0).view(4, 2))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(torch.tensor(0.3, dtype=x.dtype), x, self.weight)

    return Offset()
