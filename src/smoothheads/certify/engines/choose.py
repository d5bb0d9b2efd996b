"""Settings that say `auto` become settings that say what: by a short trial on this machine, here and now.

The choice decides which function is certified (engines round differently), so it is made once, before the
manifest is written, and a run that goes on takes the stored one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

Clock = Callable[[], float]
Name = Literal["torch", "openvino"]


@dataclass(frozen=True, slots=True)
class Choice:
    config: CertifyConfig
    notes: tuple[str, ...] = ()
    """Why, for the user to read."""


def undecided(config: CertifyConfig) -> bool:
    return "auto" in (config.engine, config.compile, config.grouped)


def as_stored(config: CertifyConfig, stored: Mapping[str, Any]) -> CertifyConfig:
    """What `auto` was the first time, from the settings in a manifest."""
    keys = ("engine", "compile", "grouped")
    known = {key: stored.get(key) for key in keys if getattr(config, key) == "auto"}
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
    for name in _candidates(config):
        try:
            tried = replace(config, engine=name, compile="off", grouped="off")
            engines[name] = make_engine(tried, model, info, noise, artefacts=artefacts, training=training)
        except (ConfigError, SoundnessError) as error:  # of a lazy consensus: not to the bit on this engine
            notes.append(f"engine {name} left out: {error}")
    if not engines:
        raise ConfigError("an engine for this network", "; ".join(notes), "choose engine and precision")
    seconds = dict(zip(engines, trial(list(engines.values()), info, clock), strict=True))
    fastest = min(seconds, key=seconds.__getitem__)
    if config.engine == "auto":
        speeds = [f"{name} {noise.block_size / seconds[name]:,.0f}" for name in seconds]
        notes.append(f"engine {fastest}, {config.precision} (votes/s in a trial: {', '.join(speeds)})")
    grouped = _plain(config.grouped)
    if config.grouped == "auto" and fastest == "torch":
        faster = faster_heads(model, info.shape, noise.block_size, clock=clock) is not model
        grouped = "on" if faster else "off"
        notes.append(
            f"grouped {grouped}: measured {'faster than' if faster else 'no faster than'} a loop over heads"
        )
    config = replace(config, engine=fastest, grouped=grouped)
    if fastest == "openvino" or config.compile != "auto":
        return Choice(replace(config, compile=_plain(config.compile)), tuple(notes))
    total = images * (config.n0 + config.n) * seconds[fastest] / noise.block_size
    worth, note = _worth_compiling(model, total)
    return Choice(replace(config, compile="on" if worth else "off"), (*notes, note))


def trial(engines: Sequence[Engine], info: DataInfo, clock: Clock = time.perf_counter) -> list[float]:
    """Seconds per block of each, in turns so that a busy moment hits all; the first turn warms up."""
    image = np.zeros(info.shape, dtype=np.uint8)
    taken: list[list[float]] = [[] for _ in engines]
    turn = 0
    while turn < 3 or max(sum(each[1:]) for each in taken) < TRIAL_SECONDS:
        for engine, times in zip(engines, taken, strict=True):
            started = clock()
            engine.votes(image, 0, Phase.PILOT, turn, engine.noise.block_size)
            times.append(clock() - started)
        turn += 1
    return [min(times[1:]) for times in taken]


def _candidates(config: CertifyConfig) -> list[Name]:
    if config.engine != "auto":
        return [config.engine]
    if config.precision == "int8":
        return ["openvino"]
    return ["torch", "openvino"] if config.device == "cpu" and extra.installed() else ["torch"]


def _plain(setting: str) -> Literal["on", "off"]:
    return "on" if setting == "on" else "off"


def _worth_compiling(model: MultiHead, seconds: float) -> tuple[bool, str]:
    layers = sum(isinstance(module, (*CONVOLUTIONS, nn.Linear)) for module in model.modules())
    cost = COMPILE_SECONDS + COMPILE_LAYER_SECONDS * layers
    saved = seconds * (1 - 1 / COMPILE_GAIN)
    verdict = "on" if saved > cost else "off"
    note = (
        f"compile {verdict}: it would take about {cost:.0f} s and save about {saved:.0f} s of {seconds:.0f} s"
    )
    return saved > cost, note
