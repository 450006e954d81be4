"""Arrays out of an NPZ file of a stranger: a zip of arrays, each with a header that says how many values follow.

numpy would evaluate the header, ask for as much memory as it claims, and unpickle objects. Here the claim is compared
with the bytes that are there and with the limit of `unpacking.py` first, and objects are refused.
"""

import math
import warnings
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from fullcert.system.unpacking import VALUES

HEADER = 10_000  # bytes of the header of an array, as numpy has it


def arrays(file: IO[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of an NPZ file by name, one after the other, without pickled objects.

    Each must be as long as its header says, and all together no more than VALUES, or as many bytes as these in float64.
    """
    if file.read(6) == b"\x93NUMPY":
        raise ValueError("it is a single array, and must be an archive of arrays by name")
    file.seek(0)
    left = VALUES, 8 * VALUES
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                raise ValueError(f"{member.filename} in it is not an array")
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                found = array(stream, member.file_size, name, left)
            left = left[0] - found.size, left[1] - found.nbytes
            yield name, found


def array(stream: IO[bytes], size: int, name: str, most: tuple[int, int]) -> np.ndarray:
    """One array of at most so many values and bytes, from a stream of so many bytes."""
    shape, in_columns, dtype = header(stream, name)
    count = math.prod(shape)
    if count > most[0]:
        raise ValueError(f"{name} says that it has {count:,} values, and at most {VALUES:,} are read of a file")
    if count * dtype.itemsize > most[1]:  # words: each takes as many bytes as the longest
        raise ValueError(f"{name} says that it has {count:,} words of {dtype.itemsize:,} bytes, which is too much")
    held = stream.tell() + count * dtype.itemsize
    if held != size:
        raise ValueError(f"{name} says that it has {count:,} values, and has not as many bytes")
    values = np.frombuffer(stream.read(), dtype)  # as long as the archive says, which is `size`
    return values.reshape(shape, order="F" if in_columns else "C")


def header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype of an array; numpy evaluates the text that says so, and trips over much."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, about the text
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, in_columns, dtype = read(stream, max_header_size=HEADER)
    except Exception:  # TokenError, SyntaxError, SystemError, OverflowError and others
        raise ValueError(f"the header of {name} is damaged") from None
    if dtype.hasobject or dtype.itemsize == 0 or dtype.names is not None:
        raise ValueError(f"{name} must hold numbers, or one word a sample")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"the header of {name} is damaged")
    return shape, in_columns, dtype
