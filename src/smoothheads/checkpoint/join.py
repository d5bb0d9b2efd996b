"""Separately trained networks become the heads of one network, without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from smoothheads.checkpoint import Checkpoint
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig

State = dict[str, Tensor]


def join(members: Sequence[Checkpoint]) -> tuple[MultiHead, RunConfig]:
    """Returns a network with the heads of all members, whose logits are theirs to the bit, and its
    configuration.

    The heads share nothing (the cut is `input`), so that every head of a multi-head member gets a copy of its
    trunk; a single member stays as it is. Everything but the network is described as for the first member.
    Raises CheckpointError unless all have one architecture, one sigma, and images and classes of one kind.
    """
    # Logits can only be averaged if all members see the same images and noise, and mean the same classes.
    first = members[0]
    for number, member in enumerate(members[1:], start=2):
        images = differing(first.info, member.info)
        for fact, a, b in (
            ("architecture", first.config.model.arch, member.config.model.arch),
            ("sigma", f"{first.config.train.sigma:g}", f"{member.config.train.sigma:g}"),
            *([images] if images else []),
        ):
            if a != b:
                raise CheckpointError(
                    f"The members must have the same {fact}: member 1 has {a} and member {number} has {b}."
                )
    if len(members) == 1:
        return first.model, first.config
    # Every head as a network of its own: the normalisation (its own, else that in front), trunk and head.
    heads: list[State] = []
    for member in members:
        state = member.model.state_dict()
        front = {f"normalize.{name}": value for name, value in _below(state, "normalize.").items()}
        trunk = _below(state, "trunk.")
        heads += [front | trunk | _below(state, f"heads.{k}.") for k in range(len(member.model.heads))]
    # One normalisation in front of all heads if they agree, else one inside each head.
    norms = [_below(head, "normalize.") for head in heads]
    alike = all(
        norm.keys() == norms[0].keys() and all(torch.equal(norm[name], norms[0][name]) for name in norm)
        for norm in norms
    )
    # A network of the same architecture, cut at the input, takes all weights under their new names.
    config = ModelConfig(
        arch=first.config.model.arch,
        heads=len(heads),
        cut="input",
        normalize=any(norms),
        normalize_heads=not alike,
    )
    info = first.info
    model = build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    joined: State = {}
    for k, head in enumerate(heads):
        for name, value in head.items():
            in_front = alike and name.startswith("normalize.")
            joined[name if in_front else f"heads.{k}.{name}"] = value
    # A head without normalisation among others gets one that changes no bit.
    for name, value in model.state_dict().items():
        if ".normalize." in name:
            joined.setdefault(
                name, torch.zeros_like(value) if name.endswith("mean") else torch.ones_like(value)
            )
    model.load_state_dict(joined)
    return model.eval(), replace(first.config, model=config, init=None)


def differing(one: DataInfo, other: DataInfo) -> tuple[str, str, str] | None:
    """Returns the first fact about the images that a network cannot overlook, with both values, or None.

    Class k must mean the same in both; where one side only numbers its classes, nothing can be said.
    """
    facts: list[tuple[str, object, object]] = [
        ("shape", one.shape, other.shape),
        ("grid", one.grid.max_value, other.grid.max_value),
        ("number of classes", one.classes, other.classes),
    ]
    numbers = tuple(map(str, range(one.classes)))
    if numbers not in (one.class_names, other.class_names):
        pairs = enumerate(zip(one.class_names, other.class_names, strict=False))
        facts += [(f"name of class {k}", *pair) for k, pair in pairs]
    return next(((fact, str(a), str(b)) for fact, a, b in facts if a != b), None)


def _below(state: Mapping[str, Tensor], prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
