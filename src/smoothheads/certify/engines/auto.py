"""Settings that are `auto` become definite by a short trial on this machine.

The choice decides which function is certified (engines round differently), so it is made once, before the
manifest is written, and a run that is continued takes the stored one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Engine, Network
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
PREFERENCE: Final = ("torch", "openvino", "onnxruntime")  # the first one is taken for short runs

Clock: TypeAlias = Callable[[], float]


@ENGINES.register
class AutoEngine(Engine):
    """The fastest engine that is installed and takes this network, by a trial.

    `resolve` replaces it, and nobody builds it.
    """

    name: ClassVar[str] = "auto"
    parameters: ClassVar[Mapping[str, Any]] = {"device": "cpu", "compile": False, "blocks_per_pass": "auto"}
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16", "int8")


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
        config.changed(engine=name, blocks_per_pass=blocks) for name in sorted(names, key=PREFERENCE.index)
    ]


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
    notes: list[str] = []
    counters: list[tuple[CertifyConfig, VoteCounter]] = []
    for candidate in candidates(config):
        smallest = _with_one_block(candidate)
        try:
            counter = _build(smallest, network)
        except (ConfigError, SoundnessError) as error:
            notes.append(f"engine {candidate.engine} left out: {error}")
            continue
        # Step 1: a short run takes the first engine as it is.
        if samples and config.engine == "auto" and not counters and not notes:
            _time_pass(counter, network, 0, clock)  # warms up
            seconds = samples * _time_pass(counter, network, 1, clock) / config.block
            if seconds < SHORT_SECONDS:
                note = f"a run of about {duration(seconds)} is too short for a trial"
                return Resolved(smallest, counter, (f"engine {smallest.engine}: {note}",))
        counters.append((candidate, counter))
    if not counters:
        raise ConfigError(f"No engine takes this network: {'; '.join(notes)}")
    # Step 2: the engine with the fastest block.
    seconds_of = trial([counter for _, counter in counters], network, clock)
    best = min(range(len(counters)), key=seconds_of.__getitem__)
    chosen, counter = counters[best]
    if config.engine == "auto":
        rates = [config.block / seconds for seconds in seconds_of]
        speeds = ", ".join(
            f"{each.engine} {rate:,.0f}" for (each, _), rate in zip(counters, rates, strict=True)
        )
        others = rates[:best] + rates[best + 1 :]
        gain = f", {rates[best] / max(others):.2f} times as fast as the next" if others else ""
        notes.append(f"engine {chosen.engine}, {chosen.precision}{gain} (votes/s in a trial: {speeds})")
    # Step 3: larger passes, as long as they pay.
    if chosen.blocks_per_pass == "auto":
        chosen, counter, note = _enlarge(_with_one_block(chosen), counter, seconds_of[best], network, clock)
        notes.append(note)
    return Resolved(chosen, counter, tuple(notes))


def trial(counters: Sequence[VoteCounter], network: Network, clock: Clock = time.perf_counter) -> list[float]:
    """Returns the seconds per block of each; they take turns, so that a busy moment hits all alike."""
    taken: list[list[float]] = [[] for _ in counters]
    turn = 0
    # At least two turns after the first, and as many as fit into the time.
    while turn < 3 or max(sum(times[1:]) for times in taken) < TRIAL_SECONDS:
        for counter, times in zip(counters, taken, strict=True):
            times.append(_time_pass(counter, network, turn, clock))
        turn += 1
    # The first turn warms up.
    return [min(times[1:]) / each.blocks_per_pass for each, times in zip(counters, taken, strict=True)]


def _time_pass(counter: VoteCounter, network: Network, number: int, clock: Clock) -> float:
    """Returns the seconds of one pass on a blank image."""
    started, blocks = clock(), counter.blocks_per_pass
    blank = np.zeros(network.info.shape, dtype=np.uint8)
    counter.votes(blank, 0, Phase.PILOT, number * blocks, blocks * counter.noise.block_size)
    return clock() - started


def _enlarge(
    config: CertifyConfig, counter: VoteCounter, per_block: float, network: Network, clock: Clock
) -> tuple[CertifyConfig, VoteCounter, str]:
    """Returns the settings and the counter with ever larger passes, as long as that pays, and a note."""
    seconds = {1: per_block}
    for size in BLOCKS_PER_PASS:
        last = max(seconds)
        # A pass that takes long has nothing to gain from being larger.
        if last * seconds[last] > LONG_PASS:
            break
        larger_config = config.changed(blocks_per_pass=size)
        larger = _build(larger_config, network)
        try:
            before, after = trial([counter, larger], network, clock)
        except SoundnessError:  # its rounding depends on what else is in the pass
            break
        # The gain must be worth the memory.
        if before < LARGER_GAIN * after:
            break
        seconds[last], seconds[size], config, counter = before, after, larger_config, larger
    speeds = ", ".join(f"{blocks}: {config.block / each:,.0f}" for blocks, each in seconds.items())
    return config, counter, f"blocks_per_pass {max(seconds)} (votes/s in a trial: {speeds})"


def _build(config: CertifyConfig, network: Network) -> VoteCounter:
    return VoteCounter(ENGINES.get(config.engine)(config, network), network.noise, config)


def _with_one_block(config: CertifyConfig) -> CertifyConfig:
    return config.changed(blocks_per_pass=1) if config.blocks_per_pass == "auto" else config
