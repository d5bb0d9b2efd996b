"""What a user of `import smoothheads as sh` tries first, works or says what to write instead."""

from __future__ import annotations

import ast
import io
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import smoothheads as sh
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import load as load_checkpoint
from smoothheads.cli import main
from smoothheads.errors import ConfigError, DataError, SmoothheadsError
from smoothheads.results import merge, recertify
from smoothheads.runs.certify import certify_run
from smoothheads.runs.ensemble import ensemble_run
from smoothheads.runs.export import export_run
from smoothheads.runs.models import open_checkpoint
from smoothheads.runs.train import train_run

SOURCE = Path(sh.__file__).parent
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
LABELS = np.arange(6) % 2
OWN = {
    *("board.board_html", "board.collect", "board.entry_of", "board.find_logs"),
    "certify.of",
    "certify.with_earlier_seed",
    "models.checksums",
    "models.find_converted",
    "predict.open",
    "ensemble.member_folder",
    "export.copy_files",
    "export.card",
    "make.claim_folder",
    "ledger.reserve_ledger",
    "ledger.claim_folder",
    "ledger.save",
    "plots.ending",
    "plots.require_place",
}
FRAMES: list[str] = []  # that led to the last forward pass
SETTINGS: dict[str, Any] = {"sigma": 0.5, "n0": 20, "n": 200, "seed": 1}


class Brightness(nn.Module):
    """A plain module: two classes by the mean of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        FRAMES[:] = [frame.filename for frame in traceback.extract_stack()]
        score = self.scale * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-score, score], 1)


def smoothed(net: nn.Module | None = None, **changes: Any) -> sh.Smoothed:
    return sh.Smoothed(net or Brightness(), shape=(3, 8, 8), classes=2, **SETTINGS | changes)


@pytest.fixture(scope="module")
def results() -> sh.Results:
    return smoothed().certify(IMAGES, LABELS)


FORMS = {
    "uint8 array": IMAGES,
    "uint8 tensor": torch.from_numpy(IMAGES),
    "float32 tensor": torch.from_numpy(IMAGES).float() / 255,
    "float64 array": IMAGES / 255,
    "channels last": IMAGES.transpose(0, 2, 3, 1),
    "floats, channels last": (IMAGES / 255).astype(np.float32).transpose(0, 2, 3, 1),
}


@pytest.mark.parametrize("images", FORMS.values(), ids=FORMS.keys())
def test_a_plain_module_predicts_a_batch_in_every_form(images: Any) -> None:
    answers = smoothed()(images)
    assert answers.shape == (6,)
    assert answers.tolist() == smoothed()(IMAGES).tolist()
    assert smoothed()(images[0]).tolist() == answers[:1].tolist()


@pytest.mark.parametrize("off", [IMAGES / 255 + 1e-3, torch.rand(6, 3, 8, 8)], ids=["array", "tensor"])
def test_pixels_off_the_grid_are_refused_with_how_to_quantise(off: Any) -> None:
    with pytest.raises(DataError, match=re.escape("np.rint(x * 255).astype(np.uint8)")):
        smoothed()(off)
    with pytest.raises(DataError, match=re.escape("np.rint(x * 255).astype(np.uint8)")):
        smoothed().certify(off, LABELS)


class Hub:
    """The part of `datasets.Dataset` that counts."""

    column_names = ("img", "fine_label")

    def __init__(self) -> None:
        names = type("ClassLabel", (), {"names": ["dark", "bright"]})()
        self.features = {"fine_label": names}

    def __iter__(self) -> Any:
        return ({"img": image, "fine_label": int(label)} for image, label in zip(IMAGES, LABELS, strict=True))


PAIRS = TensorDataset(torch.from_numpy(IMAGES).float() / 255, torch.from_numpy(LABELS))
SOURCES = {"pair": (IMAGES, LABELS), "torch Dataset": PAIRS, "DataLoader": DataLoader(PAIRS, 4), "Hub": Hub()}


@pytest.mark.parametrize("data", SOURCES.values(), ids=SOURCES.keys())
def test_training_and_certification_take_every_kind_of_data(data: Any, results: sh.Results) -> None:
    trained = sh.train(Brightness(), data, sigma=0.5, epochs=1, batch=4, on_event=None)
    assert isinstance(trained.model, sh.MultiHead)
    found = smoothed().certify(data)
    assert [row.votes.counts.tolist() for row in found] == [row.votes.counts.tolist() for row in results]


def test_results_and_their_chain(results: sh.Results, tmp_path: Path) -> None:
    assert len(results) == len(list(results)) == 6
    assert results.acr == pytest.approx(np.mean(results.radius * results.correct))
    assert results.certified_accuracy(0.0) == results.correct.mean()
    ledger = results.save(str(tmp_path / "ledger"))
    log = tmp_path / "log.tsv"
    log.write_text(
        "\n".join(line.rsplit("\t", 8)[0] for line in (ledger / "ledger.tsv").read_text().splitlines())
    )
    for source in (results, ledger, str(ledger), log, str(log)):
        comparison = sh.compare([results, source], align=True)
        assert comparison.differences[0].acr.difference == pytest.approx(0, abs=1e-6)
        assert sh.audit(source).images == 6
        out = tmp_path / f"report-{type(source).__name__}"
        assert sh.report(source, out=str(out)).is_file()  # type: ignore[operator]


def test_results_as_a_data_frame(results: sh.Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SmoothheadsError, match="pip install pandas"):
        results.to_pandas()
    monkeypatch.undo()
    pytest.importorskip("pandas")
    table = results.to_pandas()
    assert table.radius.tolist() == results.radius.tolist()
    assert table.certified_radius.mean() == pytest.approx(results.acr)
    assert {"index", "label", "prediction", "correct", "noisy", "samples"} <= set(table.columns)
    assert len(results.plot(results[:3]).axes[0].lines) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigm": 0.5}, "did you mean 'sigma'"),
        ({"budgt": "table"}, "did you mean 'budget'"),
        ({"budget": "tabel"}, "Unknown budget 'tabel': did you mean 'table'"),
        ({"noise": "gausian"}, "Unknown noise 'gausian': did you mean 'gaussian'"),
        ({"engine": "tensorflow"}, "Unknown engine 'tensorflow'"),
        ({"engine": 3}, "engine is 3; give its name"),
        (
            {"tolerance": 0.1},
            "tolerance belongs to budget radius, not to fixed",
        ),
    ],
)
def test_a_misspelt_setting_suggests_the_nearest(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        smoothed(**settings)


def test_a_component_is_given_by_its_name_too() -> None:
    with pytest.raises(ConfigError, match="did you mean 'table'"):
        CertifyConfig(sigma=0.5, budget="tabel")
    assert sh.ObjectiveConfig(method="macer").method.draws == 16
    with pytest.raises(ConfigError, match="did you mean 'consistency'"):
        sh.ObjectiveConfig(method="consistancy")
    with pytest.raises(ConfigError, match="7 is no data set"):
        sh.RunConfig(data=7)


def test_columns_of_other_names_on_the_command_line(tmp_path: Path) -> None:
    def encoded(image: Any) -> bytes:
        out = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(out, format="png")
        return out.getvalue()

    table = pa.table({"photo": [encoded(image) for image in IMAGES], "kind": LABELS, "extra": LABELS})
    for split in ("train", "test"):
        pq.write_table(table, tmp_path / f"{split}-0.parquet")
    words = f"--data.name parquet --root {tmp_path} --train.epochs 1 --train.batch 4 --out {tmp_path / 'run'}"
    named = "--data.image-column photo --data.label-column kind"
    assert main(["train", "digits-single", *words.split()]) == 2
    assert main(["train", "digits-single", *words.split(), *named.split()]) == 0
    assert load_checkpoint(tmp_path / "run" / "checkpoint").info.shape == (3, 8, 8)


def test_names_that_one_looks_for() -> None:
    assert re.fullmatch(r"\d+\.\d+.*", sh.__version__)
    assert sh.list_architectures("resnet*") == [name for name in sh.list_architectures() if "resnet" in name]
    assert "cifar10-resnet110-some" in sh.recipes.names()
    assert sh.recipe("digits-some").with_overrides({"train.epochs": 3}).train.epochs == 3
    for name in (*sh.__all__, "__version__"):
        assert getattr(sh, name) is not None
        assert name in dir(sh)


def test_paths_are_text_or_path(tmp_path: Path) -> None:
    """From training to an export, with text alone."""
    root = str(tmp_path)
    few = {"train.epochs": 1, "data.subset.first": 40}
    config = sh.recipe("digits-single").with_overrides(few | {"train.batch": 64})
    for seed in (1, 2):
        member = sh.recipe("digits-single").with_overrides(few | {"train.seed": seed})
        train_run(member, f"{root}/run-{seed}")
    joined = ensemble_run([f"{root}/run-1", f"{root}/run-2"], f"{root}/joined")
    assert len(load_checkpoint(str(joined)).model.heads) == 2
    ready = open_checkpoint(f"{root}/run-1")
    test = sh.load_data(config.data).test
    settings = CertifyConfig(sigma=0.5, n0=10, n=100, seed=3)
    images = sh.dataset(
        np.stack([test.image(i) for i in range(2)]), test.labels[:2], classes=10, max_value=16
    )
    for number in range(2):
        certify_run(ready, images, settings, f"{root}/shard-{number}", shard=(number, 2))
    whole = merge([f"{root}/shard-0", f"{root}/shard-1"], f"{root}/run-1/ledger")
    assert recertify(str(whole), f"{root}/again", alpha=0.01).is_dir()
    out = export_run(f"{root}/run-1/ledger", f"{root}/export")
    assert sh.from_pretrained(str(out))(images.image(0)).shape == (1,)


def test_public_functions_say_that_they_take_text_as_a_path() -> None:
    """Of runs, report and results; what only the package itself calls is left out."""
    wrong = []
    for file in (file for part in ("runs", "report", "results") for file in (SOURCE / part).glob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef) and not function.name.startswith("_"):
                arguments = [*function.args.args, *function.args.kwonlyargs]
                hints = [ast.unparse(a.annotation) for a in arguments if a.annotation is not None]
                strict = any(re.search(r"\bPath\b", hint) and "str" not in hint for hint in hints)
                wrong += [f"{file.stem}.{function.name}"] if strict else []
    assert set(wrong) - OWN == set()


def test_eight_frames_from_certify_to_the_network() -> None:
    """Ours alone, from Smoothed.certify to MultiHead.forward: a reader holds them in the head."""
    smoothed().certify(IMAGES[:1], LABELS[:1])
    files = [Path(name) for name in FRAMES]
    ours = [file.relative_to(SOURCE).as_posix() for file in files if file.is_relative_to(SOURCE)]
    assert ours[0] == "smoothed.py"
    assert len(dict.fromkeys(ours)) <= 6
    assert len([name for name in ours if name != "models/multihead.py"]) <= 8


def test_certify_in_one_call_with_numbers_as_people_type_them() -> None:
    """The last layer of this network is its bias, so that every image has class 1 with certainty."""
    layer = nn.Linear(64, 3)
    nn.init.zeros_(layer.weight)
    layer.bias.data = torch.tensor([0.0, 1.0, 0.0])
    network = nn.Sequential(nn.Flatten(), layer)
    certify: Any = sh.certify  # for mypy the name is that of the package
    images, labels = np.zeros((3, 1, 8, 8), np.uint8), np.array([1, 1, 2])
    settings = {"sigma": "0.25", "n": 1e3, "classes": 3, "seed": 0}
    results = certify(network, images, labels, **settings)
    assert results.manifest is not None
    assert (results.manifest.certify.sigma, results.manifest.certify.n) == (0.25, 1000)
    assert results.correct.tolist() == [True, True, False]
    assert len(set(results.radius.tolist())) == 1
    for wrong, message in (("many", "Set n to a number, not 'many'"), (10.5, "Set n to a whole number")):
        with pytest.raises(ConfigError, match=message):
            certify(network, images, labels, **settings | {"n": wrong})


class Answering(nn.Module):
    """Wraps the logits of a network in another answer."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network, self.wrap = Brightness(), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.network(x))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: {"logits": logits, "hidden": logits.sum()},
        lambda logits: {"out": logits},
        lambda logits: (logits, logits.sum()),
        lambda logits: [logits, logits[:, :1]],
        lambda logits: SimpleNamespace(logits=logits, loss=None),
    ],
    ids=["mapping", "mapping of one", "tuple", "list", "object"],
)
def test_networks_answer_in_every_usual_form(wrap: Callable[[Tensor], Any], results: sh.Results) -> None:
    assert smoothed(Answering(wrap)).certify(IMAGES, LABELS)["votes"].tolist() == results["votes"].tolist()


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda logits: {"a": logits, "b": logits}, "returns a mapping with a, b: return the logits"),
        (lambda _: None, "returns None: return logits"),
        (lambda _: "cat", "returns 'cat': return logits"),
    ],
)
def test_other_answers_are_refused_in_one_sentence(wrap: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        smoothed(Answering(wrap)).certify(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Brightness, r"Brightness is a class: pass an instance, as in Brightness\(\)"),
        ("runs/mine", "open a checkpoint, a run or an export with sh.from_pretrained"),
    ],
)
def test_networks_in_other_forms_are_refused_in_one_sentence(network: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        smoothed(network)


def test_the_bar_of_a_certification_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    certify: Any = sh.certify
    for progress in (True, False):
        text = io.StringIO()
        terminal = Console(file=text, force_terminal=True)
        monkeypatch.setattr("smoothheads.smoothed.Console", lambda *, stderr, shown=terminal: shown)
        certify(Brightness(), IMAGES, LABELS, progress=progress, **SETTINGS)
        assert ("certify" in text.getvalue()) == progress


def test_results_show_themselves(results: sh.Results) -> None:
    assert len(repr(results).splitlines()) == 5
    assert re.fullmatch(r"Row\(index=0, label=0, prediction=-?\d, .*samples=220\)", repr(results[0]))
    assert repr(smoothed()).startswith("Smoothed(1 head(s), 2 classes, images 3x8x8, sigma 0.5")
    assert repr(sh.audit(results)).startswith(
        "Audit of arrays: 6 images, sound\n"
        "  note: inferred: the 2 largest radii fit n = 200 with alpha = 0.001"
    )
    assert len(results.plot([results[:2], results[2:]]).axes[0].lines) == 3
    assert results.certified_accuracy([0.0, 9.0]).tolist() == [results.correct.mean(), 0]
    with pytest.raises(IndexError, match="arrays has 6 images, so there is no image at 6"):
        _ = results[6]


def test_results_are_compared_one_by_one_or_as_a_list(results: sh.Results) -> None:
    for comparison in (sh.compare(results, results), sh.compare([results, results])):
        assert [log.name for log in comparison.logs] == ["arrays (1)", "arrays (2)"]
        assert "arrays (2) against arrays (1): ACR +0.0000" in repr(comparison)


def test_images_without_labels_ask_for_labels() -> None:
    with pytest.raises(DataError, match=r"pass images and labels, as in \(images, labels\)"):
        smoothed().certify(IMAGES)
