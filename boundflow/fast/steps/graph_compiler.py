"""A graph of tensor operations as one fast function: compiled on a CPU, compiled and replayed on a GPU.

The compiler fuses operations; it may neither contract nor reorder floating-point ones (`FLAGS`), and operators of which
it is not known that they round as their rules charge are refused (`KNOWN`). Compiling takes seconds, so what this
process has compiled is kept: the same operations on tensors of the same kind, with the same constants, are one
function. Ten seeds of a recipe compile once.

On a GPU the launches of a step are recorded once and replayed (`Replayed`): inputs are copied to where the recording
read them, and what it wrote is copied out.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from ...arithmetic.tuned_numbers import MANY_COLUMNS, MANY_TERMS, SMALL_RESULT
from .step_state import NotTraceable
from .traced_step import Function

# nothing reordered or contracted, and tanh as it is: ``2 sigmoid(2 x) - 1`` would cancel
FLAGS: dict[str, object] = {
    "cpp.enable_unsafe_math_opt_flag": False,
    "cpp.enable_floating_point_contract_flag": "off",
    "cpp.use_decompose_tanh": False,
}
# the same on a GPU: quotients rounded correctly, no number flushed to zero, and no fused products and sums
CUDA_FLAGS: dict[str, object] = {
    "eager_numerics.division_rounding": True,
    "eager_numerics.disable_ftz": True,
    "emulate_precision_casts": True,
    "use_fast_math": False,
}
# less work around the kernels of small steps; the shapes of inputs are ours, and always the same
LEAN: dict[str, object] = {"size_asserts": False, "cpp_wrapper": True}
# operators that the compiler computes with the roundings that the rules charge for: those that round not at all or
# once, products and sums, and functions that were tried; not expm1, for instance, which it takes for exp(x) - 1
KNOWN = frozenset(
    f"aten.{name}"
    for name in (
        "add sub rsub mul div neg addcmul maximum minimum clamp clamp_min clamp_max nextafter sum mean "
        "mm addmm bmm baddbmm dot mv abs sign relu threshold_backward sigmoid tanh exp log log1p softplus logit silu "
        "logsumexp masked_fill eye arange scalar_tensor "
        "amax amin aminmax max min where all any eq ne lt le gt ge logical_and logical_or logical_not "
        "bitwise_and bitwise_or bitwise_not isfinite isnan "
        "t transpose permute view reshape _unsafe_view expand unsqueeze squeeze flatten unflatten alias detach clone "
        "copy unbind select slice stack cat flip index index_select gather split _to_copy to lift_fresh_copy "
        "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full new_empty empty empty_like fill "
        "zero diag_embed diagonal constant_pad_nd nan_to_num sort index_put index_copy index_add scatter_add "
        "slice_scatter select_scatter diagonal_scatter"
    ).split()
)
VIEWS = frozenset(
    f"aten.{name}"
    for name in "t transpose permute view expand unsqueeze squeeze alias detach select slice diagonal unbind".split()
)
IN_ORDER: dict[str, Any] = {"memory_format": torch.contiguous_format}  # a copy that lies in memory as the product did
_COMPILED: dict[tuple[object, ...], Function] = {}  # of this process
_LOCK = threading.Lock()  # the settings of the compiler are those of the process


def compiled(graph: GraphModule, given: Sequence[Tensor]) -> Function:
    """The function of a graph on tensors of these kinds; made once in a process."""
    require_known_roundings(graph)
    if not given[0].is_cuda:
        _truth_as_numbers(graph)
        _long_lines(graph, given)
    _constants_on(graph, given[0].device)
    key = _key(graph, given)
    with _LOCK:
        try:
            if key not in _COMPILED:
                _COMPILED[key] = _by_inductor(graph, given)
            function = _COMPILED[key]
            return Replayed(function, given) if given[0].is_cuda else function
        except NotTraceable:
            raise
        except Exception as error:  # of whatever kind: the rules make the step without it
            raise NotTraceable(f"the compiler failed ({type(error).__name__}: {str(error)[:200]})") from error


def _key(graph: GraphModule, given: Sequence[Tensor]) -> tuple[object, ...]:
    """All that a compiled function depends on: operations, constants, and the kinds of inputs."""
    constants = [
        (name, str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes())
        for name, value in sorted((*graph.named_buffers(), *_constants(graph)))
    ]
    kinds = [(x.dtype, tuple(x.shape), x.stride(), x.device, x.requires_grad) for x in given]
    return graph.code, tuple(constants), tuple(kinds), torch.get_num_threads()


def _constants(graph: GraphModule) -> list[tuple[str, Tensor]]:
    """Tensors that the tracer met and keeps as attributes."""
    names = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    return [(name, getattr(graph, name)) for name in names - dict(graph.named_buffers()).keys()]


def _constants_on(graph: GraphModule, device: torch.device) -> None:
    """Tables of a step where the step is made: a recording on a GPU must not copy from the memory of the processor."""
    for name, value in (*graph.named_buffers(), *_constants(graph)):
        if value.device != device:
            setattr(graph, name, value.to(device))


def _truth_as_numbers(graph: GraphModule) -> None:
    """Turn truth values into numbers before they are stacked: the compiler of a CPU stores them one by one.

    A step of 784-512-512-1 takes 23 ms of a core instead of 30.
    """
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default):
        stacked = node.args[0]
        if stacked.target is torch.ops.aten.stack.default and list(stacked.users) == [node]:
            parts, *rest = stacked.args
            with graph.graph.inserting_before(node):
                each = [graph.graph.call_function(node.target, (part,), node.kwargs) for part in parts]
                node.replace_all_uses_with(graph.graph.call_function(stacked.target, (each, *rest)))
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _long_lines(graph: GraphModule, given: Sequence[Tensor]) -> None:
    """Write products with few columns the other way round, ``a b = (b' a')'``: the same sums, in another order.

    A library makes short lines of results more slowly: 100 x 784 times 784 x 10 takes 37 us of a core, and 23 this way.
    """
    with torch.no_grad():
        shapes = _Shapes(graph)
        shapes.run(*given)
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        lines, inner, columns = shapes.found[node]
        if columns < MANY_COLUMNS <= lines and inner >= MANY_TERMS:
            with graph.graph.inserting_before(node):
                turned = [graph.graph.call_function(torch.ops.aten.t.default, (factor,)) for factor in node.args]
                product = graph.graph.call_function(node.target, (turned[1], turned[0]))
                back = graph.graph.call_function(torch.ops.aten.t.default, (product,))
                node.replace_all_uses_with(graph.graph.call_function(torch.ops.aten.clone.default, (back,), IN_ORDER))
            graph.graph.erase_node(node)
    graph.recompile()


class _Shapes(Interpreter):
    """Runs a graph once, and notes what its products are like."""

    def __init__(self, graph: GraphModule):
        super().__init__(graph)
        self.found: dict[Node, tuple[int, int, int]] = {}

    def run_node(self, n: Node) -> Any:
        if n.target is torch.ops.aten.mm.default:
            first, second = self.fetch_args_kwargs_from_env(n)[0]
            self.found[n] = (*first.shape, second.shape[1])
        return super().run_node(n)


def _by_inductor(graph: GraphModule, given: Sequence[Tensor]) -> Function:
    import torch._inductor  # takes a while to import

    for node in graph.graph.nodes:  # what the tracer remembers of its tensors, which the compiler finds out by itself
        node.meta.pop("val", None)
        node.meta.pop("tensor_meta", None)
    config: Any = torch._inductor.config
    needed = CUDA_FLAGS if given[0].is_cuda else FLAGS
    if any(not _has(config, name) for name in needed):
        raise NotTraceable(f"the compiler of PyTorch {torch.__version__} cannot be told to round as the rules charge")
    lean = {} if given[0].is_cuda else {name: value for name, value in LEAN.items() if _has(config, name)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about its own
        with config.patch({**needed, **lean}):
            made: Function = torch._inductor.compile(graph, [*given])
    return made


def _has(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


def require_known_roundings(graph: GraphModule) -> None:
    """Refuse operators that were not tried, and division by a constant tensor, which may become two roundings."""
    varying: set[Any] = set()
    for node in graph.graph.nodes:
        name = str(node.target).rpartition(".")[0].removesuffix("_")
        if node.op == "call_function" and name.startswith("aten.") and name not in KNOWN:
            raise NotTraceable(f"it is not known how a compiler rounds {name}")
        if node.op == "placeholder" or any(argument in varying for argument in node.all_input_nodes):
            varying.add(node)
            if str(node.target).rpartition(".")[0].endswith("_"):  # written in place, maybe to a part of a tensor
                varying.update(_looked_through(node.args[0]))
        divides = node.op == "call_function" and "aten.div" in str(node.target)
        if divides and isinstance(node.args[1], torch.fx.Node) and node.args[1] not in varying:
            raise NotTraceable("the step divides by a tensor that never changes")


def _looked_through(view: Any) -> Iterator[Any]:
    """A tensor, and those that it is a view of."""
    while isinstance(view, torch.fx.Node):
        yield view
        view = view.args[0] if str(view.target).rpartition(".")[0] in VIEWS else None


class Replayed:
    """A function whose launches on a GPU were recorded once: calling it copies inputs in, replays, copies out.

    Inputs that are the same tensor as the last time, such as the data, are not copied again; they must not have been
    written to, which their version tells. Every copy is a launch, so small results of one dtype are one tensor.
    """

    def __init__(self, function: Function, given: Sequence[Tensor]):
        self.inputs = [x.detach().clone() for x in given]
        self._held = [(id(x), x._version) for x in given]
        self._given = list(given)  # so that no other tensor gets the same id
        # of each result: in which of the recorded ones it stands, from where on, and its shape
        self._places: list[tuple[int, int, torch.Size]] = []
        self.outputs, self._replay = self._recorded(self._packed(function))

    def _packed(self, function: Function) -> Function:
        """The same function with small results of one dtype in one tensor."""

        def packed(*inputs: Tensor) -> tuple[Tensor, ...]:
            outputs = function(*inputs)
            kinds = [x.dtype if x.numel() <= SMALL_RESULT else number for number, x in enumerate(outputs)]
            groups = {kind: [x for x, own in zip(outputs, kinds, strict=True) if own == kind] for kind in kinds}
            begin, self._places = dict.fromkeys(groups, 0), []
            for x, kind in zip(outputs, kinds, strict=True):
                self._places.append((list(groups).index(kind), begin[kind], x.shape))
                begin[kind] += x.numel()
            flat = ([x.reshape(-1) for x in group] for group in groups.values())
            return tuple(torch.cat(group) if len(group) > 1 else group[0] for group in flat)

        return packed

    def _recorded(self, function: Function) -> tuple[tuple[Tensor, ...], Callable[[], None]]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):  # what is loaded lazily is loaded before the recording
            for _ in range(3):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            outputs = tuple(function(*self.inputs))
        return outputs, graph.replay

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        changed: dict[torch.dtype, list[int]] = {}
        for number, x in enumerate(given):
            if self._held[number] != (id(x), x._version):
                changed.setdefault(x.dtype, []).append(number)
                self._held[number], self._given[number] = (id(x), x._version), x
        with torch.no_grad():
            for numbers in changed.values():
                torch._foreach_copy_([self.inputs[n] for n in numbers], [given[n] for n in numbers])
        self._replay()
        copies = [output.clone() for output in self.outputs]
        return tuple(copies[which][begin : begin + shape.numel()].view(shape) for which, begin, shape in self._places)
