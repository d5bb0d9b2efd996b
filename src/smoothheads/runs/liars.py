"""Certifiers that lie, and the referee that must catch each of them.

A certifier under test is a function of a network, an image and a `Task`; it returns a class (or ABSTAIN) and
a radius. The referee gives it networks that write down what they are asked, so that the noise, the number of
samples, the votes and their use can be checked from outside. Logs that lie are given to `audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.adapters import is_object_name, load_object
from smoothheads.noise.laws import l2_radius
from smoothheads.results.audit import Finding, audit
from smoothheads.results.results import Results
from smoothheads.types import ABSTAIN, Counts

if TYPE_CHECKING:
    from torch import nn

Images: TypeAlias = NDArray[np.float32]  # [N, channels, height, width], pixels in [0, 1] plus noise
Network: TypeAlias = Callable[[Images], NDArray[np.float32]]
"""Gives logits [N, C]."""


@dataclass(frozen=True, slots=True)
class Task:
    """A certification to do: n0 samples choose the class, n more give its bound at level alpha."""

    sigma: float = 0.5
    n0: int = 100
    n: int = 1000
    alpha: float = 0.001
    classes: int = 3


Answer: TypeAlias = tuple[int, float]
Certify: TypeAlias = Callable[[Network, Images, Task], Answer]
"""Certifies one image [channels, height, width]."""

SHAPE: Final = (1, 8, 8)
_CHANCE = 1e-6  # probability that an honest certifier is called a liar, per check


class Witness:
    """A network that writes down every sample; `decide` gives a class for each, by number and pixels."""

    def __init__(
        self, decide: Callable[[NDArray[np.int64], Images], NDArray[np.int64]], classes: int
    ) -> None:
        self.decide, self.classes = decide, classes
        self.samples: list[Images] = []
        self.votes: list[int] = []

    def __call__(self, images: Images) -> NDArray[np.float32]:
        numbers = np.arange(len(self.votes), len(self.votes) + len(images))
        predictions = self.decide(numbers, images)
        self.samples.append(np.array(images, dtype=np.float32))
        self.votes += predictions.tolist()
        logits = np.zeros((len(images), self.classes), dtype=np.float32)
        logits[np.arange(len(images)), predictions] = 1.0
        return logits


def examine(certify: Certify, task: Task | None = None) -> list[Finding]:
    """Returns what the referee finds wrong with a certifier; nothing for an honest one.

    A certifier that refuses a network (SoundnessError) has not lied.
    """
    task = task or Task()
    checks = (_check_bound, _check_noise, _check_reuse, _check_selection, _check_votes, _check_abstention)
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(certify, task)
        except SoundnessError:
            continue
    return findings


def examine_networks(certify: Certify, task: Task | None = None) -> list[Finding]:
    """Returns which networks that are no function of one image a certifier takes without a word."""
    task = task or Task()
    networks = {
        "batch": ("a network whose votes depend on the batch", _batch_dependent(task.classes)),
        "state": ("a network that changes while it is asked", _stateful(task.classes)),
    }
    findings = []
    for code, (what, network) in networks.items():
        try:
            certify(network, _image(0), task)
        except SoundnessError:
            continue
        findings.append(Finding("warning", code, f"{what} was certified"))
    return findings


def _image(number: int) -> Images:
    """Returns an image on the grid of 8-bit pixels."""
    values = np.random.default_rng(number).integers(96, 160, SHAPE)
    return (values / 255).astype(np.float32)


def _check_bound(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks the radius for a network that always answers 1: at most that of n hits of n at level alpha."""
    # n hits of n give the largest bound that n samples can give.
    witness = Witness(lambda numbers, _: np.ones_like(numbers), task.classes)
    _, radius = certify(witness, _image(0), task)
    top = l2_radius(clopper_pearson_lower(task.n, task.n, task.alpha), task.sigma)
    if len(witness.votes) < task.n0 + task.n:
        yield Finding("error", "samples", f"{len(witness.votes)} samples instead of {task.n0 + task.n}")
    # A thousandth too much is rounding, more is another alpha or n.
    excess = radius - top
    if 0 < excess <= 1e-3 * max(top, 1) and excess > 1e-9:
        yield Finding("error", "rounding", f"the radius {radius:.6f} is rounded up from {top:.6f}")
    elif excess > 0 and excess > 1e-9:
        message = f"the radius {radius:.4f} is above {top:.4f}, the most that n and alpha can show"
        yield Finding("error", "cap", message)


def _check_noise(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks that the image plus normal noise of standard deviation sigma reaches the network."""
    witness = Witness(lambda numbers, _: np.ones_like(numbers), task.classes)
    certify(witness, _image(1), task)
    # A certifier may probe the network before its first vote, so look at the last samples.
    noise = np.concatenate(witness.samples)[-(task.n0 + task.n) :].astype(np.float64) - _image(1)
    values = noise.ravel()
    # The sample variance of N normal values has standard deviation sqrt(2 / N), in units of sigma^2.
    z = abs(float(np.mean(values**2)) / task.sigma**2 - 1) / np.sqrt(2 / values.size)
    if 2 * special.ndtr(-z) < _CHANCE:
        shown = float(np.sqrt(np.mean(values**2)))
        message = f"the noise that reaches the network has standard deviation {shown:.3f}, not {task.sigma:g}"
        yield Finding("error", "sigma", message)
    elif stats.kstest(values / task.sigma, "norm").pvalue < _CHANCE:
        yield Finding("error", "law", "the noise that reaches the network is not normal")


def _check_reuse(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks that two images get noise of their own."""
    noises = []
    for number in (2, 3):
        witness = Witness(lambda numbers, _: np.ones_like(numbers), task.classes)
        certify(witness, _image(number), task)
        noises.append((np.concatenate(witness.samples)[-task.n :] - _image(number)).ravel())
    # The correlation of N independent pairs has standard deviation 1 / sqrt(N), so 5.5 is beyond chance.
    count = min(map(len, noises))
    if not noises[0].any() or not noises[1].any():
        return  # no noise at all, which is the finding of another check
    correlation = float(np.corrcoef(noises[0][-count:], noises[1][-count:])[0, 1])
    if abs(correlation) > 5.5 / np.sqrt(count):
        yield Finding("error", "reuse", f"two images share their noise (correlation {correlation:.2f})")


def _check_selection(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks that the class is chosen before its votes are bounded.

    The network answers 1 on the first n0 samples and 2 on the others.
    """
    witness = Witness(lambda numbers, _: np.where(numbers < task.n0, 1, 2), task.classes)
    # An honest certifier chooses 1 and finds no vote for it.
    prediction, radius = certify(witness, _image(4), task)
    if prediction == 2 and radius > 0:
        yield Finding("error", "selection", "the class was chosen on the votes that are bounded")


def _check_votes(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks that the radius follows from the votes of a network that counts them, 90 % for class 1."""
    generator = np.random.default_rng(5)
    witness = Witness(lambda numbers, _: np.where(generator.random(len(numbers)) < 0.9, 1, 2), task.classes)
    _, radius = certify(witness, _image(5), task)
    # The votes that may be bounded are those after the first n0.
    k = witness.votes[task.n0 : task.n0 + task.n].count(1)
    proved = l2_radius(clopper_pearson_lower(k, task.n, task.alpha), task.sigma)
    if radius > proved + 1e-3:
        message = f"the radius {radius:.4f} is above {proved:.4f}, which {k} of {task.n} votes show"
        yield Finding("error", "votes", message)


def _check_abstention(certify: Certify, task: Task) -> Iterator[Finding]:
    """Checks that an image without a majority is not certified: 45 % of the votes are for class 1."""
    generator = np.random.default_rng(6)
    witness = Witness(
        lambda numbers, _: np.where(generator.random(len(numbers)) < 0.45, 1, numbers % 2 * 2), 3
    )
    # Below one half no theorem gives a radius.
    prediction, radius = certify(witness, _image(6), task)
    if prediction != ABSTAIN and radius > 0:
        yield Finding("error", "abstention", "an image without a majority was certified")


def _batch_dependent(classes: int) -> Network:
    """Answers with what most of the batch looks like: a majority of 60 % becomes one of 100 %."""

    def network(images: Images) -> NDArray[np.float32]:
        bright = images.reshape(len(images), -1).mean(1) > 0.47
        logits = np.zeros((len(images), classes), dtype=np.float32)
        logits[:, 1], logits[:, 2] = bright.mean(), 1 - bright.mean()
        return logits

    return network


def _stateful(classes: int) -> Network:
    """Answers 2 at first and 1 for ever after, whatever the image."""
    asked = [0]

    def network(images: Images) -> NDArray[np.float32]:
        asked[0] += len(images)
        logits = np.zeros((len(images), classes), dtype=np.float32)
        logits[:, 2 if asked[0] < 600 else 1] = 1.0
        return logits

    return network


# Certifiers: the field's, ours, and the lies


def plain(network: Network, image: Images, task: Task, *, same_votes: bool = False) -> Answer:
    """Certifies with the loop of the field's codes: Algorithm 1 (CERTIFY) of Cohen et al. 2019, unchecked.

    Args:
        network: The base classifier f.
        image: The image x.
        task: sigma, n0, n and alpha.
        same_votes: Lie, and choose the class on the votes that are bounded.
    """
    generator = np.random.default_rng()

    def votes(count: int) -> Counts:
        counts = np.zeros(task.classes, dtype=np.int64)
        for size in (min(100, count - first) for first in range(0, count, 100)):
            samples = image + task.sigma * generator.standard_normal((size, *image.shape))
            counts += np.bincount(network(samples.astype(np.float32)).argmax(1), minlength=task.classes)
        return counts

    # Line 1 and 2: n0 samples choose the class; line 3 to 5: n fresh ones give its bound.
    selection, estimation = votes(task.n0), votes(task.n)
    candidate = int(np.argmax(estimation if same_votes else selection))
    k = int(estimation[candidate])
    p_lower = float(stats.beta.ppf(task.alpha, k, task.n - k + 1)) if k else 0.0
    # Line 6 and 7: the radius, or an abstention if the bound does not reach 1/2.
    return (candidate, task.sigma * float(stats.norm.ppf(p_lower))) if p_lower > 0.5 else (ABSTAIN, 0.0)


def ours(network: Network, image: Images, task: Task) -> Answer:
    """Certifies with `Smoothed`, on a torch module around the network."""
    from smoothheads.smoothed import Smoothed

    settings: dict[str, Any] = {
        "sigma": task.sigma,
        "n0": task.n0,
        "n": task.n,
        "alpha": task.alpha,
        "noise": "gaussian",
    }
    smoothed = Smoothed(_module(network), shape=image.shape, classes=task.classes, **settings)
    certificate = smoothed.certify_image(np.rint(image * 255).astype(np.uint8)).certificate
    return certificate.prediction, certificate.radius


def _module(network: Network) -> nn.Module:
    """Returns a torch module around a NumPy network."""
    import torch

    class Wrapped(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(network(images.detach().cpu().numpy())).to(images.device)

    return Wrapped()


CERTIFIERS: Final[dict[str, Certify]] = {"smoothheads": ours, "plain": plain}
"""Certifiers that `audit --self-test --certifier NAME` knows."""

LIARS: Final[dict[str, tuple[str, Certify]]] = {}
"""Certifiers that lie, each with the code of the finding that must catch it."""


def lie(name: str, code: str) -> Callable[[Certify], Certify]:
    """Enters a certifier that lies. Each does one thing to the task, the samples or the answer of `plain`."""

    def enter(certify: Certify) -> Certify:
        LIARS[name] = code, certify
        return certify

    return enter


@lie("wrong alpha", "cap")
def _wrong_alpha(network: Network, image: Images, task: Task) -> Answer:
    return plain(network, image, replace(task, alpha=10 * task.alpha))


LIARS["class chosen on the estimation votes"] = "selection", partial(plain, same_votes=True)


@lie("noise of another sigma", "sigma")
def _wrong_sigma(network: Network, image: Images, task: Task) -> Answer:
    prediction, radius = plain(network, image, replace(task, sigma=task.sigma / 2))
    return prediction, 2 * radius


@lie("noise added after the network", "sigma")
def _no_noise(network: Network, image: Images, task: Task) -> Answer:
    return plain(lambda samples: network(image + 0 * samples), image, task)


@lie("noise reused between images", "reuse")
def _reused_noise(network: Network, image: Images, task: Task) -> Answer:
    generator = np.random.default_rng(0)

    def reusing(samples: Images) -> NDArray[np.float32]:
        drawn = generator.standard_normal(samples.shape)
        return network((image + task.sigma * drawn).astype(np.float32))

    return plain(reusing, image, task)


@lie("radii rounded up", "rounding")
def _rounded_up(network: Network, image: Images, task: Task) -> Answer:
    prediction, radius = plain(network, image, task)
    return prediction, ceil(radius * 1000) / 1000


@lie("votes shifted", "votes")
def _shifted_votes(network: Network, image: Images, task: Task) -> Answer:
    def shifted(samples: Images) -> NDArray[np.float32]:
        logits = network(samples)
        logits[: len(logits) // 3] = [0, 1, *[0] * (task.classes - 2)]  # a third of the votes are for class 1
        return logits

    return plain(shifted, image, task)


@lie("noise of another law", "law")
def _uniform_noise(network: Network, image: Images, task: Task) -> Answer:
    generator, width = np.random.default_rng(), task.sigma * np.sqrt(3)  # of the same standard deviation

    def uniform(samples: Images) -> NDArray[np.float32]:
        return network((image + generator.uniform(-width, width, samples.shape)).astype(np.float32))

    return plain(uniform, image, task)


@lie("fewer samples than stated", "samples")
def _fewer_samples(network: Network, image: Images, task: Task) -> Answer:
    return plain(network, image, replace(task, n=task.n // 2))


@lie("certified without a majority", "abstention")
def _never_abstains(network: Network, image: Images, task: Task) -> Answer:
    prediction, radius = plain(network, image, task)
    return (1, l2_radius(0.6, task.sigma)) if prediction == ABSTAIN else (prediction, radius)


def find_certifier(name: str) -> Certify:
    """Returns a certifier by its name here, or as `package.module:function`."""
    if name in CERTIFIERS:
        return CERTIFIERS[name]
    if not is_object_name(name):
        known = ", ".join(CERTIFIERS)
        raise ConfigError(f"There is no certifier {name!r}: name one of {known}, or package.module:function.")
    certify: Certify = load_object(name)
    return certify


# Logs that lie


def _honest_log(images: int = 100) -> Results:
    """Returns a foreign log of an honest certification: n = 1,000, alpha 0.001, sigma 0.5, six decimals."""
    generator, task = np.random.default_rng(0), Task()
    # Hits fall from all of n to far below one half, so that the log has unanimous images and abstentions.
    k = np.minimum(task.n, generator.binomial(task.n, np.clip(1.02 - 0.006 * np.arange(images), 0, 1)))
    radius = np.array([l2_radius(clopper_pearson_lower(int(x), task.n, task.alpha), task.sigma) for x in k])
    radius = np.floor(radius * 1e6) / 1e6
    prediction = np.where(radius > 0, 1, ABSTAIN)
    return _log(np.arange(images) * 100, prediction, radius, 6)


def _log(
    index: NDArray[np.int64], prediction: NDArray[np.int64], radius: NDArray[np.float64], digits: int
) -> Results:
    texts = tuple(f"{r:.{digits}f}" for r in radius)
    columns = {
        "radius": texts,
        "correct": tuple(str(int(p == 1)) for p in prediction),
        "time": ("0:00:01",) * len(index),
    }
    values = np.array([float(text) for text in texts])
    label = np.ones(len(index), dtype=np.int64)
    return Results("log", index, label, prediction, values, np.ones(len(index)), columns=columns)


def _log_liars() -> dict[str, tuple[str, Results]]:
    # Each lie changes one thing of an honest log.
    true = _honest_log()
    keep = ~true.abstained
    middle = np.r_[0:40, 43:100]
    top = true.radius.max()
    wide = np.where(true.radius == top, l2_radius(clopper_pearson_lower(1000, 1000, 0.01), 0.5), true.radius)
    totals = np.cumsum(true.correct)
    summed = replace(true, columns={**true.columns, "correct": tuple(map(str, totals))})
    claimed = replace(true, columns={**true.columns, "correct": ("1",) * len(true)})
    rounded = np.where(true.radius > 0, np.ceil(true.radius * 100) / 100, 0.0)
    return {
        "log: another alpha than stated": ("cap", _log(true.index, true.prediction, wide, 6)),
        "log: abstentions left out": ("incomplete", true[np.flatnonzero(keep)]),
        "log: rows removed": ("incomplete", true[middle]),
        "log: a running total as `correct`": ("correct-column", summed),
        "log: abstentions counted as correct": ("correct-column", claimed),
        "log: radii rounded up": ("rounding", _log(true.index, true.prediction, rounded, 2)),
    }


# The self-test


@dataclass(frozen=True, slots=True)
class Trial:
    """One liar and what the referee found."""

    liar: str
    must: str
    """The code of the finding that must catch it; empty for an honest certifier."""
    found: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.must in self.found if self.must else not self.found


def self_test() -> list[Trial]:
    """Returns what the referee finds on honest certifiers, on every liar, and on networks that lie."""
    trials = [Trial("an honest certifier", "", _codes(examine(plain)))]
    trials += [Trial(name, code, _codes(examine(liar))) for name, (code, liar) in LIARS.items()]
    log = _honest_log()
    stated = {"sigma": 0.5, "n": 1000, "alpha": 0.001, "expected": log.index.tolist()}
    trials.append(Trial("log: an honest log", "", _serious(audit(log, **stated).findings)))
    for name, (code, lying) in _log_liars().items():
        trials.append(Trial(name, code, _serious(audit(lying, **stated).findings)))
    # The certifier of this package must refuse networks that are no function of one image.
    taken = {finding.code for finding in examine_networks(ours)}
    for code, name in (("batch", "network: depends on the batch"), ("state", "network: keeps state")):
        trials.append(Trial(name, "refused", () if code in taken else ("refused",)))
    return trials


def _codes(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.code for finding in findings))


def _serious(findings: Sequence[Finding]) -> tuple[str, ...]:
    return _codes([finding for finding in findings if finding.severity != "note"])
