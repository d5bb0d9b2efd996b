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
    # Split every member into its heads: their normalisation, and trunk and head as one network.
    heads: list[tuple[State, State]] = []
    for member in members:
        state = member.model.state_dict()
        for k in range(len(member.model.heads)):
            network = _below(state, "trunk.") | _below(state, f"heads.{k}.")
            normalize = _below(network, "normalize.") or _below(state, "normalize.")
            layers = {name: value for name, value in network.items() if not name.startswith("normalize.")}
            heads.append((normalize, layers))
    # One normalisation in front of all heads if they agree, else one inside each head.
    shared = heads[0][0]
    alike = all(
        normalize.keys() == shared.keys()
        and all(torch.equal(normalize[name], shared[name]) for name in shared)
        for normalize, _ in heads
    )
    # A network of the same architecture, cut at the input, takes all weights under their new names.
    config = ModelConfig(
        arch=first.config.model.arch,
        heads=len(heads),
        cut="input",
        normalize=not alike or bool(shared),
        normalize_heads=not alike,
    )
    info = first.info
    model = build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    state = {
        f"heads.{k}.{name}": value for k, (_, layers) in enumerate(heads) for name, value in layers.items()
    }
    if alike:
        state |= {f"normalize.{name}": value for name, value in shared.items()}
    else:
        like = next(normalize for normalize, _ in heads if normalize)
        neutral = {
            "mean": torch.zeros_like(like["mean"]),
            "std": torch.ones_like(like["std"]),
        }  # changes no bit
        for k, (normalize, _) in enumerate(heads):
            state |= {f"heads.{k}.normalize.{name}": value for name, value in (normalize or neutral).items()}
    model.load_state_dict(state)
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
