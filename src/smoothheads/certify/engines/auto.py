"""Settings that say `auto` become settings that say what: by a short trial on this machine, here and now.

The choice decides which function is certified (engines round differently), so it is made once, before the
manifest is written, and a run that goes on takes the stored one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np

from smoothheads.certify.engines.base import ENGINES, Engine, EngineConfig, Network, check_float16
from smoothheads.errors import ConfigError, SoundnessError, duration
from smoothheads.types import Phase

SHORT_SECONDS: Final = 60.0  # of a whole run; a shorter one is over before a trial has paid for itself
TRIAL_SECONDS: Final = 1.0  # of each engine, and at least two blocks
BLOCKS_PER_PASS: Final = (4, 16)  # that are tried, as long as that pays
LARGER_GAIN: Final = 1.05  # how much faster a larger pass must be, as it needs more memory
LONG_PASS: Final = 0.1  # seconds from which on the network is busy with the samples, not with itself

Clock = Callable[[], float]


@ENGINES.register
@dataclass(frozen=True, kw_only=True)
class Auto(EngineConfig):
    """The fastest engine that is installed and takes this network, by a trial."""

    name: ClassVar[str] = "auto"

    blocks_per_pass: int | Literal["auto"] = "auto"
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """Another precision is another base classifier. float16 is for cuda, int8 for openvino."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile: takes up to a minute; auto: where the run is long enough to pay for it."""
    lazy_consensus: bool = False
    """With the aggregation consensus-K: heads beyond the K-th only see samples on which the K disagree."""
    graphs: bool = True
    """On cuda: passes are recorded once and replayed."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_float16(self.precision, self.device)

    @property
    def undecided(self) -> bool:
        return True

    def candidates(self) -> list[EngineConfig]:
        offers = [engine.offer(self) for name, engine in ENGINES.items() if name != self.name]
        return [offer for offer in offers if offer is not None]

    def build(self, network: Network) -> Engine:
        return choose(self, network).config.build(network)


@dataclass(frozen=True, slots=True)
class Choice:
    config: EngineConfig
    notes: tuple[str, ...] = ()
    """Why, for the user to read."""


def choose(
    wanted: EngineConfig, network: Network, *, samples: int = 0, clock: Clock = time.perf_counter
) -> Choice:
    """The fastest engine that is installed and takes this network, set up for a run of so many samples."""
    if not wanted.undecided:
        return Choice(wanted)
    notes: list[str] = []
    engines: dict[EngineConfig, Engine] = {}
    if samples and isinstance(wanted, Auto) and (short := _short(wanted, network, samples, clock)):
        return short
    for candidate in wanted.candidates():
        try:
            engines[candidate] = _plain(candidate).build(network)
        except (ConfigError, SoundnessError) as error:  # of a lazy consensus: not to the bit on this engine
            notes.append(f"engine {candidate.name} left out: {error}")
    if not engines:
        raise ConfigError("an engine for this network", "; ".join(notes), "choose engine and precision")
    seconds = dict(zip(engines, trial(list(engines.values()), network, clock), strict=True))
    fastest = min(seconds, key=seconds.__getitem__)
    size = network.noise.block_size
    if fastest is not wanted:
        notes.append(_compared(fastest, {config.name: size / each for config, each in seconds.items()}))
    per_block, config = seconds[fastest], fastest
    if fastest.blocks_per_pass == "auto":
        sizes = _larger(fastest, engines[fastest], per_block, network, clock)
        config, per_block = replace(config, blocks_per_pass=max(sizes)), sizes[max(sizes)]
        speeds = [f"{blocks}: {size / each:,.0f}" for blocks, each in sizes.items()]
        notes.append(f"blocks_per_pass {max(sizes)} (votes/s in a trial: {', '.join(speeds)})")
    config, note = config.decide(network, samples * per_block / size)
    return Choice(config, (*notes, note) if note else tuple(notes))


def _short(wanted: Auto, network: Network, samples: int, clock: Clock) -> Choice | None:
    """The first engine as it is, for a run that is over before a trial has paid for itself."""
    first = _plain(wanted.candidates()[0])
    try:
        engine = first.build(network)
    except (ConfigError, SoundnessError):
        return None
    blank, size = np.zeros(network.info.shape, dtype=np.uint8), network.noise.block_size
    for block in range(2):  # the first one warms up
        started = clock()
        engine.votes(blank, 0, Phase.PILOT, block, size)
    seconds = samples * (clock() - started) / size
    if seconds >= SHORT_SECONDS:
        return None
    return Choice(
        first, (f"engine {first.name}: a run of about {duration(seconds)} is too short for a trial",)
    )


def trial(engines: Sequence[Engine], network: Network, clock: Clock = time.perf_counter) -> list[float]:
    """Seconds per block of each, in turns so that a busy moment hits all; the first turn warms up."""
    image = np.zeros(network.info.shape, dtype=np.uint8)
    taken: list[list[float]] = [[] for _ in engines]
    turn = 0
    while turn < 3 or max(sum(times[1:]) for times in taken) < TRIAL_SECONDS:
        for engine, times in zip(engines, taken, strict=True):
            started, blocks = clock(), engine.blocks_per_pass
            engine.votes(image, 0, Phase.PILOT, turn * blocks, blocks * engine.noise.block_size)
            times.append(clock() - started)
        turn += 1
    pairs = zip(engines, taken, strict=True)
    return [min(times[1:]) / engine.blocks_per_pass for engine, times in pairs]


def _larger(
    config: EngineConfig, engine: Engine, per_block: float, network: Network, clock: Clock
) -> dict[int, float]:
    """Seconds per block with ever larger passes; the last is the fastest."""
    seconds = {1: per_block}
    for size in () if getattr(config, "lazy_consensus", False) else BLOCKS_PER_PASS:
        last = max(seconds)
        if last * seconds[last] > LONG_PASS:
            break
        larger = replace(_plain(config), blocks_per_pass=size).build(network)
        try:
            before, after = trial([engine, larger], network, clock)
        except SoundnessError:  # its rounding depends on what else is in the pass
            break
        if before < LARGER_GAIN * after:
            break
        seconds[last], seconds[size], engine = before, after, larger
    return seconds


def _plain(config: EngineConfig) -> EngineConfig:
    """With everything that says `auto` as it costs least to set up."""
    changes: dict[str, object] = {"blocks_per_pass": 1} if config.blocks_per_pass == "auto" else {}
    if getattr(config, "compile", None) == "auto":
        changes["compile"] = "off"
    return replace(config, **changes)  # type: ignore[arg-type]


def _compared(fastest: EngineConfig, rates: dict[str, float]) -> str:
    """Which engine was taken and what it gains."""
    speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    others = [rate for name, rate in rates.items() if name != fastest.name]
    gain = f", {rates[fastest.name] / max(others):.2f} times as fast as the next" if others else ""
    precision = getattr(fastest, "precision", "float32")
    return f"engine {fastest.name}, {precision}{gain} (votes/s in a trial: {speeds})"
