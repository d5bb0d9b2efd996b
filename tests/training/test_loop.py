from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smoothheads import seeding
from smoothheads.data import Splits
from smoothheads.data.loader import Loader
from smoothheads.errors import ConfigError, TrainingError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import DiversityConfig, Gaussian, ObjectiveConfig
from smoothheads.objectives.objective import cosine_penalty
from smoothheads.training import TrainConfig
from smoothheads.training.fit import train
from smoothheads.training.loop import EpochDone, StepDone, Trainer

Network = Callable[..., MultiHead]
SETTINGS: dict[str, Any] = {"sigma": 0.3, "epochs": 2, "batch": 32, "precision": "float32"}
SOME = ObjectiveConfig(method=Gaussian(draws=2))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def make_trainer(network: Network, data: Splits, heads: int = 3, **changes: Any) -> Trainer:
    config = TrainConfig(**(SETTINGS | changes))
    return Trainer(
        network(heads=heads), data.train, config=config, objective=SOME, validation=data.validation
    )


def test_one_head_is_plain_training_bit_for_bit(tiny_network: Network, small_digits: Splits) -> None:
    config = TrainConfig(**SETTINGS)
    ours = tiny_network()
    train(ours, small_digits.train, objective=ObjectiveConfig(), **SETTINGS)

    plain = tiny_network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = Loader(small_digits.train, config.batch, config.seed, augment=False)
    plain.train()
    step = 0
    for epoch in (1, 2):
        for batch in loader.epoch(epoch):
            generator = seeding.generator(config.seed, "noise", step)
            noise = torch.randn(batch.images.shape, generator=generator)
            loss = F.cross_entropy(plain(batch.images + config.sigma * noise)[0], batch.labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
    assert equal(weights(ours), weights(plain))


@pytest.mark.parametrize("stop", [1, 3, 8, 9, 11])
def test_resume_at_any_event_gives_identical_bits(
    tiny_network: Network, small_digits: Splits, stop: int
) -> None:
    whole = make_trainer(tiny_network, small_digits)
    reports = [event.metrics for event in whole.run() if isinstance(event, EpochDone)]

    first = make_trainer(tiny_network, small_digits)
    for count, _ in enumerate(first.run(), start=1):
        if count == stop:
            state = first.state()
            break
    second = make_trainer(tiny_network, small_digits)
    second.restore(state)
    resumed = [event.metrics for event in second.run() if isinstance(event, EpochDone)]
    assert equal(weights(whole.model), weights(second.model))
    for metrics in (*reports, *resumed):
        metrics.pop("seconds")
    assert resumed == reports[-len(resumed) :]


def test_a_saved_state_is_not_changed_by_going_on(tiny_network: Network, small_digits: Splits) -> None:
    trainer = make_trainer(tiny_network, small_digits)
    events = trainer.run()
    next(events)
    state = trainer.state()
    before = {name: value.clone() for name, value in state.tensors.items()}
    list(events)
    assert equal(before, state.tensors)


@pytest.mark.parametrize(("unit", "images"), [("draws", 16), ("images", 32)])
def test_batch_unit_counts_copies_or_images(
    tiny_network: Network, small_digits: Splits, unit: str, images: int
) -> None:
    trainer = make_trainer(tiny_network, small_digits, batch_unit=unit)
    assert trainer.loader.images_per_step == images
    assert trainer.loader.steps_per_epoch == -(-len(small_digits.train) // images)


def test_loss_is_the_weighted_mean_plus_cosines(tiny_network: Network, small_digits: Splits) -> None:
    trainer = make_trainer(tiny_network, small_digits)
    penalty = float(cosine_penalty(trainer.model.head_parameters()).detach())
    plain = make_trainer(tiny_network, small_digits)
    plain.objective.config = ObjectiveConfig(method=SOME.method, diversity=DiversityConfig(weight=0.0))
    with_penalty, without = next(trainer.run()), next(plain.run())
    assert isinstance(with_penalty, StepDone)
    assert isinstance(without, StepDone)
    assert with_penalty.loss - without.loss == pytest.approx(penalty, rel=1e-4)


def test_head_learning_rate_is_scaled(tiny_network: Network, small_digits: Splits) -> None:
    trainer = make_trainer(tiny_network, small_digits, head_lr_scale=3.0)
    next(trainer.run())
    trunk, heads = (group["lr"] for group in trainer.optimizer.param_groups)
    assert (trunk, heads) == pytest.approx((0.1, 0.3))


def test_a_loss_that_is_not_finite_stops_training(tiny_network: Network, small_digits: Splits) -> None:
    trainer = make_trainer(tiny_network, small_digits)
    with torch.no_grad():
        next(trainer.model.heads.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="The loss is nan in epoch 1, step 1"):
        list(trainer.run())


def test_metrics_tell_what_the_paper_watches(tiny_network: Network, small_digits: Splits) -> None:
    events = [
        event for event in make_trainer(tiny_network, small_digits).run() if isinstance(event, EpochDone)
    ]
    metrics = events[-1].metrics
    assert metrics["lambda"] == pytest.approx([1.2] * 3)
    assert events[0].metrics["lambda"] == pytest.approx([2.302585] * 3)
    assert all(0 <= share <= 1 for share in metrics["easy_fraction"])
    assert all(0 < weight <= 1 for weight in metrics["mean_weight"])
    assert len(metrics["head_loss"]) == len(metrics["validation"]["head_accuracy"]) == 3
    assert 0 <= metrics["validation"]["accuracy"] <= 1
    # BatchNorm scales start equal in all heads, so all parameters are more alike than the weights alone.
    assert metrics["cosine_all"] > metrics["cosine_weights"]


def test_training_lowers_the_loss(tiny_network: Network, small_digits: Splits) -> None:
    settings = SETTINGS | {"epochs": 6}
    history = train(tiny_network(heads=2), small_digits.train, objective=SOME, **settings).history
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


def test_a_plain_network_and_plain_arrays_are_trained_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (64, 8, 8), np.uint8), generator.integers(0, 3, 64)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    before = copy.deepcopy(net.state_dict())
    trained = train(net, (images, labels), sigma=0.25, epochs=2, validation=(images[:8], labels[:8]))
    assert not torch.equal(net.state_dict()["1.weight"], before["1.weight"])
    assert trained.model.heads[0] is net
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert "accuracy" in lines[0]
    train(net, (images, labels), sigma=0.25, epochs=1, on_event=None)
    assert capsys.readouterr() == ("", "")


def test_a_misspelt_setting_names_the_nearest(tiny_network: Network, small_digits: Splits) -> None:
    with pytest.raises(ConfigError, match=r"'train\.epoch': did you mean 'epochs'"):
        train(tiny_network(), small_digits.train, sigma=0.25, epoch=3)
    with pytest.raises(TypeError, match="sigma"):
        train(tiny_network(), small_digits.train)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="did you mean 'gaussian'"):
        train(tiny_network(), small_digits.train, sigma=0.25, method="gausian")


def test_step_schedule_drops_on_time() -> None:
    config = TrainConfig(lr=0.1, schedule="step", step_epochs=50)
    rates = [config.learning_rate(epoch * 10, 10) for epoch in (0, 49, 50, 99, 100, 149)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_cosine_schedule_falls_from_lr_to_zero() -> None:
    config = TrainConfig(lr=0.1, schedule="cosine", epochs=10)
    rates = [config.learning_rate(step, 4) for step in range(41)]
    assert rates[0] == 0.1
    assert rates[20] == pytest.approx(0.05)
    assert rates[40] == pytest.approx(0.0, abs=1e-12)
    assert rates == sorted(rates, reverse=True)


def test_planning_disturbs_nothing(tiny_network: Network, small_digits: Splits) -> None:
    trainer = make_trainer(tiny_network, small_digits, heads=2, epochs=3)
    before = trainer.state()
    plan = trainer.plan()
    after = trainer.state()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert before.meta == after.meta
    assert (plan.images_per_step, plan.steps_per_epoch, plan.steps, plan.done) == (16, 8, 24, 0)
    assert plan.model.params == sum(p.numel() for p in trainer.model.parameters())


def test_a_constant_classifier_is_warned_about(tiny_network: Network, small_digits: Splits) -> None:
    with pytest.warns(UserWarning, match=r"learned nothing: its loss is .*one class to every"):
        list(make_trainer(tiny_network, small_digits, epochs=1, lr=1e-12).run())


def test_one_label_is_warned_about() -> None:
    images, labels = np.zeros((8, 8, 8), np.uint8), np.zeros(8, np.int64)
    with pytest.warns(UserWarning, match="All 8 training images have the label 0"):
        train(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
            (images, labels),
            sigma=0.25,
            epochs=1,
            on_event=None,
        )


@pytest.mark.parametrize("quantised", [True, False])
def test_a_network_without_trainable_parameters_is_refused(small_digits: Splits, quantised: bool) -> None:
    network: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    if quantised:
        network = torch.ao.quantization.quantize_dynamic(network, {nn.Linear})  # type: ignore[no-untyped-call]
    else:
        network.requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter to train"):
        train(network, small_digits.train, sigma=0.25, epochs=1, on_event=None)
