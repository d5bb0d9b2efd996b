from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from smoothheads.certify.engines import Engine, as_stored, choose, extra, make_engine
from smoothheads.certify.smoothed import Smoothed
from smoothheads.config import CertifyConfig
from smoothheads.data import Splits
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models import MultiHead
from smoothheads.models.grouped import group
from smoothheads.noise import Noise
from smoothheads.types import Votes

choosing = sys.modules[choose.__module__]  # its name in the package is the function's
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

    def make(config: CertifyConfig, *arguments: Any, **options: Any) -> Any:
        engine = make_engine(replace(config, engine="torch", precision="float32"), *arguments)
        return Paced(engine, clock, seconds[config.engine])

    monkeypatch.setattr(choosing, "make_engine", make)
    monkeypatch.setattr(extra, "installed", lambda: True)
    return seconds


def test_the_fastest_is_taken_and_the_trial_told(
    paced: dict[str, float], clock: Clock, tiny_network: Network, small_digits: Splits, noise: Noise
) -> None:
    config = CertifyConfig(sigma=0.5, block=20, engine="auto")
    arguments = (tiny_network(), small_digits.train.info, noise)
    choice = choose(config, *arguments, clock=clock)
    assert choice.config == replace(config, engine="openvino")
    assert choice.notes == ("engine openvino, float32 (votes/s in a trial: torch 40, openvino 100)",)
    paced["openvino"] = 0.6
    assert choose(config, *arguments, clock=clock).config == replace(config, engine="torch")


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
    config = CertifyConfig(sigma=0.5, block=20, engine="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config.engine == "torch"


def test_an_engine_that_does_not_take_the_network_is_left_out(
    clock: Clock, tiny_network: Network, small_digits: Splits, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(config: CertifyConfig, *arguments: Any, **options: Any) -> Any:
        if config.engine == "openvino":
            raise ConfigError("a network", "another", "use torch")
        return Paced(make_engine(config, *arguments), clock, 0.5)

    monkeypatch.setattr(choosing, "make_engine", make)
    monkeypatch.setattr(extra, "installed", lambda: True)
    config = CertifyConfig(sigma=0.5, block=20, engine="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config.engine == "torch"
    assert choice.notes[0] == "engine openvino left out: expected a network, got another; use torch"
    with pytest.raises(ConfigError, match="an engine for this network"):
        choose(replace(config, precision="int8"), tiny_network(), small_digits.train.info, noise, clock=clock)


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
    config = CertifyConfig(sigma=0.5, block=20, n0=20, n=180, compile="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, images=images, clock=clock)
    assert choice.config == replace(config, compile=compiled)
    total = images * 200 / 20 * 0.5
    assert f"compile {compiled}: it would take about" in choice.notes[0]
    assert f"of {total:.0f} s" in choice.notes[0]


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

    def make(config: CertifyConfig, *arguments: Any, **options: Any) -> Any:
        engine, blocks = make_engine(config, *arguments), config.blocks_per_pass
        assert blocks != "auto"
        if max(passes) < 1 + (blocks > 1):
            raise AssertionError("a pass that takes long is not made longer")
        return Paced(engine, clock, passes[blocks]) if blocks in passes else Refused(engine, clock, 0)

    monkeypatch.setattr(choosing, "make_engine", make)
    config = CertifyConfig(sigma=0.5, block=20, blocks_per_pass="auto")
    choice = choose(config, tiny_network(), small_digits.train.info, noise, clock=clock)
    assert choice.config == replace(config, blocks_per_pass=chosen)
    assert choice.notes == (f"blocks_per_pass {chosen} (votes/s in a trial: {note})",)


def test_what_was_chosen_before_is_kept() -> None:
    config = CertifyConfig(sigma=0.5, engine="auto", compile="auto")
    stored = {"engine": "openvino", "compile": "off", "sigma": 0.25}
    assert as_stored(config, stored) == CertifyConfig(sigma=0.5, engine="openvino", compile="off")
    assert as_stored(config, {}) == config
    wide = CertifyConfig(sigma=0.5, blocks_per_pass="auto")
    assert as_stored(wide, stored | {"blocks_per_pass": 4}).blocks_per_pass == 4
    assert as_stored(replace(config, engine="torch"), {"engine": "openvino", "compile": "on"}) == replace(
        config, engine="torch", compile="on"
    )


def test_a_smoothed_classifier_has_the_choice_in_its_settings(
    paced: dict[str, float], tiny_network: Network, small_digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "installed", lambda: False)
    monkeypatch.setattr(choosing, "TRIAL_SECONDS", 0.0)
    settings: dict[str, Any] = {"sigma": 0.5, "n": 100, "block": 20, "engine": "auto", "compile": "auto"}
    smoothed = Smoothed(tiny_network(), small_digits.train.info, **settings)
    assert (smoothed.config.engine, smoothed.config.compile) == ("torch", "off")
    assert len(smoothed.notes) == 2


@pytest.mark.parametrize("faster", [True, False])
def test_heads_are_grouped_only_where_that_measured_faster(
    *,
    paced: dict[str, float],
    clock: Clock,
    tiny_network: Network,
    small_digits: Splits,
    noise: Noise,
    monkeypatch: pytest.MonkeyPatch,
    faster: bool,
) -> None:
    def measured(model: MultiHead, *_: Any, **__: Any) -> Any:
        return group(model) if faster else model

    monkeypatch.setattr(choosing, "faster_heads", measured)
    config = CertifyConfig(sigma=0.5, block=20, n0=20, n=180, grouped="auto")
    choice = choose(config, tiny_network(heads=2), small_digits.train.info, noise, clock=clock)
    assert choice.config.grouped == ("on" if faster else "off")
    assert as_stored(config, {"grouped": "on"}).grouped == "on"
