"""A classifier goes to the Hub and comes back the same, or not at all."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.example import example_export

import smoothheads as sh
from smoothheads import hub as hubs
from smoothheads import zoo
from smoothheads.cli import main
from smoothheads.errors import CheckpointError, HubError
from smoothheads.runs.export import push

from .conftest import Hub

REPO = "models/user/some"
IMAGE = np.arange(64, dtype=np.uint8).reshape(1, 8, 8) % 17


def test_an_export_comes_back_as_the_same_function(hub: Hub) -> None:
    address = push(example_export(), "user/some", private=True)
    assert address.startswith("hf://user/some@")
    for place in ("hf://user/some", address):
        smoothed = sh.from_pretrained(place, seed=0)
        here = sh.from_pretrained(example_export(), seed=0)
        assert smoothed.predict(IMAGE, 0)[1].tolist() == here.predict(IMAGE, 0)[1].tolist()


def test_pushing_leaves_the_folder_as_it_was(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(example_export(), "run")
    (tmp_path / "run" / "README.md").write_text("mine")  # the card has that name too
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for place in ("run", "run/checkpoint"):
        push(place, "user/some")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_card_has_the_table_and_the_guarantee(hub: Hub) -> None:
    push(example_export(), "user/some")
    card = hub.repositories[REPO][hub.refs[REPO]["main"]]["README.md"].decode()
    _, front, body = card.split("---\n", 2)
    facts = json.loads((example_export() / "export.json").read_text())["summary"]
    metrics = json.loads(front)["model-index"][0]["results"][0]["metrics"]
    assert [each["value"] for each in metrics[:-1]] == [
        round(each["value"], 6) for each in facts["certified"]
    ]
    assert metrics[-1]["name"] == "Average certified radius"
    assert "What is guaranteed" in body
    assert "can be certified as well" in body
    assert 'sh.from_pretrained("hf://user/some")' in body
    from huggingface_hub import ModelCard

    results = getattr(ModelCard(card).data, "eval_results")  # noqa: B009
    assert results[0].metric_type == "certified_accuracy"


def test_the_code_of_the_card_runs(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, line by line."""
    push(example_export(), "user/some")
    card = hub.repositories[REPO][hub.refs[REPO]["main"]]["README.md"].decode()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Image.fromarray(IMAGE[0] * 15).save("image.png")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["result"].radius >= 0
    assert names["smoothed"].info.classes == 10


def test_a_run_with_a_ledger_is_exported_and_a_checkpoint_is_pushed_as_it_is(
    hub: Hub, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(example_export() / "checkpoint", run / "checkpoint")
    push(run, "user/some")
    files = hub.repositories[REPO][hub.refs[REPO]["main"]]
    assert "checkpoint/model.safetensors" in files
    assert "ledger/ledger.tsv" not in files
    assert sh.from_pretrained("hf://user/some", n=200).predict(IMAGE)[1].sum() == 200
    shutil.copytree(example_export() / "ledger", run / "ledger")
    push(run, "user/some")
    assert {"ledger/ledger.tsv", "SHA256SUMS", "export.json"} <= set(
        hub.repositories[REPO][hub.refs[REPO]["main"]]
    )


def test_network_of_the_zoo_is_pushed(hub: Hub) -> None:
    assert main(["push", "zoo:denoiser", "user/some"]) == 0
    files = hub.repositories[REPO][hub.refs[REPO]["main"]]
    card = files["README.md"].decode()
    assert '"pipeline_tag": "image-to-image"' in card
    assert "sh.denoised(classifier, denoiser, sigma=0.25)" in card
    weights = zoo.find("zoo:denoiser") / "model.safetensors"
    assert files["checkpoint/model.safetensors"] == weights.read_bytes()


def test_a_revision_stays_what_it_was(hub: Hub, tmp_path: Path) -> None:
    first = push(example_export(), "user/some")
    hub.commit(REPO, "main", {"checkpoint/config.json": b"{}"})
    assert sh.from_pretrained(first).predict(IMAGE)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        sh.from_pretrained("hf://user/some")
    push(example_export(), "user/some", revision="v1")
    assert sh.from_pretrained("hf://user/some@v1").predict(IMAGE)
    with pytest.raises(HubError, match="no such revision"):
        sh.from_pretrained("hf://user/some@v2")


def test_files_that_changed_on_the_way_are_refused(hub: Hub) -> None:
    push(example_export(), "user/some")
    weights = (example_export() / "checkpoint" / "model.safetensors").read_bytes()
    hub.commit(REPO, "main", {"checkpoint/model.safetensors": weights[:-1] + b"x"})
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        sh.from_pretrained("hf://user/some")


def test_a_missing_file_is_refused(hub: Hub) -> None:
    push(example_export(), "user/some")
    digest = hub.refs[REPO]["main"]
    del hub.repositories[REPO][digest]["checkpoint/manifest.json"]
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        sh.from_pretrained("hf://user/some")


def test_a_torn_download_is_refused_and_mended_the_next_time(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    push(example_export(), "user/some")
    hub.truncate = "checkpoint/model.safetensors"
    with pytest.raises(HubError, match="user/some"):
        sh.from_pretrained("hf://user/some")
    hub.truncate = None
    assert sh.from_pretrained("hf://user/some").predict(IMAGE)


def test_without_a_network_the_copy_serves(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    push(example_export(), "user/some")
    sh.from_pretrained("hf://user/some")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    assert sh.from_pretrained("hf://user/some").predict(IMAGE)
    with pytest.raises(HubError, match="cannot be reached, and there is no local copy"):
        sh.from_pretrained("hf://user/other")


def test_what_is_not_there(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="does not exist or is private"):
        sh.from_pretrained("hf://user/other")
    with pytest.raises(CheckpointError):
        push(tmp_path, "user/some")
    assert REPO not in hub.repositories


@pytest.mark.parametrize("text", ["hf://", "hf://user", "hf://user/", "hf://../x", "hf://a/b/c", "hf://a/b@"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(HubError, match="user/name"):
        hubs.local(text)


def test_no_code_of_a_repository_is_run(hub: Hub, tmp_path: Path) -> None:
    push(example_export(), "user/some")
    sprung = tmp_path / "sprung"
    trap = f"import pathlib; pathlib.Path({str(sprung)!r}).touch()".encode()
    names = ("config.py", "__init__.py", "modeling.py", "setup.py", "checkpoint/pickle.pkl")
    hub.commit(REPO, "main", dict.fromkeys(names, trap))
    assert sh.from_pretrained("hf://user/some").predict(IMAGE)
    assert not sprung.exists()
    exec(trap)  # which works
    assert sprung.exists()


def test_the_commands_take_an_address(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(example_export()), "user/some"]) == 0
    address = capsys.readouterr().out.strip()
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    assert main(["predict", address, str(tmp_path / "image.png"), "--n", "100"]) == 0
    assert "image.png" in capsys.readouterr().out
    assert main(["info", address]) == 0
    assert main(["certify", "hf://user/some"]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["predict", "hf://user/none", "x.png"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_data_set_by_its_address(hub: Hub) -> None:
    """With column names of its own; nothing but parquet is fetched."""
    import pyarrow
    from pyarrow import parquet

    from smoothheads.data import load_test
    from smoothheads.data.parquet import Parquet

    out = io.BytesIO()
    Image.new("L", (4, 4), 7).save(out, "png")
    table = pyarrow.table({"photo": [{"bytes": out.getvalue(), "path": None}] * 6, "kind": [0, 1] * 3})
    file = io.BytesIO()
    parquet.write_table(table, file)
    files = {f"data/{split}-00000-of-00001.parquet": file.getvalue() for split in ("train", "test")}
    hub.commit("datasets/user/flowers", "main", files | {"flowers.py": b"raise SystemExit"})
    config = Parquet(root="hf://datasets/user/flowers", image_column="photo", label_column="kind")
    dataset = load_test(config)
    assert (len(dataset), dataset.info.shape, dataset.info.name) == (6, (1, 4, 4), "flowers")
    assert not any("flowers.py" in request for request in hub.requests)
