"""Every recipe is a setting that can be started, and the published ones have the published values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import smoothheads as sh
from smoothheads import cookbook
from smoothheads.config import from_dict, to_dict
from smoothheads.data import Splits
from smoothheads.errors import ConfigError
from smoothheads.models import build
from smoothheads.models.cost import cost
from smoothheads.objectives import (
    METHODS,
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
    TeachingConfig,
)
from smoothheads.objectives.objective import Objective
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import Trainer

SINGLE = [name for name in METHODS.names() if name != "drt"]
SHAPES = {"": SINGLE, "some-": METHODS.names(), "5heads-": METHODS.names(), "some-5dnns-": METHODS.names()}
SHAPES |= {"m2-": SINGLE, "5heads-lr5-": METHODS.names(), "dnn5-": SINGLE}
APART = ["gaussian", "stability", "consistency", "macer", "drt"]
SHAPES |= dict.fromkeys(("3dnns-", "5dnns-", "5dnns-m2-"), APART)
BENCHMARKS = ("mnist-lenet", "cifar10-resnet110", "imagenet-resnet50")
NAMES = [
    "cifar10-resnet110-some-letter-gaussian-0.25",
    *("digits-some", "digits-single", "cifar10-16px-resnet8-some-0.25", "cifar10-16px-resnet8-single-0.25"),
    *(
        f"{bench}-{shape}{method}-{sigma}"
        for bench in BENCHMARKS
        for shape, methods in SHAPES.items()
        for method in methods
        for sigma in ("0.25", "0.50", "1.00")
    ),
]
ALL = {name: cookbook.get(name) for name in NAMES}
INPUT = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "folder": ((3, 224, 224), 1000),
}


def run(name: str) -> RunConfig:
    return cookbook.get(name).config


def test_names_say_data_structure_method_and_sigma() -> None:
    for name, recipe in ALL.items():
        if name.startswith(("digits", "cifar10-16px")):
            continue
        config = recipe.config
        data, arch, *structure = name.split("-")
        assert {"imagenet": "folder"}.get(data, data) == config.data.name
        assert arch == config.model.arch
        assert name.endswith(f"-{config.objective.method.name}-{config.train.sigma:.2f}")
        assert ("some" in structure) == (
            config.model.heads > 1 and config.objective.teaching.weights == "soft"
        )
        assert any("dnns" in part for part in structure) == (config.model.cut == "input")
        assert recipe.summary
        assert recipe.source


@pytest.mark.parametrize("data", ["mnist-lenet", "cifar10-resnet110", "imagenet-resnet50"])
@pytest.mark.parametrize("sigma", ["0.25", "0.50", "1.00"])
def test_every_method_stands_alone_under_some_and_on_networks(data: str, sigma: str) -> None:
    for method in METHODS.names():
        wanted = [f"{data}-some-{method}-{sigma}"]
        wanted += [f"{data}-{method}-{sigma}", f"{data}-dnn5-{method}-{sigma}"] if method != "drt" else []
        assert set(wanted) <= set(ALL)


@pytest.mark.parametrize(
    "name",
    [
        "cifar10-resnet110-some-gaussian-0.25",
        "cifar10-resnet110-gaussian-0.25",
        "cifar10-resnet110-5heads-gaussian-0.25",
        "cifar10-resnet110-5dnns-gaussian-0.25",
        "mnist-lenet-gaussian-0.25",
        "imagenet-resnet50-gaussian-0.25",
        "imagenet-resnet50-some-gaussian-1.00",
        "cifar10-16px-resnet8-some-0.25",
        "cifar10-16px-resnet8-single-0.25",
        "digits-some",
        "digits-single",
    ],
)
def test_names_that_are_in_use_stay(name: str) -> None:
    assert name in ALL


def test_every_recipe_survives_json_and_builds_its_objective() -> None:
    for recipe in ALL.values():
        config = recipe.config
        assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config
        classes = INPUT[config.data.name][1]
        Objective(config.objective, classes=classes, epochs=config.train.epochs)


def test_every_network_can_be_built_and_priced() -> None:
    found = {}
    for recipe in ALL.values():
        config = recipe.config
        key = (config.model, config.data.name, config.data.downscale)
        if key in found:
            continue
        (channels, *sides), classes = INPUT[config.data.name]
        height, width = (side // config.data.downscale for side in sides)
        shape = (channels, height, width)
        plain = (0.5,) * channels
        model = build(config.model, shape=shape, classes=classes, mean=plain, std=plain, seed=0)
        found[key] = cost(model, shape)
    assert all(price.params > 0 and price.macs > 0 for price in found.values())
    assert found[run("cifar10-resnet110-some-drt-0.25").model, "cifar10", 1].params == 6_995_138
    assert found[run("cifar10-resnet110-5dnns-macer-1.00").model, "cifar10", 1].params == 8_653_570
    assert found[run("imagenet-resnet50-some-gaussian-1.00").model, "folder", 1].params == 59_584_504
    assert found[run("imagenet-resnet50-3dnns-gaussian-1.00").model, "folder", 1].params == 76_671_096


@pytest.mark.parametrize(
    ("method", "lambdas"),
    [("gaussian", (1.2, 0.8, 0.8)), ("consistency", (1.0, 0.8, 1.0)), ("smoothmix", (1.6, 1.0, 1.6))],
)
def test_the_papers_cifar_settings(method: str, lambdas: tuple[float, ...]) -> None:
    for sigma, lam in zip(("0.25", "0.50", "1.00"), lambdas, strict=True):
        recipe = cookbook.get(f"cifar10-resnet110-some-{method}-{sigma}")
        config = recipe.config
        assert "the authors' code" in recipe.source
        assert config.objective.teaching == TeachingConfig(lambda_last=lam)
        assert (config.objective.method.draws, config.model.heads, config.model.cut) == (2, 5, "stage2")
        assert config.train == TrainConfig(
            sigma=float(sigma), epochs=150, batch=256, lr=0.1, weight_decay=1e-4, step_epochs=50
        )


METHOD_VALUES: list[tuple[str, tuple[Method, ...]]] = [
    ("cifar10-resnet110-stability", tuple(Stability(strength=s) for s in (2.0, 2.0, 1.0))),
    ("mnist-lenet-consistency", tuple(Consistency(strength=s) for s in (10.0, 5.0, 5.0))),
    (
        "imagenet-resnet50-consistency",
        tuple(Consistency(strength=s, entropy=e) for s, e in ((10.0, 0.5), (5.0, 0.5), (5.0, 0.1))),
    ),
    (
        "cifar10-resnet110-smoothmix",
        tuple(SmoothMix(step_size=a, mix_step=k) for a, k in ((0.5, 0), (1.0, 1), (2.0, 1))),
    ),
    (
        "cifar10-resnet110-smoothadv",
        (
            SmoothAdv(draws=8, steps=10, epsilon=255 / 256),
            SmoothAdv(draws=2, steps=2, epsilon=2.0),
            SmoothAdv(draws=2, steps=10, epsilon=2.0),
        ),
    ),
    ("cifar10-resnet110-cat-rs", tuple(CatRs(strength=s) for s in (0.5, 1.0, 2.0))),
    (
        "cifar10-resnet110-acr-targeted",
        (
            AcrTargeted(start=60, keep=0.5, step_size=0.25, steps=3),
            AcrTargeted(start=70, keep=0.4, step_size=0.25, steps=6),
            AcrTargeted(start=60, keep=0.4, step_size=0.5, steps=4),
        ),
    ),
]


@pytest.mark.parametrize(("stem", "methods"), METHOD_VALUES, ids=[stem for stem, _ in METHOD_VALUES])
def test_published_values_of_the_methods(stem: str, methods: tuple[Method, ...]) -> None:
    found = tuple(run(f"{stem}-{sigma}").objective.method for sigma in ("0.25", "0.50", "1.00"))
    assert found == methods


def test_macer_counts_images_and_has_its_own_schedule() -> None:
    for name, recipe in ALL.items():
        assert (recipe.config.train.batch_unit == "images") == any(
            word in name for word in ("-macer-", "16px", "-letter-")
        )
    train = run("cifar10-resnet110-macer-1.00").train
    assert (train.epochs, train.step_epochs, train.lr, train.weight_decay) == (440, 200, 0.01, 5e-4)
    assert run("cifar10-resnet110-macer-1.00").objective.method == Macer(strength=12.0, defer=200)


def test_what_is_recalled_chosen_or_unpublished_is_said() -> None:
    for name, recipe in ALL.items():
        recalled = "-drt-" in name or "imagenet-resnet50-macer" in name or "resnet110-macer-0.5" in name
        if recalled:
            assert "recalled only, check before relying" in recipe.source
        if name.startswith("imagenet-resnet50-some"):
            assert recipe.config.objective.teaching.pace == "fixed"
            assert "a value it does not report" in recipe.source
        if name.startswith("mnist-lenet-some"):
            assert "the paper has no such setting" in recipe.source
    assert "recalled" not in cookbook.get("cifar10-resnet110-macer-0.25").source


def test_matched_controls() -> None:
    single, control = (run(f"cifar10-resnet110-{kind}gaussian-0.50") for kind in ("", "m2-"))
    assert control == replace(single, objective=ObjectiveConfig(method=Gaussian(draws=2)))
    heads, scaled = (run(f"cifar10-resnet110-5heads-{kind}gaussian-0.50") for kind in ("", "lr5-"))
    assert scaled == replace(heads, train=replace(heads.train, head_lr_scale=5.0))
    some = run("cifar10-resnet110-some-gaussian-0.50")
    assert replace(heads, objective=some.objective) == some


def test_networks_trained_together_are_those_trained_alone(small_digits: Splits) -> None:
    """The mean over heads is undone: the first network of three is the one that is trained by itself."""
    weights = []
    for kind in ("", "3dnns-"):
        config = run(f"imagenet-resnet50-{kind}consistency-0.25")
        model = build(
            replace(config.model, arch="resnet8", cut="input"),
            shape=(1, 8, 8), classes=10, mean=(0.3,), std=(0.4,), seed=0,
        )  # fmt: skip
        train = replace(config.train, epochs=1, batch=48, precision="float32")
        trainer = Trainer(model, small_digits.train, config=train, objective=config.objective)
        list(trainer.run())
        weights.append(torch.cat([p.detach().flatten() for p in model.heads[0].parameters()]))
    alone, together = weights
    assert alone.norm() > 1
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": ObjectiveConfig(method=Drt())}, "2 heads or more for drt, got 1"),
        (
            {"objective": ObjectiveConfig(method=Macer()), "train": TrainConfig(batch=8)},
            "a batch of at least 16 draws, those of one image, got 8",
        ),
    ],
)
def test_impossible_combinations_are_refused_early(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(RunConfig, {key: to_dict(value) for key, value in change.items()})


def test_an_ensemble_is_trained_apart() -> None:
    recipe = cookbook.get("cifar10-resnet110-dnn5-smoothmix-0.50")
    assert recipe.members == 5
    assert recipe.config == run("cifar10-resnet110-smoothmix-0.50")


@pytest.mark.parametrize("method", ["smoothmix", "smoothadv", "cat-rs", "acr-targeted"])
def test_networks_that_would_see_each_other_are_not_trained_side_by_side(method: str) -> None:
    with pytest.raises(ConfigError, match="choose dnn5, which trains them apart"):
        cookbook.get(f"cifar10-resnet110-5dnns-{method}-0.25")


def test_parts_are_composed() -> None:
    changes: dict[str, Any] = {"structure": "some", "method": "consistency", "sigma": 0.5}
    composed = cookbook.get("cifar10-resnet110", **changes)
    assert composed == cookbook.get("cifar10-resnet110-some-consistency-0.50")
    assert composed == cookbook.get("cifar10-resnet110-gaussian-0.25", **changes)


def test_another_sigma_takes_the_nearest_published_values_and_says_so() -> None:
    recipe = cookbook.get("cifar10-resnet110", method="consistency", sigma=0.12)
    assert recipe.config.objective.method == Consistency(strength=20.0)
    assert recipe.config.train.sigma == 0.12
    assert "values of sigma 0.25, as none are published" in recipe.source


def test_listed_names_are_recipes_and_listing_builds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(cookbook.get(name).name == name for name in sh.recipes())
    monkeypatch.setattr("smoothheads.cookbook.structures.apply", None)
    assert len(sh.recipes()) > 50


def test_a_recipe_with_changes() -> None:
    config = sh.recipe(
        "digits-some", method="stability", epochs=3, root=Path("data"), train={"lr": 0.2}, strength=4.0
    )
    assert (config.train.epochs, config.train.lr, config.data.root) == (3, 0.2, "data")
    assert config.objective.method == Stability(strength=4.0)
    assert sh.recipe("digits", structure="some") == run("digits-some")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("digits-sone", {}, "Unknown recipe 'digits-sone': did you mean 'digits-some'"),
        ("digits-some", {"epoch": 3}, "a setting of the recipe, got 'epoch'; did you mean 'epochs'"),
        ("digits-some", {"train": 3}, "a mapping for train, got 3"),
        ("digits-some", {"structure": "sone"}, "Unknown structure 'sone': choose from: single"),
        ("digits-some", {"method": "gausian"}, "did you mean 'gaussian'"),
        ("digits", {"structure": "dnn5", "method": "drt"}, "it trains networks together: 5dnns"),
    ],
)
def test_what_is_misspelt_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sh.recipe(name, **changes)


def test_the_letter_is_the_text_of_the_paper() -> None:
    config = ALL["cifar10-resnet110-some-letter-gaussian-0.25"].config
    assert (config.train.nesterov, config.train.batch, config.train.batch_unit) == (True, 256, "images")
    assert (config.data.validation, config.objective.diversity.form) == (0.0, "printed")
