"""Columns whose type says that they hold categories: one column of zeros and ones for each category of the type.

The categories are those that the type lists, in its order, so they are fixed before the fit and are the same in every
allowed dataset, whatever rows there are. Tables are taken as they come: anything with ``columns`` and ``dtypes``, a
frame of pandas for instance, whose types have ``categories``; a column of words without such a type stays a mistake.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Categories = dict[str, tuple[Any, ...]]


def of_table(table: Any) -> Categories:
    """The categories of each column whose type lists them; nothing where there are no such columns."""
    columns, types = getattr(table, "columns", None), getattr(table, "dtypes", None)
    if columns is None or types is None:
        return {}
    listed = ((name, getattr(kind, "categories", None)) for name, kind in zip(columns, types, strict=True))
    return {name: tuple(categories) for name, categories in listed if categories is not None}


def encoded(table: Any, categories: Mapping[str, tuple[Any, ...]], names: list[str]) -> np.ndarray:
    """A table with these columns as numbers; other columns, and a category that is not listed, are refused."""
    found = list(getattr(table, "columns", []))
    if found != names:
        raise ValueError(f"the columns must be {', '.join(map(str, names))}, as in fit, and not {_listed(found)}")
    parts = []
    for name in names:
        values = np.asarray(table[name], dtype=object)
        if name not in categories:
            parts.append(values.reshape(-1, 1))
            continue
        one_hot = np.stack([values == category for category in categories[name]], 1)
        others = ~one_hot.any(1)
        if others.any():
            first = values[others.argmax()]
            raise ValueError(
                f"{int(others.sum())} values of the column {name!r} are none of its categories, such as {first!r}: "
                "give missing ones a category of their own"
            )
        parts.append(one_hot.astype(object))
    return np.concatenate(parts, 1)


def encoded_names(categories: Mapping[str, tuple[Any, ...]], names: list[str]) -> list[str]:
    """What each input of the network is: a column, or a category of one."""
    return [name if one is None else f"{name}={one}" for name in names for one in categories.get(name, (None,))]


def _listed(names: list[Any]) -> str:
    return ", ".join(map(str, names)) or "an array without names"
