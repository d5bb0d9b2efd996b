"""Whatever people pass as a classifier: accepted where the meaning is clear, one sentence otherwise."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import smoothheads as sh
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError, ConfigError, SoundnessError
from smoothheads.models.adapters import OnnxFile, PlainFunction, adapt, is_own_model, load_object
from smoothheads.types import Grid

SHAPE = (3, 8, 8)
INFO = DataInfo("own", Grid(255), SHAPE, ("dark", "bright"), (0.0,) * 3, (1.0,) * 3)
SETTINGS: dict[str, Any] = {"sigma": 0.25, "n": 200, "n0": 20, "block": 20, "seed": 0}
BRIGHT = np.full(SHAPE, 230, np.uint8)


class Brightness(nn.Module):
    """Class 1 for bright images; a linear network, so that nothing depends on training."""

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(threshold))

    def forward(self, x_NCHW: Tensor) -> Any:
        margin_N = x_NCHW.mean((1, 2, 3)) - self.threshold
        return torch.stack([-margin_N, margin_N], 1)


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Answering(Brightness):
    """Answers as models of other libraries do."""

    def __init__(self, kind: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x_NCHW: Tensor) -> Any:
        return self.kind(super().forward(x_NCHW))


def numpy_logits(samples: np.ndarray) -> Any:
    margin = samples.mean((1, 2, 3)) - 0.5
    return np.stack([-margin, margin], 1)


def numpy_classes(samples: np.ndarray) -> Any:
    return (samples.mean((1, 2, 3)) > 0.5).astype(int)


def export(
    path: Path, *, last: bool = False, batch: int | None = None, network: nn.Module | None = None
) -> Path:
    """An ONNX file with channels first or last, of a fixed batch size or a free one."""

    class ChannelsLast(nn.Module):
        def forward(self, x_NHWC: Tensor) -> Any:
            return Brightness()(x_NHWC.permute(0, 3, 1, 2))

    shape = (8, 8, 3) if last else SHAPE
    torch.onnx.export(
        (network or (ChannelsLast() if last else Brightness())).eval(),
        (torch.zeros(batch or 2, *shape),),
        str(path),
        input_names=["image"],
        output_names=["scores"],
        dynamic_axes=None if batch else {"image": {0: "n"}, "scores": {0: "n"}},
        dynamo=False,
    )
    return path


def certified_class(model: Any, image: np.ndarray = BRIGHT) -> int:
    return int(sh.Smoothed(model, INFO, **SETTINGS).certify_image(image).prediction)


@pytest.mark.parametrize(
    "kind",
    [Output, lambda logits: {"logits": logits}, lambda logits: (logits, None)],
    ids=["object", "mapping", "tuple"],
)
def test_models_that_answer_with_more_than_logits(kind: Callable[[Tensor], Any]) -> None:
    smoothed = sh.Smoothed(Answering(kind), INFO, **SETTINGS)
    plain = sh.Smoothed(Brightness(), INFO, **SETTINGS)
    one, two = (each.certify_image(BRIGHT, 0) for each in (smoothed, plain))
    assert one.certificate == two.certificate
    assert (one.votes.counts == two.votes.counts).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_models_are_certified_in_float32_with_a_note(dtype: torch.dtype) -> None:
    model = Brightness(threshold=0.3).to(dtype)
    smoothed = sh.Smoothed(model, INFO, **SETTINGS)
    same = sh.Smoothed(Brightness(threshold=float(model.threshold)), INFO, **SETTINGS)
    one, two = (each.certify_image(BRIGHT, 0) for each in (smoothed, same))
    assert one.certificate == two.certificate
    assert (one.votes.counts == two.votes.counts).all()
    assert model.threshold.dtype == dtype  # the model itself stays as it is
    name = str(dtype).removeprefix("torch.")
    (note,) = smoothed.notes
    assert f"parameters are {name}: a float32 copy of it is used" in note
    results = smoothed.certify(BRIGHT[None], np.array([1]), progress=False)
    assert results.manifest is not None
    assert results.manifest.network["notes"] == [note]


def test_hugging_face_processor_gives_mean_std_and_size() -> None:
    class Processor:
        image_mean, image_std, size = [0.5] * 3, [0.25] * 3, {"height": 4, "width": 4}

    seen: list[tuple[int, ...]] = []

    class Watching(Answering):
        def forward(self, x_NCHW: Tensor) -> Any:
            seen.append(tuple(x_NCHW.shape[1:]))
            return super().forward(x_NCHW)

    network = adapt(Watching(Output), processor=Processor())
    assert certified_class(network) == 1
    assert set(seen) == {(3, 4, 4)}
    dim = np.full(
        SHAPE, 145, np.uint8
    )  # 0.57, which is above the threshold of 0.5, but (0.57 - 0.5) / 0.25 is not
    assert certified_class(network, dim) == 0


@pytest.mark.parametrize(
    ("facts", "inside"),
    [
        ({"do_normalize": False}, 0.5),
        ({"rescale_factor": 1 / 127.5}, (1.0 - 0.5) / 0.25),  # pixels from 0 to 2 are normalised then
        ({"do_rescale": False, "do_normalize": False}, 127.5),
        ({"do_center_crop": True, "crop_size": {"height": 4, "width": 4}, "size": {"shortest_edge": 6}}, 0.0),
        ({"size": 4}, 0.0),
    ],
)
def test_hugging_face_processor_scales_as_it_says(facts: dict[str, Any], inside: float) -> None:
    processor = SimpleNamespace(**({"image_mean": [0.5] * 3, "image_std": [0.25] * 3} | facts))
    network = adapt(nn.Identity(), processor=processor)
    assert isinstance(network, nn.Module)
    got = network(torch.full((1, *SHAPE), 0.5))[0]
    assert got.shape[-2:] == ((4, 4) if "size" in facts else (8, 8))
    torch.testing.assert_close(got, torch.full_like(got, inside))


def test_timm_network_is_used_with_its_data_configuration() -> None:
    network = Brightness(threshold=1.2)
    network.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "input_size": (3, 16, 16)}  # type: ignore[assignment]
    adapted = adapt(network)
    assert certified_class(adapted) == 1  # (0.9 - 0.5) / 0.25 = 1.6 is above the threshold, 0.9 is not
    assert certified_class(Brightness(threshold=1.2)) == 0


def test_importing_needs_no_other_library() -> None:
    import subprocess

    script = (
        "import sys, smoothheads.models.adapters as a; print([m for m in ('torch', 'timm', 'transformers', "
    )
    script += "'onnxruntime', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("function", [numpy_logits, numpy_classes])
def test_plain_functions_of_logits_and_of_classes(function: Callable[[np.ndarray], Any]) -> None:
    smoothed = sh.Smoothed(function, INFO, **SETTINGS)
    assert smoothed.certify_image(BRIGHT).prediction == 1
    assert smoothed.certify_image(255 - BRIGHT).prediction == 0
    assert any("black box" in note for note in smoothed.notes)
    expected = sh.Smoothed(Brightness(), INFO, **SETTINGS)
    votes = [each.certify_image(BRIGHT, 3).votes.counts[0].tolist() for each in (smoothed, expected)]
    assert votes[0] == votes[1]


def test_results_of_a_function_say_what_was_certified() -> None:
    images, labels = np.stack([BRIGHT, 255 - BRIGHT]), np.array([1, 0])
    results = sh.Smoothed(numpy_classes, INFO, **SETTINGS).certify(images, labels)
    assert results.manifest is not None
    assert results.manifest.engine["classifier"] == "function"
    assert results.manifest.engine["name"].endswith("numpy_classes")


def test_scikit_learn_classifier_with_predict_proba() -> None:
    values = np.random.default_rng(0).random((200, *SHAPE)).astype(np.float32)
    values *= np.linspace(0.2, 1.8, 200)[:, None, None, None]
    labels = (values.mean((1, 2, 3)) > 0.5).astype(int)
    estimator = LogisticRegression().fit(values.reshape(200, -1), labels)
    assert certified_class(estimator) == 1
    smoothed = sh.Smoothed(estimator, INFO, **SETTINGS)
    before = smoothed.engine.fingerprint()
    estimator.coef_ += 1
    assert smoothed.engine.fingerprint() != before  # a change while votes are counted is noticed
    with pytest.raises(ConfigError, match=r"fails on a batch of 3x3x4x4 .*expecting 192 features"):
        sh.Smoothed(estimator, shape=(3, 4, 4), classes=2, **SETTINGS)


def test_estimator_with_other_classes_is_refused() -> None:
    estimator = LogisticRegression().fit(np.eye(192), ["cat", "dog"] * 96)
    with pytest.raises(ConfigError, match="knows the classes cat, dog, and the images have dark, bright"):
        sh.Smoothed(estimator, INFO, **SETTINGS)


@pytest.mark.parametrize("last", [False, True], ids=["channels-first", "channels-last"])
@pytest.mark.parametrize("batch", [None, 1, 16], ids=["free", "one", "sixteen"])
def test_onnx_files_give_the_votes_of_the_network(tmp_path: Path, last: bool, batch: int | None) -> None:
    pytest.importorskip("onnxruntime")
    path = export(tmp_path / "model.onnx", last=last, batch=batch)
    smoothed = sh.Smoothed(path, INFO, **SETTINGS)
    expected = sh.Smoothed(Brightness(), INFO, **SETTINGS)
    assert (
        smoothed.certify_image(BRIGHT, 0).votes.counts == expected.certify_image(BRIGHT, 0).votes.counts
    ).all()


def test_onnx_file_is_normalised_as_told_and_travels_to_workers(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = export(tmp_path / "model.onnx")
    classifier = adapt(path, mean=[0.5] * 3, std=[0.25] * 3)
    assert isinstance(classifier, OnnxFile)
    classifier.prepare(INFO)
    samples = np.random.default_rng(0).random((4, *SHAPE), dtype=np.float32)
    copy = pickle.loads(pickle.dumps(classifier))
    copy.prepare(INFO)
    assert np.array_equal(copy.logits(samples), classifier.logits(samples))
    expected = Brightness()(torch.from_numpy((samples - 0.5) / 0.25)).detach().numpy()
    assert np.allclose(classifier.logits(samples), expected, atol=1e-5)
    assert classifier.describe()["mean"] == [0.5] * 3


class TwoInputs(nn.Module):
    def forward(self, x_NCHW: Tensor, scale: Tensor) -> Tensor:
        return x_NCHW.mean((2, 3)) * scale


def test_onnx_files_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "two.onnx"
    torch.onnx.export(
        TwoInputs(), (torch.zeros(1, *SHAPE), torch.ones(1)), str(path), input_names=["a", "b"], dynamo=False
    )
    with pytest.raises(
        ConfigError, match=r"has 2 inputs \(a, b\): export the network with the image as its only"
    ):
        sh.Smoothed(path, INFO, **SETTINGS)
    path = export(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match=r"takes images of 3x8x8, and these have 3x16x16"):
        sh.Smoothed(path, shape=(3, 16, 16), classes=2, **SETTINGS)
    with pytest.raises(SoundnessError, match="gives logits of 2 classes, but the data have 10"):
        sh.Smoothed(path, shape=SHAPE, classes=10, **SETTINGS)
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is no ONNX network"):
        sh.Smoothed(tmp_path / "bad.onnx", INFO, **SETTINGS)
    with pytest.raises(CheckpointError, match="Cannot read"):
        sh.Smoothed(tmp_path / "none.onnx", INFO, **SETTINGS)


def fails(samples: np.ndarray) -> Any:
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda samples: numpy_logits(samples)[1:], r"outputs of shape \(1, 2, 2\) for 3 images"),
        (lambda _: 3.0, r"outputs of shape \(1,\) for 3 images"),
        (lambda samples: samples.mean((1, 2, 3)), "neither logits"),
        (lambda samples: samples, r"outputs of shape \(1, 3, 3, 8, 8\)"),
        (lambda samples: np.full(len(samples), 7), "returns classes from 7 to 7"),
        (lambda samples: np.full(len(samples), -1), "returns classes from -1 to -1"),
        (lambda samples: np.zeros((len(samples), 5)), "gives logits of 5 classes, but the data have 2"),
        (lambda samples: ["cat"] * len(samples), "neither logits"),
        (fails, "fails on a batch of 3x3x8x8"),
    ],
)
def test_functions_that_give_something_else_are_refused_before_any_image(
    function: Callable[[np.ndarray], Any], message: str
) -> None:
    with pytest.raises((ConfigError, SoundnessError), match=message):
        sh.Smoothed(function, INFO, **SETTINGS)


def test_a_function_that_looks_at_its_neighbours_is_refused() -> None:
    smoothed = sh.Smoothed(lambda samples: numpy_logits(samples - samples.mean()), INFO, **SETTINGS)
    with pytest.raises(SoundnessError, match=r"neighbours|place"):
        smoothed.certify_image(BRIGHT)


def test_classes_and_other_things_that_are_no_classifier() -> None:
    with pytest.raises(ConfigError, match=r"Brightness is a class: pass an instance, as in Brightness\(\)\."):
        sh.Smoothed(Brightness, INFO, **SETTINGS)
    with pytest.raises(ConfigError, match="A int is no classifier"):
        sh.Smoothed(3, INFO, **SETTINGS)
    with pytest.raises(ConfigError, match="runs/some is no ONNX file and no model of transformers or timm"):
        sh.Smoothed("runs/some", INFO, **SETTINGS)
    with pytest.raises(ConfigError, match="Engine openvino computes modules of PyTorch"):
        sh.Smoothed(numpy_logits, INFO, engine="openvino", **SETTINGS)


MODULE = """
import numpy as np
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        margin = x.mean((1, 2, 3)) - 0.5
        return __import__("torch").stack([-margin, margin], 1)

def make():
    return Net()

def make_with(width=3):
    return Net()

def classes(samples):
    return (samples.mean((1, 2, 3)) > 0.5).astype(int)

def broken():
    raise ValueError("no weights")

net = Net()
"""


def test_names_of_modules_factories_and_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("mine.py").write_text(MODULE)
    for name in ("mine:Net", "mine:make", "mine:make_with", "mine:net"):
        assert isinstance(load_object(name), nn.Module), name
    assert isinstance(adapt(load_object("mine:classes")), PlainFunction)
    for name, message in (
        ("nowhere:net", "Cannot find nowhere"),
        ("mine:other", "Cannot find mine:other"),
        ("mine:broken", r"mine:broken\(\) fails \(ValueError: no weights\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_object(name)


def test_timm_folder_is_opened_by_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm imports torchvision, which is not everywhere: a stand-in shows how it is called."""
    calls = []

    def create_model(name: str, *, pretrained: bool) -> nn.Module:
        calls.append((name, pretrained))
        return Brightness()

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    (tmp_path / "config.json").write_text('{"architecture": "tiny", "pretrained_cfg": {}}')
    assert is_own_model(tmp_path)
    assert certified_class(tmp_path) == 1
    assert calls == [(f"local-dir:{tmp_path}", True)]


def test_names_that_are_no_folders() -> None:
    assert [is_own_model(name) for name in ("a/b.onnx", "pkg.mod:make", "runs/some", "hf://user/name",
    "C:/x")] == [
        True, True, False, False, False,
    ]  # fmt: skip
