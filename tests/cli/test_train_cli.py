from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothheads import checkpoint, recipes
from smoothheads.cli import main
from smoothheads.data import SubsetConfig
from smoothheads.runs.train import train_run
from smoothheads.training.loop import Plan, StepDone

FEW = ["--train.epochs", "1", "--data.subset.first", "24"]


def test_help_has_the_options_of_the_recipe_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "digits-some", "--help"])
    text = capsys.readouterr().out
    options = re.findall(r"^\W*(--[a-z][a-z.-]+) ", text, re.MULTILINE)
    assert options[:3] == ["--sigma", "--method", "--heads"]
    assert {"--data.name", "--root", "--train.epochs", "--objective.method.draws"} <= {*options}
    assert not re.search(r"default: (None|\))|\[\[|\{None\}|init-sha256|'\"'\"'", text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits-som"], "Unknown recipe 'digits-som': did you mean 'digits-some'?"),
        (["digits-some", "--sigmma", "1"], "Unknown option --sigmma: did you mean --sigma?"),
        (["digits-some", "--noise_sd", "1"], "Use --sigma instead of --noise_sd."),
        (["digits-some", "--batch=64"], "Use --train.batch instead of --batch."),
        (["digits-some", "more"], "Leave out 'more'"),
        (["digits-some", "--method", "gausian"], "did you mean 'gaussian'?"),
        (["digits-joint", "--method", "smoothmix"], "Train the networks separately"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_size_of_the_images_is_shown_and_a_resumed_run_starts_where_it_stood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "digits-some", *FEW, "--out", str(tmp_path / "run")]) == 0
    assert "images of 8x8 pixels, 1 channel" in capsys.readouterr().err

    whole = recipes.get("digits-some")
    config = replace(
        whole,
        data=replace(whole.data, subset=SubsetConfig(first=80)),
        train=replace(whole.train, epochs=2, batch=32),
    )
    plans: list[Plan] = []

    def stop(event: object) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "broken", on_plan=plans.append, on_event=stop, save_seconds=0)
    train_run(config, tmp_path / "broken", resume=True, on_plan=plans.append)
    assert [plan.done for plan in plans] == [0, 2]  # the state of the step that was stopped is not saved


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--objective.teaching.lambda-last", "0.1"], True),
        (["--objective.teaching.lambda-last", "9"], False),
        (["--objective.teaching.lambda-last", "0.1", "--objective.teaching.weights", "uniform"], False),
    ],
)
def test_it_is_told_when_teaching_calls_few_images_easy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: bool
) -> None:
    fixed = ["--objective.teaching.pace", "fixed", *options]
    assert main(["train", "digits-some", *FEW, *fixed, "--out", str(tmp_path / "run")]) == 0
    assert ("of the training images easy (loss at most lambda)" in capsys.readouterr().err) == said


def test_training_without_noise_says_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "clean"
    arguments = ["train", "digits-single", "--sigma", "0", *FEW, "--out", str(out)]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "Validation accuracy without noise" in said
    assert f"next: smoothheads certify {out} --denoiser" in said
    # Certification needs noise, so the default is not the training noise of 0.
    assert main(["certify", str(out), "--n", "100", "--first", "1", "--out", str(tmp_path / "ledger")]) == 0
    manifest = json.loads((tmp_path / "ledger" / "manifest.json").read_text())
    assert manifest["certify"]["sigma"] == 0.25


def test_a_denoiser_is_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    arrays = {
        f"{split}_{key}": random.integers(0, high, size, dtype=np.uint8)
        for split, count in (("train", 40), ("test", 4))
        for key, high, size in (("images", 256, (count, 3, 32, 32)), ("labels", 2, (count,)))
    }
    np.savez(tmp_path / "patches.npz", **arrays)  # type: ignore[arg-type]
    out = tmp_path / "denoiser"
    options = ["--root", str(tmp_path / "patches.npz"), "--train.epochs", "1", "--data.validation", "0.2"]
    assert main(["train", "denoiser", *options, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(out / "checkpoint")
    assert "smoothheads certify" not in said.err


def test_an_ensemble_is_trained_apart_and_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    arguments = ["train", "digits-single", "--members", "2", "--sigma", "0.3", *FEW, "--out", str(out)]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(out / "checkpoint")
    assert "network 2 of 2" in said.err
    assert f"next: smoothheads certify {out}" in said.err
    joined = checkpoint.load(out / "checkpoint")
    assert (len(joined.model.heads), joined.config.model.cut, joined.config.train.sigma) == (2, "input", 0.3)
    seeds = [json.loads((out / f"member-{k}" / "config.json").read_text())["train"]["seed"] for k in (1, 2)]
    assert seeds == [0, 1]
    assert main(arguments) == 2
    assert main([*arguments, "--resume"]) == 0


def test_method_and_sigma_are_put_into_an_earlier_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "first"
    assert main(["train", "digits-single", *FEW, "--out", str(first)]) == 0
    capsys.readouterr()
    second = tmp_path / "second"
    again = [str(first / "config.json"), "--method", "stability", "--sigma", "0.4", "--out", str(second)]
    assert main(["train", *again, "--json"]) == 0
    assert "validation" in json.loads(capsys.readouterr().out)["metrics"]
    config = json.loads((second / "config.json").read_text())
    assert (config["objective"]["method"]["name"], config["train"]["sigma"]) == ("stability", 0.4)
    with pytest.raises(SystemExit):
        main(["train", "digits-single", "--sigma", "much"])
    assert "Error parsing --sigma" in capsys.readouterr().err


def test_training_suggests_a_certification_of_a_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "digits-single", *FEW, "--out", str(out)]) == 0
    suggestion = r"--n \d+ --first \d+   \(about .*; without options .* for 1,000 images\)"
    assert re.search(f"next: smoothheads certify {re.escape(str(out))} {suggestion}", capsys.readouterr().err)
