"""Every reader of files from outside, each given one damaged file of its kind at a time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tests.data import builders
from tests.example import example_export, example_run

from smoothheads import checkpoint
from smoothheads.attack.outcome import COLUMNS as ATTACK_COLUMNS
from smoothheads.attack.outcome import FORMAT as ATTACK_FORMAT
from smoothheads.attack.outcome import load_attack
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import conversion
from smoothheads.checkpoint import load_state, save_state
from smoothheads.checkpoint.legacy import read_legacy
from smoothheads.config import from_dict, load_json
from smoothheads.data import as_dataset, load_test
from smoothheads.data.inputs import read_image
from smoothheads.results.audit import audit
from smoothheads.results.compare import compare, summarize
from smoothheads.results.derive import linf, merge, recertified, top_k
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.runs.models import Export
from smoothheads.training import RunConfig
from smoothheads.training.loop import TrainState

from .mutate import damage_bytes, damage_json, damage_table

Once = Callable[[Random], object]
Make = Callable[[Path], Once]
"""Puts good files into a folder; what comes back damages one of them, reads it and puts it back."""

READERS: dict[str, Make] = {}


def reader(make: Make) -> Make:
    READERS[make.__name__] = make
    return make


def damaged(path: Path, rng: Random) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".json":
        return damage_json(json.loads(data), rng)
    return (damage_table if path.suffix == ".tsv" else damage_bytes)(data, rng)


def with_one_damaged(paths: list[Path], read: Callable[[], object], mend: Callable[[], None]) -> Once:
    """`mend` corrects the checksums that would keep the damage from being looked at, half of the time."""

    def once(rng: Random) -> object:
        path = rng.choice(paths)
        good = {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
        path.write_bytes(damaged(path, rng))
        try:
            if rng.random() < 0.7:
                mend()
            return read()
        finally:
            for each, data in good.items():
                each.write_bytes(data)

    return once


def nothing() -> None:
    pass


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@reader
def run_config(root: Path) -> Once:
    path = root / "config.json"
    shutil.copy(example_run() / "config.json", path)
    return with_one_damaged([path], lambda: from_dict(RunConfig, load_json(path)), nothing)


@reader
def certify_config(root: Path) -> Once:
    path = root / "certify.json"
    manifest = json.loads((example_run() / "ledger-table" / "manifest.json").read_bytes())
    path.write_text(json.dumps(manifest["certify"]))
    return with_one_damaged([path], lambda: from_dict(CertifyConfig, load_json(path)), nothing)


@reader
def checkpoints(root: Path) -> Once:
    folder = root / "checkpoint"
    shutil.copytree(example_run() / "checkpoint", folder)
    files = [folder / name for name in ("config.json", "manifest.json", "model.safetensors")]

    def mend() -> None:
        try:
            manifest = json.loads(files[1].read_bytes())
            manifest["sha256"] = {path.name: sha256(path) for path in (files[0], files[2])}
            files[1].write_text(json.dumps(manifest))
        except (ValueError, TypeError, RecursionError):
            pass

    return with_one_damaged(files, lambda: checkpoint.load(folder), mend)


@reader
def training_states(root: Path) -> Once:
    path = root / "state.safetensors"
    save_state(path, TrainState({"model.a": torch.ones(4, 4)}, {"epoch": 1, "meter": {"sums": {}}}), size=7)
    good = path.read_bytes()
    header = json.loads(good[8 : 8 + struct.unpack("<Q", good[:8])[0]])

    def once(rng: Random) -> object:
        if rng.random() < 0.5:
            text = damage_json(header, rng)
            path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
        else:
            path.write_bytes(damage_bytes(good, rng))
        return load_state(path)

    return once


def ledgers(read: Callable[[Path], object], name: str) -> Make:
    def make(root: Path) -> Once:
        folders = []
        for source in sorted(example_run().glob("ledger-*")):
            folders.append(Path(shutil.copytree(source, root / source.name)))

        def once(rng: Random) -> object:
            folder = rng.choice(folders)
            paths = [folder / "manifest.json", folder / "manifest.json", folder / "ledger.tsv"]
            return with_one_damaged(paths, lambda: read(folder), nothing)(rng)

        return once

    make.__name__ = name
    return reader(make)


def _merge(folder: Path) -> object:
    out = folder.parent / "merged"
    shutil.rmtree(out, ignore_errors=True)
    other = folder.parent / "ledger-1-of-2"
    return merge([folder, other] if other != folder else [folder], out)


ledgers(audit, "audit")
ledgers(lambda folder: summarize(read_log(folder)), "summary")
ledgers(lambda folder: recertified(read_log(folder), alpha=0.01), "recertify")
ledgers(lambda folder: (linf(read_log(folder)), top_k(read_log(folder), 2)), "threats")
ledgers(lambda folder: compare([read_log(folder), read_log(folder)], resamples=20), "comparison")
ledgers(_merge, "merging")


@reader
def foreign_logs(root: Path) -> Once:
    path = root / "log.tsv"
    rows = [
        f"{20 * i}\t{i % 10}\t{i % 10 if i % 7 else -1}\t{0.1 * i:.3}\t1\t0:00:0{i % 9}.5" for i in range(30)
    ]
    path.write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *rows]))
    return with_one_damaged([path], lambda: (audit(path), summarize(read_log(path))), nothing)


@reader
def exports(root: Path) -> Once:
    folder = root / "export"
    shutil.copytree(example_export(), folder)
    files = [path for path in folder.rglob("*.json") if path.parent.name != "checkpoint"]

    def mend() -> None:
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        lines = [f"{sha256(folder / name)}  {name}\n" for name in names if name != "SHA256SUMS"]
        (folder / "SHA256SUMS").write_text("".join(lines))

    once = with_one_damaged([*files, folder / "SHA256SUMS"], lambda: Export.open(folder), mend)

    def and_restore(rng: Random) -> object:
        try:
            return once(rng)
        finally:
            shutil.copy(example_export() / "SHA256SUMS", folder)

    return and_restore


@reader
def converted_networks(root: Path) -> Once:
    def build(folder: Path) -> dict[str, Any]:
        (folder / "model.xml").write_text("<net/>")
        (folder / "model.bin").write_bytes(bytes(16))
        return {"versions": {"openvino": "1"}}

    wanted = {"format": conversion.OPENVINO, "weights": "w", "network": "n"}
    made = conversion.obtain(root, "made", wanted, build)

    def read() -> object:
        return conversion.load_converted(made.folder, made.sha256).sha256

    return with_one_damaged([made.folder / conversion.FACTS], read, nothing)


@reader
def attacks(root: Path) -> Once:
    about, table = root / "attack.json", root / "attack.tsv"
    about.write_text(json.dumps({"format": ATTACK_FORMAT, "facts": {"seed": 1, "steps": [1, 2]}}))
    table.write_text(
        "\n".join(
            ["\t".join(ATTACK_COLUMNS), "0\t1\t1\t0.5\t100\t-\t90\t3\t0.6", "1\t2\t2\t0.4\t9\t1\t-\t-\t-"]
        )
    )
    return with_one_damaged([about, table], lambda: load_attack(root / "attack"), nothing)


def data_sets(build: Callable[[Path], Any], pattern: str, rewrap: Callable[[bytes, Random], bytes]) -> Make:
    """`rewrap` damages what is inside a compressed file, whose checksum then is right."""

    def make(root: Path) -> Once:
        config = build(root)
        paths = sorted(path for path in root.rglob(pattern) if path.is_file())

        def once(rng: Random) -> object:
            path = rng.choice(paths)
            good = path.read_bytes()
            path.write_bytes(rewrap(good, rng) if rng.random() < 0.6 else damage_bytes(good, rng))
            try:
                test = load_test(config)
                return [test.image(position) for position in range(min(2, len(test)))]
            finally:
                path.write_bytes(good)

        return once

    make.__name__ = build.__name__
    return reader(make)


def _in_gzip(data: bytes, rng: Random) -> bytes:
    return gzip.compress(damage_bytes(gzip.decompress(data), rng), 1)


def _in_zip(data: bytes, rng: Random) -> bytes:
    """One member damaged; its first bytes, where headers are, more often."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = rng.choice([name for name in names if not name.endswith("/")])
        for name in names:
            content = old.read(name)
            if name == chosen:
                cut = rng.choice((128, 1024, len(content)))
                content = damage_bytes(content[:cut], rng) + content[cut:]
            new.writestr(name, content)
    return out.getvalue()


data_sets(builders.cifar10_python_archive, "*.tar.gz", _in_gzip)
data_sets(builders.cifar10_parquet, "test-*.parquet", damage_bytes)
data_sets(builders.mnist_plain, "t10k-*", damage_bytes)
data_sets(builders.fashion_packed, "t10k-*", _in_gzip)
data_sets(builders.npz_file, "*.npz", _in_zip)
data_sets(builders.folder_of_images, "val/n01/*", damage_bytes)


@reader
def pictures(root: Path) -> Once:
    from PIL import Image

    info = as_dataset(np.zeros((2, 8, 9, 3), np.uint8), [0, 1]).info
    seeds = []
    for kind, mode in (
        ("PNG", "RGB"),
        ("PNG", "P"),
        ("JPEG", "RGB"),
        ("BMP", "RGB"),
        ("PPM", "RGB"),
        ("WEBP", "RGB"),
    ):
        file = io.BytesIO()
        Image.effect_noise((9, 8), 90).convert(mode).save(file, kind)
        seeds.append(file.getvalue())

    def once(rng: Random) -> object:
        path = root / "image"
        path.write_bytes(damage_bytes(rng.choice(seeds), rng))
        return read_image(path, info)

    return once


@reader
def foreign_weights(root: Path) -> Once:
    state = {"module.fc.weight": torch.ones(3, 2), "module.fc.bias": torch.zeros(3)}
    seeds = []
    for zipped in (True, False):
        for protocol in (2, 4):
            file = io.BytesIO()
            torch.save(
                {"state_dict": state, "epoch": 3},
                file,
                pickle_protocol=protocol,
                _use_new_zipfile_serialization=zipped,
            )
            seeds.append(file.getvalue())
    seeds.append(pickle.dumps({"a": [1, 2]}, 4))

    def once(rng: Random) -> object:
        path, data = root / "weights.pth", rng.choice(seeds)
        inside = data[:2] == b"PK" and rng.random() < 0.7
        path.write_bytes((_in_zip if inside else damage_bytes)(data, rng))
        return read_legacy(path)

    return once


@reader
def study_results(root: Path) -> Once:
    """The folder that `study --out` writes: study.json and rows, read and shown as tables."""
    from smoothheads.report.table import to_text
    from smoothheads.studies.results import (
        GapCurve,
        NetworkSize,
        RowFacts,
        StudyResults,
        StudyRow,
        load,
        save,
    )
    from smoothheads.studies.tables import all_tables, costs

    log = small_results()
    facts = RowFacts(
        certification="0" * 20,
        aggregation="ensemble",
        weights=("0" * 64,),
        loss=1.0,
        processors=("none",),
        size=NetworkSize(params=10, gmacs=0.1, gmacs_paper=0.1, head_fraction=0.0),
    )
    curve = GapCurve(
        image=0, sigma=0.25, draws=2, edges=(0.0, 1.0), counts=(2,), below=0.0, mean=0.5, deviation=0.1
    )
    study = StudyResults(
        name="small",
        title="Small",
        arms={"a": "one", "b": "two"},
        radii=(0.0, 0.25),
        differences=(("b", "a"),),
        rows=tuple(StudyRow("", 0.25, arm, 0, log, facts) for arm in "ab"),
        certify={"budget": "table", "n": 100},
        gaps={"a": curve},
    )
    folder = root / "study"
    save(study, folder)

    def read() -> object:
        found = load(folder)
        return [to_text(table) for table in (*all_tables(found), costs(found))]

    study_file, good = folder / "study.json", (folder / "study.json").read_text()
    (row,) = (folder / "rows").iterdir()
    plain = with_one_damaged([study_file, row], read, nothing)

    def once(rng: Random) -> object:
        if rng.random() < 0.6:
            return plain(rng)
        # Whoever changes rows on purpose makes their checksum agree.
        data = gzip.compress(damage_table(gzip.decompress(row.read_bytes()), rng), mtime=0)
        name = hashlib.sha256(data).hexdigest()[:16]
        changed = row.with_name(f"{name}.tsv.gz")
        if changed == row:
            return read()
        changed.write_bytes(data)
        study_file.write_text(good.replace(row.name.removesuffix(".tsv.gz"), name))
        try:
            return read()
        finally:
            study_file.write_text(good)
            changed.unlink()

    return once


@reader
def measured_costs(root: Path) -> Once:
    from smoothheads.report.table import to_text
    from smoothheads.studies import costs
    from smoothheads.studies.costs import CostSettings

    measured = costs.Costs(
        settings=CostSettings(arch="resnet8", side=8, rounds=2),
        machine={"processor": "none"},
        train={"gaussian some": (1.0, 2.0), "gaussian dnn5": (1.0, 2.0)},
        certify={"gaussian some": (1.0, 2.0), "gaussian dnn5": (1.0, 2.0)},
        params={"gaussian some": 3, "gaussian dnn5": 3},
        gflops={"gaussian some": 3.0, "gaussian dnn5": 3.0},
    )
    costs.save(measured, root)

    def read() -> object:
        found = costs.load(root)
        assert found is not None
        return found.ratios(), to_text(costs.table("table2", found))

    return with_one_damaged([root / costs.FILE], read, nothing)


def small_results() -> Results:
    """A log of 20 images, as a study has them."""
    images = np.arange(20)
    return Results(
        name="small",
        index=images,
        label=images % 4,
        prediction=images % 3,
        radius=images / 40,
        seconds=np.ones(20),
        noisy=images / 20,
        samples=np.full(20, 100),
    )
