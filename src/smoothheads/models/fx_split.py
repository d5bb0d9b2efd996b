"""Cuts a traceable module in two with torch.fx; every value that is still needed crosses the cut.

torch.fx.passes.split_module is no substitute: it renames submodules (`layer1.0` to `layer1_0`), under which
no weights would load, and gives a head one argument per value.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch import Tensor, fx, nn

from smoothheads.errors import ConfigError, reason
from smoothheads.models.mode import borrowed_mode

ADVICE = "pass the trunk itself as the model, with cut=None and a head_factory"


def fx_split(model: nn.Module, cut: str) -> tuple[nn.Module, nn.Module]:
    """Trunk (up to the last call of the submodule `cut`) and head, which use the model's own submodules.

    Only the forward methods of modules that contain the cut are traced; all others stay whole, whatever their
    code does. Optional arguments of the model take their defaults.
    """
    nodes = list(_trace(model, cut).nodes)
    calls = [i for i, node in enumerate(nodes) if node.op == "call_module" and node.target == cut]
    if not calls:
        raise ConfigError(f"a model whose forward calls {cut!r}", "one that does not", "choose another cut")
    before, after = nodes[: calls[-1] + 1], nodes[calls[-1] + 1 :]
    live = [node for node in before if node.op != "get_attr" and _used_by(node, after)]
    return _trunk(model, before, live), _head(model, before, after, live)


class _OneInput(nn.Module):
    """Calls the model as users do, so that its optional arguments are their defaults and not inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> object:
        return self.model(x)


class _PathTracer(fx.Tracer):
    def __init__(self, cut: str) -> None:
        super().__init__()
        self.cut = cut

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return not f"model.{self.cut}".startswith(f"{module_qualified_name}.")


def _trace(model: nn.Module, cut: str) -> fx.Graph:
    """The graph, with names relative to the model; refused if training takes another way than evaluation."""
    graphs = {}
    for training in (True, False):
        with borrowed_mode(model, training=training):
            try:
                graphs[training] = _PathTracer(cut).trace(_OneInput(model))
            except Exception as error:  # whatever the model's code raises when it meets a symbolic value
                raise ConfigError(
                    f"a forward that torch.fx can trace down to {cut!r}",
                    reason(error),
                    f"code that looks at the data cannot be cut; {ADVICE}",
                ) from error
    if str(graphs[True]) != str(graphs[False]):
        raise ConfigError(
            "the same steps in training and evaluation",
            "a forward that reads self.training itself",
            f"use modules such as nn.Dropout for that; or {ADVICE}",
        )
    for node in graphs[False].nodes:
        if node.op in ("call_module", "get_attr"):
            node.target = str(node.target).removeprefix("model.")
    return graphs[False]


def _used_by(node: fx.Node, others: Sequence[fx.Node]) -> bool:
    return not node.users.keys().isdisjoint(others)


def _trunk(model: nn.Module, before: Sequence[fx.Node], live: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in before:
        if node.op != "get_attr" or _used_by(node, before):
            new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(new[live[0]] if len(live) == 1 else tuple(new[node] for node in live))
    return fx.GraphModule(model, graph, "Trunk")


def _head(
    model: nn.Module, before: Sequence[fx.Node], after: Sequence[fx.Node], live: Sequence[fx.Node]
) -> fx.GraphModule:
    graph = fx.Graph()
    features = graph.placeholder("features")
    new: dict[fx.Node, fx.Node] = {}
    for position, node in enumerate(live):
        alone = len(live) == 1
        new[node] = features if alone else graph.call_function(operator.getitem, (features, position))
    attributes = [node for node in before if node.op == "get_attr" and _used_by(node, after)]
    for node in [*attributes, *after]:
        new[node] = graph.node_copy(node, new.__getitem__)
    return fx.GraphModule(model, graph, "Head")
