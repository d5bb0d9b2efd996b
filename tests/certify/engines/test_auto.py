"""Engine auto chooses by a trial whose clock is a fake one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Network as EngineNetwork
from smoothheads.certify.engines import auto
from smoothheads.certify.engines import openvino as extra
from smoothheads.certify.engines.auto import Resolved, resolve
from smoothheads.certify.engines.torch import TorchEngine
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import Splits
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.smoothed import Smoothed
from smoothheads.types import Votes

from .builders import network_of

Network = Callable[..., MultiHead]
CONFIG = CertifyConfig(sigma=0.5, seed=0, block=20, engine="auto", blocks_per_pass=1)


class Clock:
    """Moves when a counter works, by what its pass is said to take."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds: dict[tuple[str, int], float | Exception] = {}
        """Of a pass, by engine and blocks per pass; or what building it raises."""

    def __call__(self) -> float:
        return self.now


class Paced(VoteCounter):
    clock: Clock
    seconds: float

    def votes(self, *arguments: Any) -> Votes:
        self.clock.now += self.seconds
        if self.seconds == 0:
            raise SoundnessError("A block depends on the other blocks: set blocks_per_pass to 1.")
        return super().votes(*arguments)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.seconds = {("torch", 1): 0.5, ("openvino", 1): 0.2}

    def build(config: CertifyConfig, network: EngineNetwork) -> VoteCounter:
        assert isinstance(config.blocks_per_pass, int)
        seconds = clock.seconds[config.engine, config.blocks_per_pass]
        if isinstance(seconds, Exception):
            raise seconds
        plain = config.changed(engine="torch")
        counter = Paced(TorchEngine(plain, network), network.noise, plain)
        counter.clock, counter.seconds = clock, seconds
        return counter

    monkeypatch.setattr(auto, "_build", build)
    monkeypatch.setattr(extra, "installed", lambda: True)
    return clock


@pytest.fixture
def network(tiny_network: Network, small_digits: Splits, noise: Noise) -> EngineNetwork:
    return network_of(tiny_network(), small_digits.train.info, noise)


def choose(clock: Clock, network: EngineNetwork, samples: int = 0, **changes: Any) -> Resolved:
    return resolve(CONFIG.changed(**changes), network, samples=samples, clock=clock)


def test_trial_takes_the_fastest_and_says_why(clock: Clock, network: EngineNetwork) -> None:
    chosen = choose(clock, network)
    assert chosen.config == CONFIG.changed(engine="openvino")
    assert chosen.notes == (
        "engine openvino, float32, 2.50 times as fast as the next "
        "(votes/s in a trial: torch 40, openvino 100)",
    )
    clock.seconds["openvino", 1] = 0.6
    assert choose(clock, network).config == CONFIG.changed(engine="torch")


def test_trial_without_the_extra_takes_torch(
    clock: Clock, network: EngineNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    assert choose(clock, network).config.engine == "torch"


def test_trial_leaves_out_an_engine_that_does_not_take_the_network(
    clock: Clock, network: EngineNetwork
) -> None:
    clock.seconds["openvino", 1] = ConfigError("OpenVINO cannot convert this network.")
    chosen = choose(clock, network)
    assert chosen.config.engine == "torch"
    assert chosen.notes[0] == "engine openvino left out: OpenVINO cannot convert this network."
    clock.seconds["torch", 1] = ConfigError("Neither can torch.")
    with pytest.raises(ConfigError, match=r"No engine takes this network: .*Neither can torch"):
        choose(clock, network)


@pytest.mark.parametrize(
    ("changes", "engines"),
    [
        ({}, ["torch", "openvino"]),
        ({"precision": "int8"}, ["openvino"]),
        ({"device": "cuda"}, ["torch"]),
        ({"compile": True}, ["torch"]),
        ({"precision": "float16", "device": "cuda"}, ["torch"]),
    ],
)
def test_candidates_compute_what_is_asked(clock: Clock, changes: dict[str, Any], engines: list[str]) -> None:
    assert [each.engine for each in auto.candidates(CONFIG.changed(**changes))] == engines


@pytest.mark.parametrize(
    ("passes", "chosen", "note"),
    [
        ({1: 0.01, 4: 0.02, 16: 0.04}, 16, "1: 2,000, 4: 4,000, 16: 8,000"),
        ({1: 0.01, 4: 0.02, 16: 0.079}, 4, "1: 2,000, 4: 4,000"),
        ({1: 0.01, 4: 0.04, 16: 0.01}, 1, "1: 2,000"),
        ({1: 0.01, 4: 0.0}, 1, "1: 2,000"),
        ({1: 0.2}, 1, "1: 100"),
    ],
)
def test_passes_grow_as_long_as_that_pays(
    clock: Clock, network: EngineNetwork, passes: dict[int, float], chosen: int, note: str
) -> None:
    """Seconds of a pass by its blocks; 0 stands for a size that is refused when it is probed."""
    clock.seconds = {("torch", blocks): seconds for blocks, seconds in passes.items()}
    found = choose(clock, network, engine="torch", blocks_per_pass="auto")
    assert found.config == CONFIG.changed(engine="torch", blocks_per_pass=chosen)
    assert found.notes == (f"blocks_per_pass {chosen} (votes/s in a trial: {note})",)


def test_short_run_takes_the_first_engine_without_a_trial(clock: Clock, network: EngineNetwork) -> None:
    short = choose(clock, network, samples=11 * 200)  # ten blocks an image at half a second
    assert short.config.engine == "torch"
    assert short.notes == ("engine torch: a run of about 55 s is too short for a trial",)
    assert choose(clock, network, samples=13 * 200).config.engine == "openvino"


def test_smoothed_has_the_choice_in_its_settings(
    clock: Clock, tiny_network: Network, small_digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "TRIAL_SECONDS", 0.0)
    settings: dict[str, Any] = {"sigma": 0.5, "n": 100, "block": 20, "engine": "auto", "blocks_per_pass": 1}
    smoothed = Smoothed(tiny_network(), small_digits.train.info, **settings)
    assert smoothed.config.engine == "torch"
    assert not smoothed.config.has_auto
    assert len(smoothed.notes) == 1
