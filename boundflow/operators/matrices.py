"""Matrix products: the operators of linear algebra that are contractions."""

import torch
from torch import Tensor

from ..rules.bilinear import Product
from ..rules.contractions import apart, contraction, matrix_samples
from ..rules.linear import combination
from ..sets.set import Set
from ..tensor.rule_table import aten, replaces, rule
from .constants import constant


@rule(aten.mm.default, example=lambda t: (t(2, 3), t(3, 4)))
def mm(a: Set, b: Set) -> Set:
    return contraction("mm", a, b, torch.mm, torch.matmul, torch.matmul, a.shape[1], samples=matrix_samples)


@rule(aten.bmm.default, example=lambda t: (t(2, 2, 3), t(2, 3, 2)))
def bmm(a: Set, b: Set) -> Set:
    return contraction("bmm", a, b, torch.bmm, torch.matmul, torch.matmul, a.shape[2])


@rule(aten.mv.default, example=lambda t: (t(2, 3), t(3)))
def mv(a: Set, b: Set) -> Set:
    return contraction("mv", a, b, torch.mv, torch.matmul, _matrix_by_rows, a.shape[1])


@replaces(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """PyTorch multiplies a vector by a matrix with an in-place squeeze, which would change the shape of a set."""
    if a.dim() == 1 and b.dim() > 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2)
    with torch._C.DisableTorchFunctionSubclass():
        return torch.matmul(a, b)


def _matrix_by_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    return rows @ matrix.transpose(0, 1)


@rule(aten.dot.default, example=lambda t: (t(4), t(4)))
def dot(a: Set, b: Set) -> Set:
    return contraction("dot", a, b, torch.dot, torch.matmul, lambda x, rows: rows @ x, a.shape[0])


@rule(aten.addmm.default, example=lambda t: (t(2, 4), t(2, 3), t(3, 4)))
def addmm(bias: Set | Tensor, a: Set, b: Set, *, beta: float = 1, alpha: float = 1) -> Set:
    return _biased("addmm", bias, a, b, beta, alpha, torch.mm, a.shape[1])


@rule(aten.baddbmm.default, example=lambda t: (t(2, 2, 2), t(2, 2, 3), t(2, 3, 2)))
def baddbmm(bias: Set | Tensor, a: Set, b: Set, *, beta: float = 1, alpha: float = 1) -> Set:
    return _biased("baddbmm", bias, a, b, beta, alpha, torch.bmm, a.shape[2])


def _biased(name: str, bias: Set | Tensor, a: Set, b: Set, beta: float, alpha: float, f: Product, terms: int) -> Set:
    """``beta bias + alpha a b``; a plain bias without an axis is a number."""
    bias = constant(bias, a.dtype, a.device)
    samples = matrix_samples if f is torch.mm else apart
    if beta == 1 and alpha == 1:
        return contraction(name, a, b, f, torch.matmul, torch.matmul, terms, bias, samples)
    product = contraction(name, a, b, f, torch.matmul, torch.matmul, terms, None, samples)
    return combination(name, [(product, float(alpha)), (bias, float(beta))], terms=terms + 3)
