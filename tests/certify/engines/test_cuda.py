"""Recorded work. There is no GPU here: `recorder` stands in for the driver, everything else is what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import work_of
from smoothheads.certify.engines.cuda import WARM_UPS, CudaRecorder, Recorded, Recorder, require_replay
from smoothheads.certify.engines.torch import TorchEngine
from smoothheads.data import Splits
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise, make_noise
from smoothheads.types import Grid, Phase, Pixels

from .builders import make_engine, torch_engine

Networks = Callable[..., MultiHead]


@pytest.fixture
def image(small_digits: Splits) -> Pixels:
    return small_digits.test.image(3)


def test_a_replay_reads_new_arguments_and_hands_out_memory_of_its_own(recorder: Recorder) -> None:
    function = Recorded(lambda x, y: (x * 2 + y, x.sum(0)), [torch.zeros(3, 2), torch.zeros(2)], recorder)
    a, b = torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, -1.0])
    first, total = function(a, b)
    torch.testing.assert_close(first, a * 2 + b, rtol=0, atol=0)
    function(-a, b)
    torch.testing.assert_close(first, a * 2 + b, rtol=0, atol=0)
    torch.testing.assert_close(total, a.sum(0), rtol=0, atol=0)
    a[:] = 7
    torch.testing.assert_close(function(a, b)[1], torch.tensor([21.0, 21.0]), rtol=0, atol=0)


def test_examples_may_be_overwritten(recorder: Recorder) -> None:
    example = torch.ones(2)
    function = Recorded(lambda x: x + 1, [example], recorder)
    function(torch.zeros(2))
    assert example.tolist() == [1, 1]


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3), torch.zeros(3, 1), torch.zeros(3, 2).double()])
def test_arguments_that_were_not_recorded_are_refused(recorder: Recorder, wrong: Tensor) -> None:
    """A smaller block would be spread over a whole one."""
    function = Recorded(lambda x: x * 2, [torch.zeros(3, 2)], recorder)
    with pytest.raises(SoundnessError, match=r"torch.float32 of shape \(3, 2\), as was recorded"):
        function(wrong)


def test_a_replay_that_is_not_the_network_is_refused(recorder: Recorder) -> None:
    """Memory of the first call goes into the recording of a network that keeps its first answer."""
    kept: list[Tensor] = []

    def remembers(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return kept[0] + 0

    def plain(x: Tensor) -> Tensor:
        return x * 2

    example = torch.zeros(4, 3)
    require_replay(Recorded(plain, [example], recorder), plain, example, 1e-3)
    with pytest.raises(SoundnessError, match="results that differ by 4; switch graphs off"):
        require_replay(Recorded(remembers, [example], recorder), plain, example, 1e-3)


@pytest.mark.parametrize("name", ["grid", "gaussian"])
def test_recorded_votes_are_the_plain_ones(
    trained_like: Networks, image: Pixels, recorder: Any, name: str
) -> None:
    noise = make_noise(name, 0.5, Grid(16), 0, 20)
    model = trained_like(heads=3)
    model.weigh(torch.tensor([1.0, -0.5, 0.25]))
    plain = torch_engine(model, noise)
    engine = torch_engine(model, noise, recorder=recorder)
    assert recorder.recordings == 1
    assert engine.describe() == plain.describe() | {"graphed": True}
    before = recorder.replays
    for key in ((3, Phase.ESTIMATION, 0, 100), (3, Phase.ESTIMATION, 5, 27), (4, Phase.SELECTION, 0, 20)):
        np.testing.assert_array_equal(engine.votes(image, *key).counts, plain.votes(image, *key).counts)
    probes, passes = 4, 5 + 2 + 1
    assert recorder.replays - before == probes + passes
    key = 3, Phase.SCORES, 0, 50
    np.testing.assert_array_equal(engine.scores(image, *key), plain.scores(image, *key))


def test_lazy_consensus_records_its_parts_and_votes_the_same(
    trained_like: Networks, image: Pixels, noise: Noise, recorder: Any
) -> None:
    model = trained_like(heads=3)
    plain = torch_engine(model, noise, aggregation="consensus-2", lazy_consensus=True)
    lazy = torch_engine(model, noise, aggregation="consensus-2", lazy_consensus=True, recorder=recorder)
    assert recorder.recordings == 2  # the first heads, the others
    key = image, 3, Phase.ESTIMATION, 0, 200
    np.testing.assert_array_equal(lazy.votes(*key).counts, plain.votes(*key).counts)
    assert work_of(lazy).late_passes > 0


class LooksAtTheData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)[:, :10]
        return -flat if float(flat.sum()) > 1e9 else flat


def test_a_network_that_cannot_be_recorded_is_told(noise: Noise, recorder: Recorder) -> None:
    model = MultiHead(nn.Identity(), [LooksAtTheData()])
    torch_engine(model, noise)
    with pytest.raises(ConfigError) as caught:
        torch_engine(model, noise, recorder=recorder)
    assert str(caught.value) == (
        "expected a network that CUDA graphs can record, got RuntimeError: operation not permitted when "
        "stream is capturing; switch graphs off in a new process"
    )


class Dropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x.flatten(1)[:, :10], training=True)


def test_chance_in_a_recording_is_found(noise: Noise, image: Pixels, recorder: Recorder) -> None:
    model = MultiHead(nn.Identity(), [Dropping()])
    with pytest.raises(SoundnessError, match=r"differ by|different logits on a second pass"):
        torch_engine(model, noise, recorder=recorder).votes(image, 3, Phase.ESTIMATION, 0, 20)


def test_on_the_processor_nothing_is_recorded(
    config: CertifyConfig, tiny_network: Networks, small_digits: Splits, noise: Noise
) -> None:
    engine = make_engine(config, tiny_network(), small_digits.train.info, noise)
    assert isinstance(engine, TorchEngine)
    assert engine.recorder is None
    assert "graphed" not in engine.describe()


class Driver:
    """Notes what `torch.cuda` is asked for; work is done on the CPU."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stream_now = "current"

    def stream(self, name: str) -> Any:
        driver = self

        class Stream:
            def wait_stream(self, other: Any) -> None:
                driver.log.append(f"{name} waits for {other.name}")

        Stream.name = name  # type: ignore[attr-defined]
        return Stream()

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        self.stream_now = stream.name
        yield
        self.stream_now = "current"

    @contextmanager
    def capture(self, graph: Any, *, stream: Any) -> Iterator[None]:
        self.log.append("capture")
        with self.on(stream):
            yield
        self.log.append("captured")


def test_the_order_of_calls_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up and capture on one side stream, which starts after, and is waited for by, the current one."""
    driver = Driver()

    class Graph:
        def replay(self) -> None:
            driver.log.append("replay")

    @contextmanager
    def device(_: torch.device) -> Iterator[None]:
        driver.log.append("device")
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: driver.stream("current"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: driver.stream("side"))
    monkeypatch.setattr(torch.cuda, "stream", driver.on)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", driver.capture)

    def work() -> str:
        driver.log.append(f"work on {driver.stream_now}")
        return "results"

    results, replay = CudaRecorder(torch.device("cuda", 1))(work)
    replay()
    assert results == "results"
    assert driver.log == [
        "device",
        "side waits for current",
        *["work on side"] * WARM_UPS,
        "current waits for side",
        "capture",
        "work on side",
        "captured",
        "replay",
    ]
