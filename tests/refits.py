"""An oracle for optima: plain Newton steps in numpy, which share no code with the library."""

from __future__ import annotations

import numpy as np


def slope(loss: str, z: np.ndarray, y: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """The derivative of the loss by the logit, and the derivative of that."""
    if loss == "squared":
        return z - y, np.ones_like(z)
    if loss == "logistic":
        p = np.where(z > 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))
        return p - y, p * (1 - p)
    if loss == "squared_hinge":
        s = 2 * y - 1
        inside = s * z < 1
        return np.where(inside, z - s, 0.0), inside.astype(float)
    inside = np.abs(z - y) < width
    return np.clip(z - y, -width, width), inside.astype(float)


def value(loss: str, z: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    if loss == "squared":
        return (z - y) ** 2 / 2
    if loss == "logistic":
        return np.logaddexp(0, z) - y * z
    if loss == "squared_hinge":
        return np.maximum(0, 1 - (2 * y - 1) * z) ** 2 / 2
    r = np.abs(z - y)
    return np.where(r <= width, r**2 / 2, width * (r - width / 2))


def optimum(
    loss: str, x: np.ndarray, y: np.ndarray, w: np.ndarray, ridge: np.ndarray, width: float = 1.0
) -> tuple[np.ndarray, float]:
    """Weights that minimise ``sum_i w_i loss + sum_j ridge_j theta_j^2 / 2``, and the largest entry of the gradient."""
    theta = np.zeros(x.shape[1])

    def objective(at: np.ndarray) -> float:
        return float(w @ value(loss, x @ at, y, width) + (ridge * at * at).sum() / 2)

    gradient = np.full_like(theta, np.inf)
    for _ in range(200):
        psi, curved = slope(loss, x @ theta, y, width)
        gradient = x.T @ (w * psi) + ridge * theta
        if np.abs(gradient).max() < 1e-13 * max(1.0, w.sum()):
            break
        hessian = (x.T * (w * np.maximum(curved, 1e-6))) @ x + np.diag(ridge)
        step, length = np.linalg.solve(hessian, gradient), 1.0
        while length > 1e-6 and objective(theta - length * step) > objective(theta) - 1e-6 * length * (gradient @ step):
            length /= 2
        if length <= 1e-6:
            length = 1.0 if np.abs(gradient).max() < 1e-7 else 0.1
        theta = theta - length * step
    return theta, float(np.abs(gradient).max())
