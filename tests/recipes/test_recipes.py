"""Every recipe is a setting that can be started, and the published ones have the published values."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import smoothheads as sh
from smoothheads import recipes
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
from smoothheads.studies.spec import read_study
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import Trainer

BENCHMARKS = ("digits", "mnist-lenet", "cifar10-resnet110", "imagenet-resnet50")
SIGMAS = (0.25, 0.5, 1.0)
CLASSIFIERS = [name for name, kind in METHODS.items() if kind.trains_classifier]
JOINT = [name for name, kind in METHODS.items() if kind.independent_heads or kind.min_heads > 1]
ALL = {
    (name, method, sigma): recipes.get(name, method=method, sigma=sigma)
    for name in recipes.names()
    if name not in ("denoiser", "cifar10-resnet20-clean")
    for method in (JOINT if name.endswith("-joint") else CLASSIFIERS)
    for sigma in SIGMAS
    if method != "drt" or name.endswith(("-some", "-text", "-balanced", "-heads", "-joint"))
}
INPUT = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "folder": ((3, 224, 224), 1000),
}


def test_every_benchmark_has_the_four_setups() -> None:
    for benchmark in BENCHMARKS:
        single = benchmark if benchmark in recipes.names() else f"{benchmark}-single"
        assert {single, *(f"{benchmark}-{setup}" for setup in ("some", "heads", "joint"))} <= {
            *recipes.names()
        }


def test_arguments_are_the_settings() -> None:
    for (name, method, sigma), config in ALL.items():
        assert (config.objective.method.name, config.train.sigma) == (method, sigma)
        heads, setup = config.model.heads, name.rpartition("-")[2]
        taught = heads > 1 and config.objective.teaching.weights == "soft"
        assert (setup in ("some", "text", "balanced")) == taught
        assert (setup == "joint") == (config.model.cut == "input")
    for recipe in recipes.RECIPES.values():
        assert recipe.summary
        assert recipe.source
        assert all(published.source for published in recipe.methods.values())


def test_every_recipe_survives_json_and_builds_its_objective() -> None:
    for config in ALL.values():
        assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config
        classes = INPUT[config.data.name][1]
        Objective(config.objective, classes=classes, epochs=config.train.epochs)


def test_every_network_can_be_built_and_priced() -> None:
    found = {}
    for config in ALL.values():
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
    assert found[ALL["cifar10-resnet110-some", "drt", 0.25].model, "cifar10", 1].params == 6_995_138
    assert found[ALL["cifar10-resnet110-joint", "macer", 1.0].model, "cifar10", 1].params == 8_653_570
    assert found[ALL["imagenet-resnet50-some", "gaussian", 1.0].model, "folder", 1].params == 59_584_504
    assert found[ALL["imagenet-resnet50-joint", "gaussian", 1.0].model, "folder", 1].params == 76_671_096


@pytest.mark.parametrize(
    ("method", "lambdas"),
    [("gaussian", (1.2, 0.8, 0.8)), ("consistency", (1.0, 0.8, 1.0)), ("smoothmix", (1.6, 1.0, 1.6))],
)
def test_the_papers_cifar_settings(method: str, lambdas: tuple[float, ...]) -> None:
    assert "the authors' code" in recipes.find("cifar10-resnet110-some").source
    for sigma, lam in zip(SIGMAS, lambdas, strict=True):
        config = recipes.get("cifar10-resnet110-some", method=method, sigma=sigma)
        assert config.objective.teaching == TeachingConfig(lambda_last=lam)
        assert (config.objective.method.draws, config.model.heads, config.model.cut) == (2, 5, "stage2")
        assert config.train == TrainConfig(
            sigma=sigma, epochs=150, batch=256, lr=0.1, weight_decay=1e-4, step_epochs=50
        )


METHOD_VALUES: list[tuple[str, tuple[Method, ...]]] = [
    ("cifar10-resnet110", tuple(Stability(strength=s) for s in (2.0, 2.0, 1.0))),
    ("mnist-lenet", tuple(Consistency(strength=s) for s in (10.0, 5.0, 5.0))),
    (
        "imagenet-resnet50",
        tuple(Consistency(strength=s, entropy=e) for s, e in ((10.0, 0.5), (5.0, 0.5), (5.0, 0.1))),
    ),
    (
        "cifar10-resnet110",
        tuple(SmoothMix(step_size=a, mix_step=k) for a, k in ((0.5, 0), (1.0, 1), (2.0, 1))),
    ),
    (
        "cifar10-resnet110",
        (
            SmoothAdv(draws=8, steps=10, epsilon=255 / 256),
            SmoothAdv(draws=2, steps=2, epsilon=2.0),
            SmoothAdv(draws=2, steps=10, epsilon=2.0),
        ),
    ),
    ("cifar10-resnet110", tuple(CatRs(strength=s) for s in (0.5, 1.0, 2.0))),
    (
        "cifar10-resnet110",
        (
            AcrTargeted(start=60, keep=0.5, step_size=0.25, steps=3),
            AcrTargeted(start=70, keep=0.4, step_size=0.25, steps=6),
            AcrTargeted(start=60, keep=0.4, step_size=0.5, steps=4),
        ),
    ),
]


@pytest.mark.parametrize(("name", "methods"), METHOD_VALUES)
def test_published_values_of_the_methods(name: str, methods: tuple[Method, ...]) -> None:
    found = [ALL[name, methods[0].name, sigma].objective.method for sigma in SIGMAS]
    assert tuple(found) == methods


def test_macer_counts_images_and_has_its_own_schedule() -> None:
    for (name, method, _), config in ALL.items():
        own = method == "macer" and "16px-resnet8" not in name and not name.startswith("digits")
        counts_images = own or "16px-resnet8" in name or name.endswith("paper-text")
        assert (config.train.batch_unit == "images") == counts_images
    config = ALL["cifar10-resnet110", "macer", 1.0]
    train = config.train
    assert (train.epochs, train.step_epochs, train.lr, train.weight_decay) == (440, 200, 0.01, 5e-4)
    assert config.objective.method == Macer(strength=12.0, defer=200)


def test_recalled_and_chosen_values_are_marked() -> None:
    for name in ("mnist-lenet", "cifar10-resnet110", "imagenet-resnet50"):
        assert "recalled only, check before relying" in recipes.find(name).methods["drt"].source
    assert "recalled only" in recipes.find("imagenet-resnet50").methods["macer"].source
    assert "recalled only" in recipes.find("cifar10-resnet110").methods["macer"].source
    assert "a value it does not report" in recipes.find("imagenet-resnet50-some").source
    assert ALL["imagenet-resnet50-some", "gaussian", 1.0].objective.teaching.pace == "fixed"
    assert "the paper has no such setting" in recipes.find("mnist-lenet-some").source


def test_matched_controls() -> None:
    single = recipes.get("cifar10-resnet110", sigma=0.5)
    control = recipes.get("cifar10-resnet110", sigma=0.5, min_draws=2)
    assert control == replace(single, objective=ObjectiveConfig(method=Gaussian(draws=2)))
    heads, some = (recipes.get(f"cifar10-resnet110-{setup}", sigma=0.5) for setup in ("heads", "some"))
    assert replace(heads, objective=some.objective) == some


def test_networks_trained_together_are_those_trained_alone(small_digits: Splits) -> None:
    """The mean over heads is undone: the first network of three is the one that is trained by itself."""
    weights = []
    for name in ("imagenet-resnet50", "imagenet-resnet50-joint"):
        config = recipes.get(name, method="consistency")
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
        ({"objective": ObjectiveConfig(method=Drt())}, "drt needs 2 heads or more, not 1"),
        (
            {"objective": ObjectiveConfig(method=Macer()), "train": TrainConfig(batch=8)},
            "A batch of 8 draws has no room for the 16 draws of one image",
        ),
    ],
)
def test_impossible_combinations_are_refused_early(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(RunConfig, {key: to_dict(value) for key, value in change.items()})


@pytest.mark.parametrize("method", ["smoothmix", "smoothadv", "cat-rs", "acr-targeted"])
def test_networks_that_would_see_each_other_are_not_trained_jointly(method: str) -> None:
    with pytest.raises(ConfigError, match=r"Train the networks separately \(--members 5\)"):
        recipes.get("cifar10-resnet110-joint", method=method)


def test_another_sigma_takes_the_nearest_published_values() -> None:
    config = recipes.get("cifar10-resnet110", method="consistency", sigma=0.12)
    assert config.objective.method == Consistency(strength=20.0)
    assert config.train.sigma == 0.12


def test_recipes_are_functions_and_python_reaches_them() -> None:
    assert sh.recipe("digits-some") == sh.recipes.digits.digits_some() == recipes.get("digits-some")
    changed = sh.recipe("digits-some", heads=3).with_overrides({"train.epochs": 3, "data.root": Path("data")})
    assert (changed.train.epochs, changed.train.head_lr_scale, changed.data.root) == (3, 3.0, "data")


def test_a_recipe_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoothheads.recipes.setups.RECIPES", dict(recipes.RECIPES))

    def digits_longer(epochs: int = 60) -> RunConfig:
        """One network, longer."""
        return recipes.digits.digits_single().with_overrides({"train.epochs": epochs})

    assert recipes.recipe("made up")(digits_longer) is digits_longer
    assert recipes.get("digits-longer", epochs=70).train.epochs == 70
    assert recipes.find("digits-longer").summary == "One network, longer"
    with pytest.raises(ConfigError, match="already"):
        recipes.recipe("again")(digits_longer)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("digits-sone", {}, "Unknown recipe 'digits-sone': did you mean 'digits-some'?"),
        ("cifar10-some", {}, "Unknown recipe 'cifar10-some': did you mean 'cifar10-resnet20-some'?"),
        ("digits-some", {"sigm": 1.0}, "Unknown argument of digits-some 'sigm': did you mean 'sigma'?"),
        ("digits-some", {"method": "gausian"}, "did you mean 'gaussian'?"),
        ("digits-single", {"method": "drt"}, "drt needs 2 heads or more"),
    ],
)
def test_misspelt_recipes_and_arguments(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        recipes.get(name, **arguments)


def test_the_papers_text_differs_from_its_code() -> None:
    config = ALL["cifar10-resnet110-some-paper-text", "gaussian", 0.25]
    assert (config.train.nesterov, config.train.batch, config.train.batch_unit) == (True, 256, "images")
    assert (config.data.validation, config.objective.diversity.form) == (0.0, "printed")


def test_the_figures_recipes_are_the_arms_of_the_main_study() -> None:
    study = read_study(Path(__file__).parents[2] / "benchmarks" / "paper" / "main.toml")
    for arm, name, arguments in (
        ("gaussian-single", "single", {}),
        ("gaussian-single-m2", "single", {"min_draws": 2}),
        ("gaussian-heads", "heads", {}),
        ("gaussian-some", "some", {}),
        ("consistency-some", "some", {"method": "consistency"}),
    ):
        config = recipes.get(f"cifar10-16px-figure-{name}", sigma=0.5, **arguments)
        # Studies train in float32 on every machine.
        config = config.with_overrides({"train.precision": "float32"})
        assert config == study.run_config(study.arm(arm), "", 0.5, 0)


@pytest.mark.parametrize("method", ["gaussian", "consistency"])
def test_resnet20_recipes_are_the_arms_of_the_32x32_study(method: str) -> None:
    study = read_study(Path(__file__).parents[2] / "benchmarks" / "cifar10" / f"{method}-0.5.toml")
    arms = {"single": "", "heads": "-heads", "some": "-some", "some-balanced": "-some-balanced"}
    for arm, setup in arms.items():
        config = recipes.get(f"cifar10-resnet20{setup}", sigma=0.5, method=method)
        assert config == study.run_config(study.arm(arm), "", 0.5, 0)


def test_clean_recipe_has_no_noise() -> None:
    clean = recipes.get("cifar10-resnet20-clean")
    assert clean == recipes.get("cifar10-resnet20").with_overrides({"train.sigma": 0.0})


def test_the_denoiser_is_no_classifier() -> None:
    config = recipes.get("denoiser")
    assert (config.objective.method.name, config.model.arch) == ("denoise", "denoiser")
