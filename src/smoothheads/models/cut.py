"""Any network is cut into trunk and head, and becomes a multi-head network: shared up to the cut."""

from __future__ import annotations

import copy
import math
import operator
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx, nn

from smoothheads.config.check import at_least
from smoothheads.errors import ConfigError, one_of, reason
from smoothheads.models.multihead import MultiHead, temporary_mode
from smoothheads.seeding import drawing

Parts = tuple[nn.Module, nn.Module]
SIDES: Final = (32, 28, 224, 64, 96, 16, 8, 4, 128, 256, 299)  # of images, the usual ones first
ADVICE: Final = "join modules of your own as sh.MultiHead(trunk, heads)"


def multihead(
    model: nn.Module,
    cut: str | int,
    heads: int,
    *,
    example: Tensor | None = None,
    normalize: nn.Module | None = None,
    reinit: bool | Callable[[nn.Module], None] = True,
    seed: int = 0,
) -> MultiHead:
    """Returns a multi-head network made of a copy of `model`, which itself stays as it is.

    Args:
        model: a network that gives logits [N, C].
        cut: the trunk ends after this submodule or where the model's own `split` says; `input` shares
            nothing.
        heads: number of heads L.
        example: a batch of images, by default one that fits the first layer. On it every head is checked to
            give the model's own logits, bit for bit, before the heads are drawn anew.
        normalize: first layer of the network.
        reinit: True draws head k anew from the k-th stream of `seed`, False keeps exact copies, a function
            initialises a head in place of `reset_parameters`.
        seed: seed of the new heads.
    """
    at_least("heads", heads, 1)
    _refuse_batch_statistics(model)
    # Cut a copy of the model; weights on both sides of the cut cannot be copied for every head.
    trunk, head = split(copy.deepcopy(model), cut)
    if not list(head.parameters()):
        raise ConfigError("There is no parameter behind the cut, so heads would be equal: cut earlier.")
    in_trunk = {id(p) for p in trunk.parameters()}
    in_trunk |= {id(m) for m in trunk.modules() if list(m.buffers(recurse=False))}
    for name, part in (*head.named_parameters(), *head.named_modules()):
        if id(part) in in_trunk:
            raise ConfigError(f"Both sides of the cut use the tied {name!r}: choose another cut.")
    for module in head.modules():
        if hasattr(module, "inplace"):  # a head must not overwrite what the next head reads
            module.inplace = False  # type: ignore[assignment]
    network = MultiHead(trunk, [copy.deepcopy(head) for _ in range(heads)])
    # Before anything is drawn anew, each head must compute what the model computes.
    example = example_for(model) if example is None else example
    _check(network, _logits(model, example), example)
    # Draw head k anew from the k-th random stream.
    if reinit:
        initialise = reset if reinit is True else reinit
        for k, copied in enumerate(network.heads):
            with drawing(seed, "init", k):
                initialise(copied)
    return MultiHead(trunk, list(network.heads), normalize)


def reset(module: nn.Module) -> None:
    """Draws every parameter anew with the layers' own `reset_parameters`."""
    for child in module.children():
        reset(child)
    own = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if own is not None:
        own()
        return
    for name, _ in module.named_parameters(recurse=False):
        raise ConfigError(
            f"The parameter {name!r} of {type(module).__name__} cannot be drawn anew without a "
            "reset_parameters method: pass reinit=False, or a function that initialises a head."
        )


def split(model: nn.Module, cut: str | int) -> Parts:
    """Returns trunk and head, which use the model's own layers: head(trunk(x)) is what the model computes."""
    # A network may know itself where it can be cut, as ours do.
    own_split = getattr(model, "split", None)
    if callable(own_split) and isinstance(cut, str):
        own_parts: Parts = own_split(cut)
        return own_parts
    if cut == "input":
        return nn.Identity(), model
    # A chain of layers is cut between two of them.
    sequential = type(model).forward is nn.Sequential.forward
    if sequential and (cut in model._modules or isinstance(cut, int)):
        children = [(name, child) for name, child in model._modules.items() if child is not None]
        names = [name for name, _ in children]
        end = (names.index(cut) if isinstance(cut, str) else cut) + 1
        if not 0 < end <= len(names):
            raise ConfigError(f"A cut of this Sequential is an index from 0 to {len(names) - 1}, not {cut}.")
        return nn.Sequential(OrderedDict(children[:end])), nn.Sequential(OrderedDict(children[end:]))
    # In any other network, torch.fx finds out what is computed behind the submodule.
    if isinstance(cut, int) or cut not in dict(model.named_modules()):
        raise one_of("submodule to cut after", str(cut), model._modules)
    return fx_split(model, cut)


def fx_split(model: nn.Module, cut: str) -> Parts:
    """Returns trunk (up to the last call of the submodule `cut`) and head, which use the model's submodules.

    Only the forward methods of modules that contain the cut are traced; all others are called as they are,
    whatever their code does. torch.fx.passes.split_module is no substitute: it renames submodules (`layer1.0`
    to `layer1_0`), under which no weights would load, and gives a head one argument per value.
    """
    # The forward as a list of calls; the trunk ends with the last call of `cut`.
    nodes = list(_trace(model, cut).nodes)
    calls = [i for i, node in enumerate(nodes) if node.op == "call_module" and node.target == cut]
    if not calls:
        raise ConfigError(f"The model's forward never calls {cut!r}: choose another cut.")
    before, after = nodes[: calls[-1] + 1], nodes[calls[-1] + 1 :]
    # Every value from before the cut that is still needed crosses it, as one tensor or as a tuple.
    live = [node for node in before if node.op != "get_attr" and _used_by(node, after)]

    # The trunk: all calls up to the cut, with the parameters that these read.
    trunk = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in before:
        if node.op != "get_attr" or _used_by(node, before):
            new[node] = trunk.node_copy(node, new.__getitem__)
    trunk.output(new[live[0]] if len(live) == 1 else tuple(new[node] for node in live))

    # The head: the remaining calls, which find the crossing values in its input.
    head = fx.Graph()
    features = head.placeholder("features")
    if len(live) == 1:
        new = {live[0]: features}
    else:
        new = {n: head.call_function(operator.getitem, (features, k)) for k, n in enumerate(live)}
    # Parameters that the head uses are read there, not passed through the trunk.
    attributes = [node for node in before if node.op == "get_attr" and _used_by(node, after)]
    for node in [*attributes, *after]:
        new[node] = head.node_copy(node, new.__getitem__)
    return fx.GraphModule(model, trunk, "Trunk"), fx.GraphModule(model, head, "Head")


def _used_by(node: fx.Node, others: Sequence[fx.Node]) -> bool:
    return not node.users.keys().isdisjoint(others)


class _OneInput(nn.Module):
    """Calls the model as users do, so that its optional arguments are their defaults and not inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> object:
        return self.model(x)


class _PathTracer(fx.Tracer):
    """Traces into the modules on the path to the cut and takes all others as they are."""

    def __init__(self, cut: str) -> None:
        super().__init__()
        self.cut = cut

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return not f"model.{self.cut}".startswith(f"{module_qualified_name}.")


def _trace(model: nn.Module, cut: str) -> fx.Graph:
    """Returns the graph, with names relative to the model; raises ConfigError if training and evaluation
    differ in more than what modules do themselves."""
    # Trace in both modes.
    graphs = {}
    for training in (True, False):
        with temporary_mode(model, training=training):
            try:
                graphs[training] = _PathTracer(cut).trace(_OneInput(model))
            except Exception as error:  # the model's code may raise anything when it meets a symbolic value
                raise ConfigError(
                    f"torch.fx cannot trace the forward down to {cut!r} ({reason(error)}): code that looks "
                    f"at the data cannot be cut, so {ADVICE}."
                ) from error
    if str(graphs[True]) != str(graphs[False]):
        raise ConfigError(
            "The forward reads self.training itself, so training and evaluation would need two cuts: use "
            f"modules such as nn.Dropout for that, or {ADVICE}."
        )
    # Modules get the names that they have in the model, so that its weights fit.
    for node in graphs[False].nodes:
        if node.op in ("call_module", "get_attr"):
            node.target = str(node.target).removeprefix("model.")
    return graphs[False]


def _refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        batch_norm = isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm))
        if batch_norm and module.running_mean is None:
            raise ConfigError(
                f"The BatchNorm {name!r} has no running statistics, so the prediction for an image depends "
                "on the rest of the batch: set track_running_stats=True, or use another normalisation."
            )


def _check(network: MultiHead, expected: Tensor, example: Tensor) -> None:
    """Checks that each head gives the expected logits bit for bit, whatever else is in the batch."""
    logits_LNC = _run(network, example)
    for k, got in enumerate(logits_LNC):
        if not torch.equal(got, expected):
            gap = (got - expected).abs().max()
            raise ConfigError(
                f"Behind the cut the logits of head {k + 1} differ by {gap:.3g} from the model's own: its "
                f"forward changes values in place or at random, so {ADVICE}."
            )
    # The prediction for an image must not depend on the other images in the batch.
    others = torch.rand(example.shape, generator=torch.Generator().manual_seed(0)).to(example)
    together_LNC = _run(network, torch.cat([example, others]))[:, : len(example)]
    # Only up to rounding: kernels may differ with the batch size.
    if not torch.allclose(logits_LNC, together_LNC, rtol=1e-2, atol=1e-3 * float(logits_LNC.abs().max())):
        warnings.warn(
            "The network's prediction for an image depends on the rest of the batch, so its votes are not "
            "independent and a certificate would be wrong: look for layers that mix samples.",
            stacklevel=3,
        )


def _logits(model: nn.Module, example: Tensor) -> Tensor:
    out: Any = _run(model, example)
    if not (isinstance(out, Tensor) and out.ndim == 2 and len(out) == len(example)):
        got = f"a tensor {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"A network must return logits [N, C], not {got}: wrap it in a module that returns only these."
        )
    return out


def example_for(model: nn.Module) -> Tensor:
    """Returns three random images that the model takes, by its first layer and the usual sizes."""
    shapes: list[tuple[int, int, int]] = []
    first = next((m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))), None)
    if isinstance(first, nn.Conv2d):
        shapes = [(first.in_channels, side, side) for side in SIDES]
    elif first is not None:
        # A linear layer sees all pixels of grey or colour images.
        sides = {channels: math.isqrt(first.in_features // channels) for channels in (1, 3)}
        shapes = [(c, side, side) for c, side in sides.items() if c * side * side == first.in_features]
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        batch = torch.rand(3, *shape, generator=generator).to(device=like.device, dtype=like.dtype)
        try:
            _run(model, batch)
        except (RuntimeError, ValueError, TypeError, IndexError):  # not a size for this network
            continue
        return batch
    raise ConfigError(
        f"The size of the images cannot be seen from the first layer of {type(model).__name__}: pass a batch "
        "of its images as `example`."
    )


def _run(model: nn.Module, x: Tensor) -> Tensor:
    with temporary_mode(model, training=False), torch.no_grad():
        out: Tensor = model(x)
    return out
