"""Kernels in CUDA C++, compiled for the GPU at hand by the compiler that comes with PyTorch (NVRTC), once in a process.

`terms.cu` has the source. A kernel is named as C++ names it, with the values of its parameters: ``largest<float, 0, 8,
1>``. Where there is no such compiler, or the GPU is older than the instructions that are used, nothing here is usable,
and PyTorch's own operators do what the kernels would.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

OLDEST = (8, 0)  # the first with maxima that keep NaN, and with sums over the lanes of a warp
_compiling = threading.Lock()


@lru_cache(maxsize=8)
def usable(device: torch.device) -> bool:
    """Whether kernels can be made for this device."""
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    try:
        _kernel("pack_lines", device)
    except (AttributeError, ImportError, OSError, RuntimeError):  # inner names of PyTorch, or no compiler
        return False
    return True


def launch(
    name: str, device: torch.device, blocks: tuple[int, int], threads: int, given: Sequence[Any], shared: int = 0
) -> None:
    """Start a kernel, with pointers for tensors and `int` for whole numbers, on the stream of PyTorch.

    As PyTorch's own call of a kernel does, which loads the driver anew each time: 0.15 ms, 780 times in a run on MAGIC.
    """
    function, driver = _kernel(name, device).func, _driver()
    values = [ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_int(x) for x in given]
    places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    with torch.cuda.device(device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        failed = driver.cuLaunchKernel(function, *blocks, 1, threads, 1, 1, shared, stream, places, None)
    if failed:
        raise RuntimeError(f"the GPU did not start {name}: error {failed} of the driver")


@lru_cache(maxsize=1)
def _driver() -> Any:
    from torch.cuda import _utils

    return _utils._get_gpu_runtime_library()


def _kernel(name: str, device: torch.device) -> Any:
    with _compiling:
        return _compiled(name, torch.device(device.type, device.index or 0))


@lru_cache(maxsize=256)
def _compiled(name: str, device: torch.device) -> Any:
    from torch.cuda import _utils

    with torch.cuda.device(device):
        torch.cuda.current_stream()  # the driver needs a context
        binary, mangled = _binary(name, torch.cuda.get_device_capability(device))
        loaded: Any = _utils._cuda_load_module(binary, [mangled])
        return loaded[mangled]


@lru_cache(maxsize=256)
def _binary(name: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Machine code of one kernel, and its name in it. No header is included: users of PyTorch need not have any."""
    from torch.cuda import _utils

    compiler, program = _utils._get_gpu_rtc_library(), ctypes.c_void_p()

    def check(result: int) -> None:
        if result:
            size = ctypes.c_size_t()
            compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            compiler.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC could not compile {name}: {log.value.decode(errors='replace')}")

    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode(), b"--std=c++17"]
    check(compiler.nvrtcCreateProgram(ctypes.byref(program), _source(), b"terms.cu", 0, None, None))
    try:
        check(compiler.nvrtcAddNameExpression(program, name.encode()))
        check(compiler.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)))
        size, mangled = ctypes.c_size_t(), ctypes.c_char_p()
        check(compiler.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        binary = ctypes.create_string_buffer(size.value)
        check(compiler.nvrtcGetCUBIN(program, binary))
        check(compiler.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(mangled)))
        return binary.raw, (mangled.value or b"").decode()
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(maxsize=1)
def _source() -> bytes:
    return Path(__file__).with_name("terms.cu").read_bytes()
