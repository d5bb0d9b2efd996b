"""Settings that say `auto` become settings that say what: by a short trial on this machine, here and now.

The choice decides which function is certified (engines round differently), so it is made once, before the
manifest is written, and a run that goes on takes the stored one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from torch import nn

from smoothheads.certify.engines import extra
from smoothheads.certify.engines.base import Engine
from smoothheads.certify.engines.convert import Training
from smoothheads.certify.engines.factory import make_engine
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.cost import CONVOLUTIONS
from smoothheads.models.grouped import faster_heads
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Phase

TRIAL_SECONDS: Final = 1.0  # of each engine, and at least two blocks
COMPILE_SECONDS, COMPILE_LAYER_SECONDS = 10.0, 0.6  # measured on networks of 12 to 54 layers
COMPILE_GAIN: Final = 1.15  # measured: 1.0 (LeNet) to 1.25 (ResNet-8)

BLOCKS_PER_PASS: Final = (4, 16)  # that are tried, as long as that pays
LARGER_GAIN: Final = 1.05  # how much faster a larger pass must be, as it needs more memory
LONG_PASS: Final = 0.1  # seconds from which on the network is busy with the copies, not with itself

_CHOICES: Final = ("engine", "compile", "grouped", "blocks_per_pass")  # what may say auto

Clock = Callable[[], float]
Name = Literal["torch", "openvino"]


@dataclass(frozen=True, slots=True)
class Choice:
    config: CertifyConfig
    notes: tuple[str, ...] = ()
    """Why, for the user to read."""


def undecided(config: CertifyConfig) -> bool:
    return any(getattr(config, key) == "auto" for key in _CHOICES)


def as_stored(config: CertifyConfig, stored: Mapping[str, Any]) -> CertifyConfig:
    """What `auto` was the first time, from the settings in a manifest."""
    known = {key: stored.get(key) for key in _CHOICES if getattr(config, key) == "auto"}
    return replace(config, **known) if all(known.values()) else config  # type: ignore[arg-type]


def choose(
    config: CertifyConfig,
    model: MultiHead,
    info: DataInfo,
    noise: Noise,
    *,
    images: int = 1,
    artefacts: Path | None = None,
    training: Training | None = None,
    clock: Clock = time.perf_counter,
) -> Choice:
    """The fastest engine that is installed and takes this network; compiled, if `images` are worth it."""
    notes: list[str] = []
    engines: dict[Name, Engine] = {}
    first = 1 if config.blocks_per_pass == "auto" else config.blocks_per_pass

    def make(name: Name, blocks_per_pass: int) -> Engine:
        tried = replace(config, engine=name, compile="off", grouped="off", blocks_per_pass=blocks_per_pass)
        return make_engine(tried, model, info, noise, artefacts=artefacts, training=training)

    for name in _candidates(config):
        try:
            engines[name] = make(name, first)
        except (ConfigError, SoundnessError) as error:  # of a lazy consensus: not to the bit on this engine
            notes.append(f"engine {name} left out: {error}")
    if not engines:
        raise ConfigError("an engine for this network", "; ".join(notes), "choose engine and precision")
    seconds = dict(zip(engines, trial(list(engines.values()), info, clock), strict=True))
    fastest = min(seconds, key=seconds.__getitem__)
    if config.engine == "auto":
        speeds = [f"{name} {noise.block_size / seconds[name]:,.0f}" for name in seconds]
        notes.append(f"engine {fastest}, {config.precision} (votes/s in a trial: {', '.join(speeds)})")
    blocks, per_block = first, seconds[fastest]
    if config.blocks_per_pass == "auto":
        sizes = _larger(partial(make, fastest), engines[fastest], per_block, info, clock)
        blocks = max(sizes)
        per_block = sizes[blocks]
        speeds = [f"{size}: {noise.block_size / each:,.0f}" for size, each in sizes.items()]
        notes.append(f"blocks_per_pass {blocks} (votes/s in a trial: {', '.join(speeds)})")
    grouped = _plain(config.grouped)
    if config.grouped == "auto" and fastest == "torch":
        grouped, note = _grouped(model, info, blocks * noise.block_size, clock)
        notes.append(note)
    config = replace(config, engine=fastest, grouped=grouped, blocks_per_pass=blocks)
    if fastest == "openvino" or config.compile != "auto":
        return Choice(replace(config, compile=_plain(config.compile)), tuple(notes))
    total = images * (config.n0 + config.n) * per_block / noise.block_size
    worth, note = _worth_compiling(model, total)
    return Choice(replace(config, compile="on" if worth else "off"), (*notes, note))


def trial(engines: Sequence[Engine], info: DataInfo, clock: Clock = time.perf_counter) -> list[float]:
    """Seconds per block of each, in turns so that a busy moment hits all; the first turn warms up."""
    image = np.zeros(info.shape, dtype=np.uint8)
    taken: list[list[float]] = [[] for _ in engines]
    turn = 0
    while turn < 3 or max(sum(each[1:]) for each in taken) < TRIAL_SECONDS:
        for engine, times in zip(engines, taken, strict=True):
            started, blocks = clock(), engine.blocks_per_pass
            engine.votes(image, 0, Phase.PILOT, turn * blocks, blocks * engine.noise.block_size)
            times.append(clock() - started)
        turn += 1
    pairs = zip(engines, taken, strict=True)
    return [min(times[1:]) / engine.blocks_per_pass for engine, times in pairs]


def _larger(
    make: Callable[[int], Engine], engine: Engine, per_block: float, info: DataInfo, clock: Clock
) -> dict[int, float]:
    """Seconds per block with ever larger passes; the last is the fastest."""
    found = {1: per_block}
    for size in BLOCKS_PER_PASS:
        last = max(found)
        if last * found[last] > LONG_PASS:
            break
        larger = make(size)
        try:
            before, after = trial([engine, larger], info, clock)
        except SoundnessError:  # its rounding depends on what else is in the pass
            break
        if before < LARGER_GAIN * after:
            break
        found[last], found[size], engine = before, after, larger
    return found


def _candidates(config: CertifyConfig) -> list[Name]:
    if config.engine != "auto":
        return [config.engine]
    if config.precision == "int8":
        return ["openvino"]
    return ["torch", "openvino"] if config.device == "cpu" and extra.installed() else ["torch"]


def _plain(setting: str) -> Literal["on", "off"]:
    return "on" if setting == "on" else "off"


def _grouped(model: MultiHead, info: DataInfo, copies: int, clock: Clock) -> tuple[Literal["on", "off"], str]:
    if faster_heads(model, info.shape, copies, clock=clock) is model:
        return "off", "grouped off: measured no faster than a loop over heads"
    return "on", "grouped on: measured faster than a loop over heads"


def _worth_compiling(model: MultiHead, seconds: float) -> tuple[bool, str]:
    layers = sum(isinstance(module, (*CONVOLUTIONS, nn.Linear)) for module in model.modules())
    cost = COMPILE_SECONDS + COMPILE_LAYER_SECONDS * layers
    saved = seconds * (1 - 1 / COMPILE_GAIN)
    verdict = "on" if saved > cost else "off"
    note = (
        f"compile {verdict}: it would take about {cost:.0f} s and save about {saved:.0f} s of {seconds:.0f} s"
    )
    return saved > cost, note
