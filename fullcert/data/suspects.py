"""Training rows whose own label is unlikely given their other columns, the most unlikely first.

The score of a row is the probability p that a logistic regression, fitted until it stands still on all rows but this
one, gives to the label of the row (self-confidence: Northcutt, Jiang and Chuang, Confident Learning, 2021). It is
fitted on all rows, and each row is taken out by one Newton step, with leverage h and curvature w (Pregibon 1981):

    f_without = f + r h (q - y) / (1 - r h w)       h = x' H^-1 x,  q = sigmoid(f),  w = q (1 - q)

Wrong labels would pull the fit towards themselves, so rows weigh as much as their label is likely to be right, where a
share e of all labels is wrong (Bootkrajang and Kaban, Label-noise Robust Logistic Regression, 2012):

    r = p (1 - e) / (p (1 - e) + (1 - p) e)         e = mean of 1 - r

Several classes are one fit each against all others, made to sum to one. Of a regression the score is how many standard
deviations the value is off what a ridge regression without the row predicts, by the same formula with w = 1, which is
exact there. No draw is made, so the same table has the same scores. They say where to look, and certify nothing.
"""

from typing import NamedTuple

import numpy as np

PENALTY = 1.0  # of the square of every coefficient: that of scikit-learn's default
MOST = 100  # inputs; of more, their first principal components
STEPS, STILL = 100, 1e-10  # of Newton's method, and of the largest coefficient's move when it stands still
LARGEST = 30.0  # of a logit
ROUNDS = 5  # of fits, each with the weights that the one before it gives
FEWEST, USUAL, HALF = 1e-4, 0.01, 0.5  # the share of wrong labels: at least, to begin with, and at most

PROBABILITY = (
    "The probability that a logistic regression, fitted until it stands still on all other rows, each as far as its "
    "own label is likely, gives to the label of the row (self-confidence: Northcutt, Jiang and Chuang, Confident "
    "Learning, 2021)."
)
DEVIATIONS = (
    "How many standard deviations the value is off what a ridge regression, fitted on all other rows, predicts "
    "(studentised residual: Cook and Weisberg, Residuals and Influence in Regression, 1982)."
)


class Scores(NamedTuple):
    """Of every row: the probability of each class, or what is predicted without the row and how far off it is."""

    expected: np.ndarray  # (N, classes), or (N,) of a regression
    surprise: np.ndarray  # (N,): the larger, the more unlikely the row's own label

    def first(self, count: int) -> list[int]:
        """The rows with the most unlikely labels; of rows alike the first."""
        order: list[int] = np.argsort(-self.surprise, kind="stable")[:count].tolist()
        return order


def of_labels(inputs: np.ndarray, labels: np.ndarray, classes: int) -> Scores:
    """Scores of rows with one of several classes each."""
    x = features(inputs)
    if classes == 2:
        second = without_each(x, (labels == 1).astype(np.float64))
        shares = np.stack((1 - second, second), 1)
    else:
        shares = np.stack([without_each(x, (labels == k).astype(np.float64)) for k in range(classes)], 1)
        shares /= shares.sum(1, keepdims=True)
    return Scores(shares, -shares[np.arange(len(labels)), labels])


def of_values(inputs: np.ndarray, values: np.ndarray) -> Scores:
    """Scores of rows with a number each."""
    x = features(inputs)
    spread = inverse(x, np.ones(len(x)))
    fitted, leverage = x @ (spread @ (x.T @ values)), leverages(x, spread)
    left = np.maximum(1 - leverage, 1e-9)
    off = (values - fitted) / left
    deviation = np.sqrt(np.mean((off * np.sqrt(left)) ** 2)) or 1.0
    return Scores(values - off, np.abs(off * np.sqrt(left)) / deviation)


def features(inputs: np.ndarray) -> np.ndarray:
    """Rows of numbers of one size, with a column of ones: what is missing is as in the mean, and 0 and 1 stay."""
    x = inputs.reshape(len(inputs), -1).astype(np.float64)
    known = ~np.isnan(x)
    mean = np.where(known, x, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    x = np.where(known, x, mean)
    switch = ((x == 0) | (x == 1) | ~known).all(0)
    deviation = x.std(0)
    x = np.where(switch, x, (x - mean) / np.where(deviation > 0, deviation, 1.0))
    if x.shape[1] > MOST:
        x = x - x.mean(0)
        directions = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :MOST]
        x = x @ directions
        x /= x.std(0).max() or 1.0
    return np.concatenate((x, np.ones((len(x), 1))), 1)


def without_each(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The probability of 1 in each row, by a logistic regression of all other rows."""
    weight, second = np.ones(len(y)), np.zeros(len(y))
    for _ in range(ROUNDS):
        f = x @ fitted(x, y, weight)
        q = sigmoid(f)
        curvature = weight * q * (1 - q)
        leverage = leverages(x, inverse(x, curvature))
        second = sigmoid(f + weight * leverage * (q - y) / np.maximum(1 - leverage * curvature, 1e-9))
        weight = right(np.where(y == 1, second, 1 - second))
    return second


def right(p: np.ndarray) -> np.ndarray:
    """How likely each label is to be right, where the model gives it p, and a share of all labels is wrong."""
    wrong, found = USUAL, p
    for _ in range(STEPS):
        found = p * (1 - wrong) / (p * (1 - wrong) + (1 - p) * wrong)
        wrong = min(HALF, max(FEWEST, float(1 - found.mean())))
    return found


def fitted(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The coefficients at which the penalised loss is least, by Newton's method; the step is halved while it rises."""
    penalty, b = penalties(x), np.zeros(x.shape[1])
    for _ in range(STEPS):
        q = sigmoid(x @ b)
        step = inverse(x, weight * q * (1 - q)) @ (x.T @ (weight * (q - y)) + penalty * b)
        size, now = 1.0, loss(x, y, weight, b)
        while loss(x, y, weight, b - size * step) > now and size > STILL:
            size /= 2
        b = b - size * step
        if np.abs(size * step).max() < STILL:
            break
    return b


def loss(x: np.ndarray, y: np.ndarray, weight: np.ndarray, b: np.ndarray) -> float:
    f = x @ b
    return float(weight @ (np.logaddexp(0, f) - y * f) + (penalties(x) * b * b).sum() / 2)


def penalties(x: np.ndarray) -> np.ndarray:
    """Of every coefficient; that of the ones is hardly held."""
    return np.append(np.full(x.shape[1] - 1, PENALTY), 1e-6)


def inverse(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Of the second derivative of the penalised loss."""
    found: np.ndarray = np.linalg.inv((x * weight[:, None]).T @ x + np.diag(penalties(x)))
    return found


def leverages(x: np.ndarray, spread: np.ndarray) -> np.ndarray:
    found: np.ndarray = ((x @ spread) * x).sum(1)
    return found


def sigmoid(f: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(f, -LARGEST, LARGEST)))
    return found
