from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Engine, EngineConfig, OpenVino, Torch, auto
from smoothheads.certify.engines import Network as EngineNetwork
from smoothheads.certify.engines import openvino as extra
from smoothheads.data import Splits
from smoothheads.errors import ConfigError, SoundnessError, duration
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.smoothed import Smoothed
from smoothheads.types import Votes

from .builders import choose

Network = Callable[..., MultiHead]


class Clock:
    """Moves when an engine works, by what that engine is said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Paced:
    """An engine that answers at once and takes its time on the clock."""

    def __init__(self, engine: Engine, clock: Clock, seconds: float) -> None:
        self._engine, self._clock, self._seconds = engine, clock, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def votes(self, *arguments: Any) -> Votes:
        self._clock.now += self._seconds
        return self._engine.votes(*arguments)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def paced(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds per block by engine; every engine is a plain one that is paced by it."""
    seconds = {"torch": 0.5, "openvino": 0.2}

    def build(config: EngineConfig, network: EngineNetwork) -> Any:
        engine = plain(Torch(blocks_per_pass=config.blocks_per_pass), network)
        return Paced(engine, clock, seconds[config.name])

    plain = Torch.build
    for kind in (Torch, OpenVino):
        monkeypatch.setattr(kind, "build", build)
    monkeypatch.setattr(extra, "installed", lambda: True)
    return seconds


def test_the_fastest_is_taken_and_the_trial_told(
    paced: dict[str, float], clock: Clock, tiny_network: Network, small_digits: Splits, noise: Noise
) -> None:
    config = CertifyConfig.of(0.5, seed=0, block=20, engine="auto", blocks_per_pass=1, compile="off")
    arguments = (tiny_network(), small_digits.train.info, noise)
    choice = choose(config, *arguments, clock=clock)
    assert choice.config == config.changed(engine=OpenVino())
    assert choice.notes == (
        "engine openvino, float32, 2.50 times as fast as the next "
        "(votes/s in a trial: torch 40, openvino 100)",
    )
    paced["openvino"] = 0.6
    assert choose(config, *arguments, clock=clock).config == config.changed(engine=Torch())


def test_without_the_extra_there_is_torch(
    *,
    paced: dict[str, float],
    clock: Clock,
    tiny_network: Network,
    small_digits: Splits,
    noise: Noise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    config = CertifyConfig.of(0.5, seed=0, block=20, engine="auto", blocks_per_pass=1, compile="off")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config.engine == Torch()


def test_an_engine_that_does_not_take_the_network_is_left_out(
    clock: Clock, tiny_network: Network, small_digits: Splits, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ConfigError("a network", "another", "use torch")

    plain = Torch.build
    monkeypatch.setattr(Torch, "build", lambda *arguments: Paced(plain(*arguments), clock, 0.5))
    monkeypatch.setattr(OpenVino, "build", refuse)
    monkeypatch.setattr(extra, "installed", lambda: True)
    config = CertifyConfig.of(0.5, seed=0, block=20, engine="auto", blocks_per_pass=1, compile="off")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config.engine == Torch()
    assert choice.notes[0] == "engine openvino left out: expected a network, got another; use torch"
    with pytest.raises(ConfigError, match="an engine for this network"):
        choose(config.changed(precision="int8"), tiny_network(), small_digits.train.info, noise, clock=clock)


@pytest.mark.parametrize(("images", "compiled"), [(1, "off"), (1000, "on")])
def test_a_run_is_compiled_if_it_is_long_enough(
    *,
    paced: dict[str, float],
    clock: Clock,
    tiny_network: Network,
    small_digits: Splits,
    noise: Noise,
    images: int,
    compiled: Literal["on", "off"],
) -> None:
    config = CertifyConfig.of(0.5, seed=0, block=20, n0=20, n=180, compile="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, images=images, clock=clock)
    assert choice.config == config.changed(compile=compiled)
    total = images * 200 / 20 * 0.5
    assert f"compile {compiled}: it would take about" in choice.notes[0]
    assert f"of {duration(total)}" in choice.notes[0]


@pytest.mark.parametrize(
    ("passes", "chosen", "note"),
    [
        ({1: 0.01, 4: 0.02, 16: 0.04}, 16, "1: 2,000, 4: 4,000, 16: 8,000"),
        ({1: 0.01, 4: 0.02, 16: 0.079}, 4, "1: 2,000, 4: 4,000"),
        ({1: 0.01, 4: 0.04, 16: 0.01}, 1, "1: 2,000"),
        ({1: 0.01, 16: 0.01}, 1, "1: 2,000"),
        ({1: 0.2}, 1, "1: 100"),
    ],
)
def test_passes_grow_as_long_as_that_pays(
    *,
    clock: Clock,
    tiny_network: Network,
    small_digits: Splits,
    noise: Noise,
    monkeypatch: pytest.MonkeyPatch,
    passes: dict[int, float],
    chosen: int,
    note: str,
) -> None:
    """Seconds of a pass by its blocks; a size without an entry is refused when it is probed."""

    class Refused(Paced):
        def votes(self, *_: Any) -> Votes:
            raise SoundnessError("independent blocks", "others", "set blocks_per_pass to 1")

    def build(config: Torch, network: EngineNetwork) -> Any:
        engine, blocks = plain(config, network), config.blocks_per_pass
        assert blocks != "auto"
        if max(passes) < 1 + (blocks > 1):
            raise AssertionError("a pass that takes long is not made longer")
        return Paced(engine, clock, passes[blocks]) if blocks in passes else Refused(engine, clock, 0)

    plain = Torch.build
    monkeypatch.setattr(Torch, "build", build)
    config = CertifyConfig.of(0.5, seed=0, block=20, blocks_per_pass="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config == config.changed(blocks_per_pass=chosen)
    assert choice.notes == (f"blocks_per_pass {chosen} (votes/s in a trial: {note})",)


def test_a_smoothed_classifier_has_the_choice_in_its_settings(
    paced: dict[str, float], tiny_network: Network, small_digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    monkeypatch.setattr(auto, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(auto, "SHORT_SECONDS", 0.0)
    settings: dict[str, Any] = {
        "seed": 0,
        "sigma": 0.5,
        "n": 100,
        "block": 20,
        "engine": "auto",
        "blocks_per_pass": 1,
    }
    smoothed = Smoothed(tiny_network(), small_digits.train.info, **settings)
    assert smoothed.config.engine == Torch(blocks_per_pass=1, compile="off")
    assert len(smoothed.notes) == 2


def test_a_short_run_takes_the_first_engine_without_a_trial(
    paced: dict[str, float], clock: Clock, tiny_network: Network, small_digits: Splits, noise: Noise
) -> None:
    config = CertifyConfig.of(0.5, seed=0, block=20, n0=20, n=180, engine="auto")
    arguments = (tiny_network(), small_digits.train.info, noise)
    short = choose(config, *arguments, images=11, clock=clock)  # of ten blocks at half a second
    assert short.config.engine == Torch(blocks_per_pass=1, compile="off")
    assert short.notes == ("engine torch: a run of about 55 s is too short for a trial",)
    assert choose(config, *arguments, images=13, clock=clock).config.engine.name == "openvino"
