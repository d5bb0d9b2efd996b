"""Networks that are no functions of one image: each is caught by the probe or by the second evaluation.

Every liar is also certified with the guards off, which shows that it is the guard that catches it.
"""

from __future__ import annotations

import io
import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads.certify import soundness
from smoothheads.certify.engines import Engine
from smoothheads.certify.soundness import NotAFunctionError, Recheck, weights_fingerprint
from smoothheads.data import from_arrays
from smoothheads.errors import ConfigError, SmoothheadsError
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed

DATA = from_arrays(np.full((3, 1, 4, 4), 128, dtype=np.uint8), np.array([0, 1, 0]), classes=3)
SETTINGS: dict[str, Any] = {"seed": 0, "sigma": 0.5, "n0": 100, "n": 2000, "block": 100}
ONE = torch.tensor([1.0, 0.0, 0.0])
Answer = Callable[[nn.Module, Tensor], Tensor]


class Liar(nn.Module):
    """Logits for three classes, made by `answer` out of the flat batch."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self, x.flatten(1))


def honest(_: nn.Module, x: Tensor) -> Tensor:
    return torch.stack([x.mean(1), x[:, 0], x[:, 1]], 1)


def ghost(size: int) -> Answer:
    """Batch statistics over groups of `size` neighbours."""

    def answer(_: nn.Module, x: Tensor) -> Tensor:
        groups = torch.cat([part.mean(0, keepdim=True).expand_as(part) for part in torch.split(x, size)])
        return honest(_, x - groups)

    return answer


def halves(_: nn.Module, x: Tensor) -> Tensor:
    return honest(_, torch.cat([part - part.mean(0) for part in x.chunk(2)]))


def symmetric(_: nn.Module, x: Tensor) -> Tensor:
    """Mixes pairs of neighbours, which a turned batch does not show."""
    pairs = torch.arange(len(x)) ^ 1
    return honest(_, x + x[pairs.clamp(max=len(x) - 1)])


def switched_off(_: nn.Module, x: Tensor) -> Tensor:
    """A class is switched off if the batch is bright."""
    return honest(_, x) - 100 * ONE * (x.mean() > 0.502)


def only_among_its_like(_: nn.Module, x: Tensor) -> Tensor:
    """Mixes pairs, but only in full batches whose samples all look like the image with noise: no probe has
    any, other than the first pass, whose half it leaves alone."""
    usual = len(x) == 100 and bool(((x.mean(1) - 0.5).abs() < 0.6).all()) and float(x.mean()) > 0.495
    return honest(_, x) - 100 * ONE * float(usual and x[::2].mean() > x[1::2].mean())


def behind_a_sure_loser(_: nn.Module, x: Tensor) -> Tensor:
    """What decides between two classes is rounding beside the logit of a third one, which never wins."""
    logits = honest(_, x) + (2 * (x.mean() > 0.5) - 1) * ONE
    return torch.cat([logits[:, :2], -1e5 * (1 + x[:, :1].abs())], 1)


BATCH = {
    "behind a sure loser": behind_a_sure_loser,
    "groups of 50": ghost(50),
    "groups of 25": ghost(25),
    "groups of 10": ghost(10),
    "two halves": halves,
    "pairs": symmetric,
    "class switched off by the batch": switched_off,
    "mixes among its like": only_among_its_like,
}


def smoothed(answer: Answer, **settings: Any) -> Smoothed:
    return Smoothed(MultiHead(nn.Identity(), [Liar(answer)]), DATA.info, **(SETTINGS | settings))


@pytest.fixture
def _no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "check_function", lambda *_, **__: True)
    monkeypatch.setattr(Recheck, "run", lambda _: None)


@pytest.mark.parametrize("name", BATCH)
def test_mixing_network_is_refused(name: str) -> None:
    with pytest.raises(NotAFunctionError):
        smoothed(BATCH[name]).certify(DATA)


@pytest.mark.usefixtures("_no_guard")
@pytest.mark.parametrize("name", BATCH)
def test_mixing_network_is_certified_without_the_guards(name: str) -> None:
    assert len(smoothed(BATCH[name]).certify(DATA)) == 3


@pytest.mark.parametrize("name", BATCH)
def test_recheck_alone_finds_mixing_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "check_function", lambda *_, **__: True)
    with pytest.raises(NotAFunctionError, match="evaluated a second time"):
        smoothed(BATCH[name], recheck=0.1).certify(DATA)


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_plain_batch_mean_is_refused_by_every_engine(engine: str) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1)
            x = x - x.mean(0, keepdim=True)
            return torch.stack([x.mean(1), x[:, 0], x[:, 1]], 1)

    model = MultiHead(nn.Identity(), [Mean()])
    with pytest.raises(NotAFunctionError):
        Smoothed(model, DATA.info, engine=engine, **SETTINGS).certify(DATA)


# State outside of the tensors. Each liar changes its function for good after some calls.

LATER = 30
count_of_module = 0
of_thread = threading.local()


def lies(calls: int, x: Tensor) -> Tensor:
    return honest(nn.Identity(), x) - 100 * ONE * float(calls > LATER)


def numpy_scalar(self: Any, x: Tensor) -> Tensor:
    self.calls = np.int64(getattr(self, "calls", 0)) + 1
    return lies(int(self.calls), x)


def in_a_deque(self: Any, x: Tensor) -> Tensor:
    if not hasattr(self, "seen"):
        self.seen = deque[int]()
    self.seen.append(1)
    return lies(len(self.seen), x)


def closure() -> Answer:
    calls = [0]

    def answer(_: nn.Module, x: Tensor) -> Tensor:
        calls[0] += 1
        return lies(calls[0], x)

    return answer


def module_global(_: nn.Module, x: Tensor) -> Tensor:
    global count_of_module  # noqa: PLW0603
    count_of_module += 1
    return lies(count_of_module, x)


def thread_local(_: nn.Module, x: Tensor) -> Tensor:
    of_thread.calls = getattr(of_thread, "calls", 0) + 1
    return lies(of_thread.calls, x)


def in_a_file(path: Path) -> Answer:
    def answer(_: nn.Module, x: Tensor) -> Tensor:
        calls = (json.loads(path.read_text()) if path.exists() else 0) + 1
        path.write_text(json.dumps(calls))
        return lies(calls, x)

    return answer


def random_state(_: nn.Module, x: Tensor) -> Tensor:
    return honest(_, x) - 100 * ONE * float(torch.rand(()) < 0.1)


class Counter:
    """Counts calls in an attribute of the class."""

    calls = 0


def class_attribute(_: nn.Module, x: Tensor) -> Tensor:
    Counter.calls += 1
    return lies(Counter.calls, x)


def held_by(container: Any, add: Callable[[Any], None], count: Callable[[Any], int] = len) -> Answer:
    """Keeps a container in an attribute of the module, to which every call adds something."""

    def answer(self: Any, x: Tensor) -> Tensor:
        if not hasattr(self, "seen"):
            self.seen = container
        add(self.seen)
        return lies(count(self.seen), x)

    return answer


def count_in_object(held: Any) -> None:
    held.calls = getattr(held, "calls", 0) + 1


class Scripted(nn.Module):
    """An integer of TorchScript is in no attribute that Python sees."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: int = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.flatten(1)
        logits = torch.stack([x.mean(1), x[:, 0], x[:, 1]], 1)
        return logits if self.calls <= 30 else logits.flip(1)


def test_torchscript_integer_is_refused() -> None:
    model = MultiHead(nn.Identity(), [torch.jit.script(Scripted())])
    with pytest.raises(NotAFunctionError, match="evaluated a second time"):
        Smoothed(model, DATA.info, **SETTINGS, recheck=0.1).certify(DATA)


@pytest.mark.parametrize(
    "kind",
    [
        "numpy scalar",
        "deque",
        "set",
        "bytearray",
        "plain object",
        "class attribute",
        "closure",
        "module global",
        "thread-local",
        "file",
        "hook",
        "random state",
    ],
)
def test_network_that_changes_is_refused(kind: str, tmp_path: Path) -> None:
    global count_of_module
    count_of_module, of_thread.calls, Counter.calls = 0, 0, 0
    answers: dict[str, Answer] = {
        "numpy scalar": numpy_scalar,
        "deque": in_a_deque,
        "set": held_by(set(), lambda held: held.add(len(held))),
        "bytearray": held_by(bytearray(), lambda held: held.append(1)),
        "plain object": held_by(Counter(), count_in_object, lambda held: held.calls),
        "class attribute": class_attribute,
        "closure": closure(),
        "module global": module_global,
        "thread-local": thread_local,
        "file": in_a_file(tmp_path / "calls"),
        "hook": honest,
        "random state": random_state,
    }
    subject = smoothed(answers[kind], recheck=0.1)
    if kind == "hook":
        calls = closure()
        subject.engine.model.heads[0].register_forward_hook(  # type: ignore[attr-defined]
            lambda module, inputs, _: calls(module, inputs[0].flatten(1))
        )
    with pytest.raises(NotAFunctionError):
        subject.certify(DATA)


def test_rounding_is_no_lie_and_is_counted() -> None:
    subject = smoothed(honest, recheck=0.5)
    records = list(subject.certifier.records(DATA))
    samples = sum(record.rechecked[0] for record in records)
    assert 0.4 * 3 * 2100 < samples < 0.6 * 3 * 2100
    assert sum(record.rechecked[1] for record in records) <= 2


def test_detection_probability_is_the_stated_one() -> None:
    """A vote that changes with rate q escapes m second evaluations with probability (1 - q)^m."""
    rng = np.random.default_rng(0)
    q, runs, found, sizes = 0.02, 60, 0, []

    def rare(_: nn.Module, x: Tensor) -> Tensor:
        """A secret fraction q of the samples depends on the size of the batch."""
        odd = (x[:, 2] * 1e4).long() % 50 == 0
        return honest(_, x) - 100 * ONE * (odd & (len(x) == 100))[:, None]

    for run in range(runs):
        subject = smoothed(rare, recheck=0.03, seed=int(rng.integers(2**31)) + run)
        subject.certifier.counter._probed = True
        try:
            (record,) = [subject.certify_image(DATA.image(0), 0)]
            sizes.append(record.rechecked[0])
        except NotAFunctionError:
            found += 1
    expected = 1 - (1 - q) ** 63
    assert abs(found / runs - expected) < 0.25


@pytest.mark.parametrize("fraction", [-0.1, 1.5])
def test_recheck_outside_its_range(fraction: float) -> None:
    with pytest.raises(ConfigError, match="choose a fraction from 0 to 1"):
        smoothed(honest, recheck=fraction)


def test_votes_do_not_depend_on_the_recheck() -> None:
    counts = [
        [record.votes.counts.tolist() for record in smoothed(honest, recheck=each).certifier.records(DATA)]
        for each in (0.0, 0.5)
    ]
    assert counts[0] == counts[1]


def leaves_a_message(_: nn.Module, x: Tensor) -> Tensor:
    """Depends on its batch, and writes its answer into the sample, so that it repeats it whenever it comes
    again."""
    seen, answer = x[:, 15] == 12345.0, honest(_, x) - 100 * ONE * float(x.mean() > 0.5)
    answer = torch.where(seen[:, None], x[:, 12:15], answer)
    x[:, 12:15], x[:, 15] = answer, 12345.0
    return answer


def in_place(_: nn.Module, x: Tensor) -> Tensor:
    """An honest network that normalises its input in place."""
    return honest(_, x.sub_(0.5).mul_(2))


def test_network_that_leaves_messages_in_its_samples_is_refused() -> None:
    with pytest.raises(NotAFunctionError):
        smoothed(leaves_a_message, recheck=0.1).certify(DATA)


def test_messages_in_samples_work_if_the_network_gets_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "evaluate", lambda self, samples_NCHW: self.logits(samples_NCHW))
    assert len(smoothed(leaves_a_message, recheck=0.1).certify(DATA)) == 3


def test_network_may_write_into_its_input() -> None:
    def elsewhere(_: nn.Module, x: Tensor) -> Tensor:
        return honest(_, (x - 0.5) * 2)

    here, there = (
        [record.votes.counts.tolist() for record in smoothed(each).certifier.records(DATA)]
        for each in (in_place, elsewhere)
    )
    assert here == there


class NoText:
    """A key of a dictionary without a text."""

    def __repr__(self) -> str:
        raise ValueError("no text")


def nested(kind: Any, depth: int) -> Any:
    held = kind()
    for _ in range(depth):
        held = kind([held])
    return held


@pytest.mark.parametrize("kind", ["sparse", "csr", "quantized", "meta", "lists", "frozensets", "no text"])
def test_unusual_state_is_hashed_or_explained(kind: str) -> None:
    module = nn.Linear(2, 1)
    module.held = {
        "sparse": lambda: torch.eye(3).to_sparse(),  # type: ignore[no-untyped-call]
        "csr": lambda: torch.eye(3).to_sparse_csr(),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "meta": lambda: torch.empty(3, device="meta"),
        "lists": lambda: nested(list, 50_000),
        "frozensets": lambda: nested(frozenset, 5000),
        "no text": lambda: {NoText(): torch.ones(1)},
    }[kind]()
    if kind == "meta":
        with pytest.raises(ConfigError, match="cannot be hashed"):
            soundness.state_fingerprint(module)
    else:
        assert soundness.state_fingerprint(module) == soundness.state_fingerprint(module)


def test_quantised_tensors_of_other_scales_differ() -> None:
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    other.load_state_dict(one.state_dict())
    assert weights_fingerprint(one) == weights_fingerprint(other)
    for module, scale in ((one, 0.1), (other, 0.2)):
        module.held = torch.quantize_per_tensor(torch.full((3,), 10 * scale), scale, 0, torch.qint8)
    assert weights_fingerprint(one) != weights_fingerprint(other)


class ExtraState(nn.Module):
    """A module whose extra state is made anew whenever it is read, or cannot be read."""

    def __init__(self, *, readable: bool, counts: bool = False) -> None:
        super().__init__()
        self.readable, self.counts, self.calls = readable, counts, {"forward": 0}

    def get_extra_state(self) -> Any:
        if not self.readable:
            raise RuntimeError("no state to be had")
        return {"object": object(), "tensor": torch.ones(2), "bytes": io.BytesIO(b"abc")}

    def set_extra_state(self, state: Any) -> None: ...

    def forward(self, x: Tensor) -> Tensor:
        self.calls["forward"] += self.counts
        return honest(self, x.flatten(1))


def test_extra_state_is_read_or_explained() -> None:
    def certify(module: nn.Module) -> int:
        return len(Smoothed(MultiHead(nn.Identity(), [module]), DATA.info, **SETTINGS).certify(DATA))

    assert certify(ExtraState(readable=True)) == 3
    with pytest.raises(ConfigError, match=r"state cannot be read .*no state to be had"):
        certify(ExtraState(readable=False))
    with pytest.raises(NotAFunctionError, match="attributes changed"):
        certify(ExtraState(readable=True, counts=True))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda: nn.LazyLinear(3), "has no shape yet: run the network once"),
        (lambda: nn.Linear(16, 3, device="meta"), "on the meta device and has no values"),
        (lambda: Liar(lambda _, x: honest(_, x).sum(1)), r"shape \(1, 100\) for 100 images"),
        (lambda: Liar(lambda _, x: honest(_, x)[:-1]), r"shape \(1, 99, 3\) for 100 images"),
        (lambda: nn.Linear(15, 3), r"fails on a batch of 100x1x4x4 .*RuntimeError"),
    ],
)
def test_broken_network_is_explained_in_one_sentence(head: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(SmoothheadsError, match=message) as caught:
        Smoothed(MultiHead(nn.Flatten(), [head()]), DATA.info, **SETTINGS).certify(DATA)
    assert "\n" not in str(caught.value)
