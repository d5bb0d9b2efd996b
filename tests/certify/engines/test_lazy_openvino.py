"""Lazy consensus on OpenVINO: two files, and the votes of exactly these two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import convert
from smoothheads.certify.engines import openvino as extra
from smoothheads.certify.engines.lazy import Lazy
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import CheckpointError, ConfigError, SoundnessError
from smoothheads.models import ModelConfig
from smoothheads.models.aggregate import aggregate_votes, aggregations
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.runs.certify import certify_run
from smoothheads.training import RunConfig
from smoothheads.types import Phase

from .builders import choose, make_engine

AGGREGATION = "consensus-2"
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "int8"])
Make = Callable[..., Lazy]

pytestmark = pytest.mark.openvino


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "CALIBRATION", 20)


@pytest.fixture
def lazy(config: CertifyConfig) -> CertifyConfig:
    return config.changed(engine="openvino", aggregation=AGGREGATION, lazy_consensus=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files lie that no test changes."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def make(lazy: CertifyConfig, agreeing: MultiHead, small_digits: Splits, noise: Noise, made: Path) -> Make:
    def one(precision: Literal["float32", "int8"], **options: Any) -> Lazy:
        given: dict[str, Any] = {"artefacts": made, "training": lambda: small_digits.train} | options
        settings = lazy.changed(precision=precision)
        engine = make_engine(settings, agreeing, small_digits.train.info, noise, **given)
        assert isinstance(engine, Lazy)
        return engine

    return one


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("model.*"))}


def network(root: Path, name: str, shape: tuple[int, ...]) -> Any:
    """One of the files as it runs in the engine: compiled for blocks of one size."""
    core = extra.openvino().Core()
    (path,) = root.glob(f"*/{name}/model.xml")
    model = core.read_model(path)
    model.reshape([20, *shape])
    return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})


def in_full(root: Path, precision: str, blocks: list[NDArray[np.float32]]) -> Tensor:
    """Logits of all heads for all copies, from the two files."""
    early = network(root, f"*-{precision}-*early", (1, 8, 8))
    late = network(root, f"*-{precision}-*late", (32, 4, 4))
    logits = []
    for copies in blocks:
        first = early(copies)
        logits.append(np.concatenate([first[0], late(first[1])[0]]))
    return torch.from_numpy(np.concatenate(logits, 1))


@PRECISIONS
def test_the_votes_are_those_of_its_two_files_in_full(
    make: Make, small_digits: Splits, noise: Noise, made: Path, precision: str
) -> None:
    engine, image = make(precision), small_digits.test.image(3)
    got = engine.votes(image, 3, Phase.ESTIMATION, 0, 190)
    blocks = [noise.noisy(image, 3, Phase.ESTIMATION, block) for block in range(10)]
    classes_N = aggregate_votes(in_full(made, precision, blocks)[:, :190])[aggregations(4).index(AGGREGATION)]
    np.testing.assert_array_equal(got.for_aggregation(AGGREGATION), np.bincount(classes_N, minlength=10))
    assert 0 < engine.work.agreement < 1
    assert 0 < engine.work.late_passes < engine.work.passes == 10


def test_in_float32_they_are_those_of_the_whole_network(
    *, make: Make, lazy: CertifyConfig, agreeing: MultiHead, small_digits: Splits, noise: Noise
) -> None:
    whole = make_engine(lazy.changed(lazy_consensus=False), agreeing, small_digits.train.info, noise)
    engine, image = make("float32"), small_digits.test.image(3)
    expected, got = (each.votes(image, 3, Phase.ESTIMATION, 0, 190) for each in (whole, engine))
    np.testing.assert_array_equal(got.for_aggregation(AGGREGATION), expected.for_aggregation(AGGREGATION))


@PRECISIONS
def test_votes_do_not_depend_on_what_is_asked_for_at_once(
    make: Make, small_digits: Splits, precision: str
) -> None:
    image = small_digits.test.image(5)
    at_once = make(precision).votes(image, 5, Phase.ESTIMATION, 0, 90)
    again = make(precision)  # another engine from the same files, asked backwards
    parts = [again.votes(image, 5, Phase.ESTIMATION, b, n) for b, n in ((4, 10), (1, 60), (0, 20))]
    np.testing.assert_array_equal(at_once.counts, sum(part.counts for part in parts))


def test_the_files_are_made_once_and_named(make: Make, made: Path) -> None:
    engine, before = make("int8"), files(made)
    names = [f"openvino-int8-grid-0.5-consensus-2-{part}" for part in ("early", "late")]
    told = engine.describe()
    facts = [json.loads((next(made.rglob(name)) / "artefact.json").read_text()) for name in names]
    for part, fact in zip(("early", "late"), facts, strict=True):
        assert told["artefact"][part]["sha256"] == fact["sha256"]
    assert facts[1]["early"] == facts[0]["sha256"]
    assert (told["lazy_consensus"], told["first_heads"], told["calibration"]["images"]) == (True, 2, 20)

    def unwanted() -> Dataset:
        raise AssertionError("the images are not needed again")

    again = make("int8", training=unwanted)
    assert (again.describe(), again.fingerprint()) == (told, engine.fingerprint())
    assert files(made) == before
    assert make("float32").fingerprint() != engine.fingerprint()


@pytest.mark.parametrize("part", ["early", "late"])
def test_a_changed_file_is_refused(make: Make, tmp_path: Path, part: str) -> None:
    make("float32", artefacts=tmp_path)
    path = next(tmp_path.rglob(f"*-{part}")) / "model.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"expected sha256 .*; delete .*-{part} to"):
        make("float32", artefacts=tmp_path)


def test_a_second_part_is_refused_beside_another_first_one(make: Make, tmp_path: Path) -> None:
    make("float32", artefacts=tmp_path)
    facts = next(tmp_path.rglob("*-late")) / "artefact.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"early": "0" * 64}))
    with pytest.raises(CheckpointError, match=r"expected early .*-late, got 0000"):
        make("float32", artefacts=tmp_path)


def test_other_heads_that_are_not_finite_are_refused(
    make: Make, agreeing: MultiHead, small_digits: Splits
) -> None:
    last = next(module for module in agreeing.heads[3].modules() if isinstance(module, nn.Linear))
    last.bias.data[0] = torch.nan
    engine = make("float32")
    with pytest.raises(SoundnessError, match="of image 7 with NaN or infinite logits"):
        engine.votes(small_digits.test.image(7), 7, Phase.ESTIMATION, 0, 200)


class ByPlace:
    """A request to whose last bits the place matters."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def infer(self, *arguments: Any, **options: Any) -> list[NDArray[np.float32]]:
        logits = np.array(self._request.infer(*arguments, **options)[0])
        logits[:, 0] += 1e-6
        return [logits]


def test_where_the_place_moves_a_bit_it_is_refused_and_auto_takes_the_other_engine(
    *,
    make: Make,
    made: Path,
    lazy: CertifyConfig,
    agreeing: MultiHead,
    small_digits: Splits,
    noise: Noise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("smoothheads.certify.engines.auto.SHORT_SECONDS", 0.0)
    monkeypatch.setattr("smoothheads.certify.engines.auto.TRIAL_SECONDS", 0.0)
    compiled = extra.LazyOpenVinoEngine._compiled

    def by_place(self: Any, artefact: Any, shape: Any) -> Any:
        request = compiled(self, artefact, shape)
        return ByPlace(request) if artefact.folder.name.endswith("late") else request

    auto, info = lazy.changed(engine="auto", blocks_per_pass=1, compile="off"), small_digits.train.info
    both = choose(auto, agreeing, info, noise, artefacts=made)
    assert "torch" in both.notes[0]
    assert "openvino" in both.notes[0]
    monkeypatch.setattr(extra.LazyOpenVinoEngine, "_compiled", by_place)
    with pytest.raises(SoundnessError, match="with its place in the batch; use another engine, or lazy_cons"):
        make("float32")
    one = choose(auto, agreeing, info, noise, artefacts=made)
    assert one.config.engine.name == "torch"
    assert one.notes[0].startswith("engine openvino left out: expected logits that depend on the noisy image")


def test_a_trunk_that_does_nothing(
    make: Make, small_digits: Splits, noise: Noise, lazy: CertifyConfig
) -> None:
    torch.manual_seed(0)
    model = MultiHead(nn.Identity(), [nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(4)])
    info, image = small_digits.train.info, small_digits.test.image(0)
    engines = [make_engine(lazy.changed(engine=name), model, info, noise) for name in ("openvino", "torch")]
    one, other = (
        engine.votes(image, 0, Phase.ESTIMATION, 0, 200).for_aggregation(AGGREGATION) for engine in engines
    )
    assert np.abs(one - other).sum() <= 4  # a copy or two so near to a boundary that rounding decides


def test_a_rule_without_other_heads_is_refused_before_anything_is_made(
    lazy: CertifyConfig, agreeing: MultiHead, small_digits: Splits, noise: Noise, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="Unknown consensus of this network 'consensus-4'"):
        make_engine(
            lazy.changed(aggregation="consensus-4"),
            agreeing,
            small_digits.train.info,
            noise,
            artefacts=tmp_path,
        )
    assert not files(tmp_path)


def test_two_workers_write_the_same_ledger_and_tell_the_same_work(
    *, lazy: CertifyConfig, agreeing: MultiHead, small_digits: Splits, made: Path, tmp_path: Path
) -> None:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=4))
    checkpoint.save(tmp_path / "network", agreeing, run, small_digits.train.info)
    ready, data = checkpoint.load(tmp_path / "network"), select(small_digits.test, SubsetConfig(first=4))
    settings = lazy.changed(precision="int8")
    said: list[str] = []
    ledgers = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        certify_run(
            ready,
            data,
            settings,
            out,
            workers=workers,
            artefacts=made,
            training=lambda: small_digits.train,
            on_note=said.append,
        )
        lines = (out / "ledger.tsv").read_text().splitlines()
        ledgers.append([line.split("\t")[:5] + line.split("\t")[6:] for line in lines])
    assert ledgers[0] == ledgers[1]
    assert len(ledgers[0]) == 5
    assert said[0] == said[1]
    assert "of 480 samples; the other heads were spared" in said[0]
    assert '"first_heads": 2' in (tmp_path / "1" / "manifest.json").read_text()
