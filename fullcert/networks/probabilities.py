"""Probabilities of classes from the outputs of a model: softmax, or of one output the sigmoid of both its signs.

They are those of the logistic losses: what other losses put out says which class, and no probability.
"""

import torch

LOGISTIC = ("bce", "ce")  # the losses whose outputs are logits


def probabilities(outputs: torch.Tensor) -> torch.Tensor:
    """Of the classes; an output alone is that of the second of two."""
    if outputs.shape[1] > 1:
        return torch.softmax(outputs, 1)
    return torch.cat((torch.sigmoid(-outputs), torch.sigmoid(outputs)), 1)
