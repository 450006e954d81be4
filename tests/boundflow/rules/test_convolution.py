"""Convolutions on sets switch libraries off, and leave everything else in the process as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import torch
import torch.nn.functional as F

import boundflow as bf
from boundflow.operators.convolution import LIBRARIES, without_libraries


def enabled() -> list[bool]:
    return [flag() for flag, _ in LIBRARIES]


def precisions() -> list[str]:
    backends = torch.backends
    return [part.fp32_precision for part in (backends, backends.cudnn, backends.mkldnn, backends.mkldnn.conv)]


def test_a_convolution_changes_no_flag_and_warns_of_nothing() -> None:
    flags, precision = enabled(), precisions()
    x, weight = bf.ball(torch.ones(2, 1, 5), 0.1), bf.ball(torch.ones(3, 1, 2), 0.1).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.conv1d(x, weight).sum().backward()
    assert enabled() == flags and precisions() == precision


def test_the_precision_is_not_touched_inside() -> None:
    """A product asked for in full precision has it inside too: a convolution without libraries is such a product."""
    before = precisions()
    with without_libraries:
        assert not any(enabled()) and precisions() == before


def test_libraries_stay_off_until_the_last_thread_is_done() -> None:
    before = enabled()
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with without_libraries:
            inside.set()
            done.wait()

    thread = threading.Thread(target=other)
    with without_libraries:
        thread.start()
        inside.wait()
    try:
        assert not any(enabled())
    finally:
        done.set()
        thread.join()
    assert enabled() == before


def test_a_mistake_inside_restores_the_libraries() -> None:
    before = enabled()
    try:
        with without_libraries:
            raise ValueError
    except ValueError:
        assert enabled() == before


def test_importing_the_library_hides_no_warning() -> None:
    """Filters belong to the process, which is the user's. Those that torch itself installs are there before."""
    script = "import warnings, torch, numpy; before = list(warnings.filters)\n"
    script += "import boundflow; assert warnings.filters == before, warnings.filters"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
