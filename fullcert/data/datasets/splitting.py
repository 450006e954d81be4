"""Splits, means of neighbours and standard scores, in numpy alone and to the bit as scikit-learn draws them.

Published recipes name scikit-learn's functions and a seed. Rewritten here, they give the same samples on machines that
have numpy alone, and whatever a later scikit-learn does:

    shuffled(n, test, seed)           train_test_split(range(n), test_size=test, random_state=seed)
    stratified(labels, test, seed)    the same with stratify=labels: every class in its share
    filled(table, k)                  KNNImputer(n_neighbors=k).fit_transform(table)
    standardised(train, others)       StandardScaler: less the mean of the training part, over its deviation (in value,
                                      not to the bit)

`test` is the number of test samples: scikit-learn rounds a share up.
"""

import numpy as np


def shuffled(count: int, test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training and of the test samples: the first of one permutation are the test."""
    order = np.random.RandomState(seed).permutation(count)
    return order[test:], order[:test]


def stratified(labels: np.ndarray, test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training and of the test samples, every class in its share of both."""
    generator = np.random.RandomState(seed)
    _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
    in_train = shares(counts, len(labels) - test, generator)
    in_test = shares(counts - in_train, test, generator)
    train, held = [], []
    for each, count in enumerate(counts):
        members = np.flatnonzero(number == each)[generator.permutation(count)]
        train.append(members[: in_train[each]])
        held.append(members[in_train[each] : in_train[each] + in_test[each]])
    return generator.permutation(np.concatenate(train)), generator.permutation(np.concatenate(held))


def shares(counts: np.ndarray, draws: int, generator: np.random.RandomState) -> np.ndarray:
    """How many of each class are in `draws` samples: its share rounded down, the largest remainders one more."""
    exact = counts / counts.sum() * draws
    found = np.floor(exact)
    missing = int(draws - found.sum())
    remainders = exact - found
    for value in np.sort(np.unique(remainders))[::-1]:
        if missing <= 0:
            break
        (tied,) = np.where(remainders == value)
        more = min(len(tied), missing)
        found[generator.choice(tied, size=more, replace=False)] += 1  # drawn even where there is no tie to break
        missing -= more
    return found.astype(np.int64)


def filled(table: np.ndarray, neighbours: int) -> np.ndarray:
    """A table whose holes (NaN) hold the mean of that column in the nearest rows that have a value there.

    The distance of two rows counts the columns that both have, scaled up to all of them.
    """
    filled, known = table.copy(), ~np.isnan(table)
    for row, column in np.argwhere(~known):
        donors = np.flatnonzero(known[:, column])
        both = known[donors] & known[row]
        squares = np.where(both, (table[donors] - table[row]) ** 2, 0.0).sum(1)
        distances = squares * table.shape[1] / both.sum(1)
        nearest = donors[np.argsort(distances, kind="stable")[:neighbours]]
        filled[row, column] = table[nearest, column].mean()
    return filled


def standardised(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Columns less their mean in training, over their deviation there."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    return [(part - mean) / deviation for part in (train, *others)]
