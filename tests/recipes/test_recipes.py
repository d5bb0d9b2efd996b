"""Every recipe is a setting that can be started, and the published ones have the published values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from smoothheads import config as cfg
from smoothheads import recipes
from smoothheads.data import Splits
from smoothheads.errors import ConfigError
from smoothheads.models import build, cost
from smoothheads.objectives.objective import Objective
from smoothheads.training import Trainer

ALL = recipes.all_recipes()
INPUT = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "folder": ((3, 224, 224), 1000),
}
METHODS = sorted(cfg.METHODS)


def run(name: str) -> cfg.RunConfig:
    return recipes.get(name).config


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
    for method in METHODS:
        count = 3 if method == "drt" or data.startswith("imagenet") else 5
        wanted = [f"{data}-some-{method}-{sigma}", f"{data}-{count}dnns-{method}-{sigma}"]
        if method != "drt":
            wanted.append(f"{data}-{method}-{sigma}")
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
        assert cfg.from_dict(cfg.RunConfig, json.loads(json.dumps(cfg.to_dict(config)))) == config
        classes = INPUT[config.data.name][1]
        catrs = isinstance(config.objective.method, cfg.CatRs)
        Objective(
            config.objective,
            classes=classes,
            epochs=config.train.epochs,
            soft_labels=torch.full((4, classes), 1 / classes) if catrs else None,
        )


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
        recipe = recipes.get(f"cifar10-resnet110-some-{method}-{sigma}")
        config = recipe.config
        assert "the authors' code" in recipe.source
        assert config.objective.teaching == cfg.TeachingConfig(lambda_last=lam)
        assert (config.objective.method.draws, config.model.heads, config.model.cut) == (2, 5, "stage2")
        assert config.train == cfg.TrainConfig(
            sigma=float(sigma), epochs=150, batch=256, lr=0.1, weight_decay=1e-4, step_epochs=50
        )


METHOD_VALUES: list[tuple[str, tuple[cfg.Method, ...]]] = [
    ("cifar10-resnet110-stability", tuple(cfg.Stability(strength=s) for s in (2.0, 2.0, 1.0))),
    ("mnist-lenet-consistency", tuple(cfg.Consistency(strength=s) for s in (10.0, 5.0, 5.0))),
    (
        "imagenet-resnet50-consistency",
        tuple(cfg.Consistency(strength=s, entropy=e) for s, e in ((10.0, 0.5), (5.0, 0.5), (5.0, 0.1))),
    ),
    (
        "cifar10-resnet110-smoothmix",
        tuple(cfg.SmoothMix(step_size=a, mix_step=k) for a, k in ((0.5, 0), (1.0, 1), (2.0, 1))),
    ),
    (
        "cifar10-resnet110-smoothadv",
        (
            cfg.SmoothAdv(draws=8, steps=10, epsilon=255 / 256),
            cfg.SmoothAdv(draws=2, steps=2, epsilon=2.0),
            cfg.SmoothAdv(draws=2, steps=10, epsilon=2.0),
        ),
    ),
    ("cifar10-resnet110-cat-rs", tuple(cfg.CatRs(strength=s) for s in (0.5, 1.0, 2.0))),
    (
        "cifar10-resnet110-acr-targeted",
        (
            cfg.AcrTargeted(start=60, keep=0.5, step_size=0.25, steps=3),
            cfg.AcrTargeted(start=70, keep=0.4, step_size=0.25, steps=6),
            cfg.AcrTargeted(start=60, keep=0.4, step_size=0.5, steps=4),
        ),
    ),
]


@pytest.mark.parametrize(("stem", "methods"), METHOD_VALUES, ids=[stem for stem, _ in METHOD_VALUES])
def test_published_values_of_the_methods(stem: str, methods: tuple[cfg.Method, ...]) -> None:
    found = tuple(run(f"{stem}-{sigma}").objective.method for sigma in ("0.25", "0.50", "1.00"))
    assert found == methods


def test_macer_counts_images_and_has_its_own_schedule() -> None:
    for name, recipe in ALL.items():
        assert (recipe.config.train.batch_unit == "images") == ("-macer-" in name or "16px" in name)
    train = run("cifar10-resnet110-macer-1.00").train
    assert (train.epochs, train.step_epochs, train.lr, train.weight_decay) == (440, 200, 0.01, 5e-4)
    assert run("cifar10-resnet110-macer-1.00").objective.method == cfg.Macer(strength=12.0, defer=200)


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
    assert "recalled" not in recipes.get("cifar10-resnet110-macer-0.25").source


def test_matched_controls() -> None:
    single, control = (run(f"cifar10-resnet110-{kind}gaussian-0.50") for kind in ("", "m2-"))
    assert control == replace(single, objective=cfg.ObjectiveConfig(method=cfg.Gaussian(draws=2)))
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
        ({"objective": cfg.ObjectiveConfig(method=cfg.Drt())}, "two heads or more for drt, got 1"),
        (
            {"objective": cfg.ObjectiveConfig(method=cfg.Macer()), "train": cfg.TrainConfig(batch=8)},
            "a batch of at least 16 copies, the draws of one image, got 8",
        ),
    ],
)
def test_impossible_combinations_are_refused_early(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cfg.from_dict(cfg.RunConfig, {key: cfg.to_dict(value) for key, value in change.items()})
