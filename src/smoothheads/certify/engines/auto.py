"""Settings that are `auto` become definite by a short trial on this machine.

The choice decides which function is certified (engines round differently), so it is made once, before the
manifest is written, and a run that is continued takes the stored one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Engine, Floats, Network
from smoothheads.certify.votes import VoteCounter
from smoothheads.errors import ConfigError, SoundnessError, duration
from smoothheads.types import Phase

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig

SHORT_SECONDS: Final = 60.0  # a whole run below this is over before a trial has paid for itself
TRIAL_SECONDS: Final = 1.0  # for each engine, and at least two passes
BLOCKS_PER_PASS: Final = (4, 16)  # that are tried, as long as that pays
LARGER_GAIN: Final = 1.05  # how much faster a larger pass must be, as it needs more memory
LONG_PASS: Final = 0.1  # seconds from which on the network is busy with the samples, not with itself

Clock: TypeAlias = Callable[[], float]


@ENGINES.register
class AutoEngine(Engine):
    """The fastest engine that is installed and takes this network, by a trial; `resolve` replaces it."""

    name: ClassVar[str] = "auto"
    parameters: ClassVar[Mapping[str, Any]] = {"device": "cpu", "compile": False, "blocks_per_pass": "auto"}
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16", "int8")

    def __init__(self, config: CertifyConfig, network: Network) -> None:  # noqa: ARG002
        raise ConfigError(f"Engine {config.engine} stands for others: call resolve first.")

    def logits(self, samples_NCHW: Floats) -> Floats:
        raise NotImplementedError

    def fingerprint(self) -> str:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        raise NotImplementedError


class Resolved(NamedTuple):
    config: CertifyConfig
    """Definite settings: no `auto` any more."""
    counter: VoteCounter
    notes: tuple[str, ...]
    """Reasons of the choice, for the user to read."""


def candidates(config: CertifyConfig) -> list[CertifyConfig]:
    """Returns the settings between which a trial chooses: one for every engine that takes part."""
    if config.engine != "auto":
        return [config]
    blocks = config.blocks_per_pass or "auto"
    names = [name for name, engine in ENGINES.items() if engine.is_candidate(config)]
    return [
        config.changed(engine=name, blocks_per_pass=blocks) for name in sorted(names, key=_PREFERENCE.index)
    ]


_PREFERENCE: Final = ("torch", "openvino", "onnxruntime")


def resolve(
    config: CertifyConfig, network: Network, *, samples: int = 0, clock: Clock = time.perf_counter
) -> Resolved:
    """Returns definite settings with their engine: the fastest that is installed and takes this network.

    Args:
        config: Settings, of which some may be `auto`.
        network: The network to compute.
        samples: Samples of the whole run, about; a short run takes the first engine without a trial.
        clock: Seconds, for tests.
    """
    if not config.has_auto:
        return Resolved(config, _build(config, network), ())
    if samples and config.engine == "auto" and (short := _resolve_short(config, network, samples, clock)):
        return short
    notes: list[str] = []
    counters: list[tuple[CertifyConfig, VoteCounter]] = []
    for candidate in candidates(config):
        try:
            counters.append((candidate, _build(_smallest(candidate), network)))
        except (ConfigError, SoundnessError) as error:
            notes.append(f"engine {candidate.engine} left out: {error}")
    if not counters:
        raise ConfigError(f"No engine takes this network: {'; '.join(notes)}")
    seconds = trial([counter for _, counter in counters], network, clock)
    best = min(range(len(counters)), key=seconds.__getitem__)
    (chosen, counter), per_block = counters[best], seconds[best]
    if config.engine == "auto":
        rates = {each.engine: config.block / took for (each, _), took in zip(counters, seconds, strict=True)}
        notes.append(_compare(chosen, rates))
    if chosen.blocks_per_pass == "auto":
        chosen, counter, note = _enlarge(_smallest(chosen), counter, per_block, network, clock)
        notes.append(note)
    return Resolved(chosen, counter, tuple(notes))


def trial(counters: Sequence[VoteCounter], network: Network, clock: Clock = time.perf_counter) -> list[float]:
    """Returns the seconds per block of each; they take turns, so that a busy moment hits all alike."""
    image = np.zeros(network.info.shape, dtype=np.uint8)
    taken: list[list[float]] = [[] for _ in counters]
    turn = 0
    while turn < 3 or max(sum(times[1:]) for times in taken) < TRIAL_SECONDS:
        for counter, times in zip(counters, taken, strict=True):
            started, blocks = clock(), counter.blocks_per_pass
            counter.votes(image, 0, Phase.PILOT, turn * blocks, blocks * counter.noise.block_size)
            times.append(clock() - started)
        turn += 1
    # The first turn warms up.
    return [min(times[1:]) / each.blocks_per_pass for each, times in zip(counters, taken, strict=True)]


def _resolve_short(config: CertifyConfig, network: Network, samples: int, clock: Clock) -> Resolved | None:
    """Returns the first engine as it is, for a run that is over before a trial has paid for itself."""
    first = _smallest(candidates(config)[0])
    try:
        counter = _build(first, network)
    except (ConfigError, SoundnessError):
        return None
    blank = np.zeros(network.info.shape, dtype=np.uint8)
    for block in range(2):  # the first one warms up
        started = clock()
        counter.votes(blank, 0, Phase.PILOT, block, config.block)
    seconds = samples * (clock() - started) / config.block
    if seconds >= SHORT_SECONDS:
        return None
    note = f"engine {first.engine}: a run of about {duration(seconds)} is too short for a trial"
    return Resolved(first, counter, (note,))


def _enlarge(
    config: CertifyConfig, counter: VoteCounter, per_block: float, network: Network, clock: Clock
) -> tuple[CertifyConfig, VoteCounter, str]:
    """Returns the settings and the counter with ever larger passes, as long as that pays, and a note."""
    seconds = {1: per_block}
    for size in BLOCKS_PER_PASS:
        last = max(seconds)
        if last * seconds[last] > LONG_PASS:
            break
        larger_config = config.changed(blocks_per_pass=size)
        larger = _build(larger_config, network)
        try:
            before, after = trial([counter, larger], network, clock)
        except SoundnessError:  # its rounding depends on what else is in the pass
            break
        if before < LARGER_GAIN * after:
            break
        seconds[last], seconds[size], config, counter = before, after, larger_config, larger
    speeds = ", ".join(f"{blocks}: {config.block / each:,.0f}" for blocks, each in seconds.items())
    return config, counter, f"blocks_per_pass {max(seconds)} (votes/s in a trial: {speeds})"


def _build(config: CertifyConfig, network: Network) -> VoteCounter:
    return VoteCounter(ENGINES.get(config.engine)(config, network), network.noise, config)


def _smallest(config: CertifyConfig) -> CertifyConfig:
    return config.changed(blocks_per_pass=1) if config.blocks_per_pass == "auto" else config


def _compare(chosen: CertifyConfig, rates: Mapping[str, float]) -> str:
    speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    others = [rate for name, rate in rates.items() if name != chosen.engine]
    gain = f", {rates[chosen.engine] / max(others):.2f} times as fast as the next" if others else ""
    return f"engine {chosen.engine}, {chosen.precision}{gain} (votes/s in a trial: {speeds})"
