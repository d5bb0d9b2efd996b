"""Separately trained networks become the heads of one network, without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from smoothheads.checkpoint.weights import Checkpoint
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig

State = dict[str, Tensor]


def join(members: Sequence[Checkpoint]) -> tuple[MultiHead, RunConfig]:
    """A network with the heads of all members, whose logits are the members' to the bit, and its description.

    The heads share nothing (the cut is `input`), so every head of a multi-head member gets a copy of its
    trunk; a single member stays as it is. What else the description says is the first member's. Raises
    CheckpointError unless all have one architecture, one sigma and images and classes of one kind.
    """
    first = members[0]
    for number, member in enumerate(members[1:], start=2):
        _require_alike(first, member, number)
    if len(members) == 1:
        return first.model, first.config
    heads = [head for member in members for head in _heads(member.model)]
    config = _describe(first.config.model.arch, heads)
    info = first.info
    model = build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    model.load_state_dict(_state(heads, config))
    return model.eval(), replace(first.config, model=config, init=None, init_sha256=None)


def differing(one: DataInfo, other: DataInfo) -> tuple[str, str, str] | None:
    """The first fact about the images that a network cannot overlook: what, the one's, the other's."""
    for what, a, b in (
        ("shape", one.shape, other.shape),
        ("grid", one.grid.max_value, other.grid.max_value),
        ("classes", one.classes, other.classes),
        ("class names", one.class_names, other.class_names),
    ):
        if a != b:
            return what, str(a), str(b)
    return None


def _require_alike(first: Checkpoint, member: Checkpoint, number: int) -> None:
    images = differing(first.info, member.info)
    for what, a, b in (
        ("architecture", first.config.model.arch, member.config.model.arch),
        ("sigma", f"{first.config.train.sigma:g}", f"{member.config.train.sigma:g}"),
        *([images] if images else []),
    ):
        if a != b:
            raise CheckpointError(
                f"members of one {what} ({a})", f"{b} in member {number}", "join what belongs together"
            )


def _heads(model: MultiHead) -> list[tuple[State, State]]:
    """Of each head the normalisation, empty if there is none, and the whole network behind it."""
    state = model.state_dict()
    parts = []
    for k in range(len(model.heads)):
        network = _below(state, "trunk.") | _below(state, f"heads.{k}.")
        normalize = _below(network, "normalize.") or _below(state, "normalize.")
        parts.append((normalize, {n: v for n, v in network.items() if not n.startswith("normalize.")}))
    return parts


def _below(state: Mapping[str, Tensor], prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _describe(arch: str, heads: Sequence[tuple[State, State]]) -> ModelConfig:
    first = heads[0][0]
    alike = all(_equal(normalize, first) for normalize, _ in heads)
    return ModelConfig(
        arch=arch,
        heads=len(heads),
        cut="input",
        normalize=not alike or bool(first),
        normalize_heads=not alike,
    )


def _equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _state(heads: Sequence[tuple[State, State]], config: ModelConfig) -> State:
    state = {
        f"heads.{k}.{name}": value for k, (_, network) in enumerate(heads) for name, value in network.items()
    }
    if not config.normalize_heads:
        return state | {f"normalize.{name}": value for name, value in heads[0][0].items()}
    like = next(normalize for normalize, _ in heads if normalize)
    neutral = {"mean": torch.zeros_like(like["mean"]), "std": torch.ones_like(like["std"])}  # changes no bit
    for k, (normalize, _) in enumerate(heads):
        state |= {f"heads.{k}.normalize.{name}": value for name, value in (normalize or neutral).items()}
    return state
