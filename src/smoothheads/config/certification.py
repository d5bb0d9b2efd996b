"""What certification is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothheads.config.check import at_least, between, positive
from smoothheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifyConfig:
    """What a certification run was told, the network and the data apart."""

    sigma: float
    """Standard deviation of the noise per pixel, whatever its law."""
    n0: int = 100
    """Noisy copies that choose the class; they never enter the bound."""
    n: int = 100_000
    """Fresh noisy copies that bound its probability."""
    alpha: float = 0.001
    """Probability that a certificate is wrong, per image."""
    budget: Literal["fixed", "table", "radius", "anytime"] = "fixed"
    """fixed: n copies of every image, as published tables have it. The others need fewer, n at most: table
    decides only which of RADII are certified, radius comes within TOLERANCE of the fixed radius, anytime
    stops at TARGET."""
    bound: Literal["clopper-pearson", "randomized", "pair"] = "clopper-pearson"
    """Of the fixed budget. randomized and pair (bounds the runner-up too) are tighter but do not compare with
    published tables."""
    radii: tuple[float, ...] | None = None
    """Radii of the table budget (default: steps of a quarter up to what n can show)."""
    tolerance: float = 0.05
    """Share of the radius that the radius budget may lose on average."""
    price: float | None = None
    """Copies that a radius of one sigma is worth to the radius budget, instead of a tolerance."""
    target: float | None = None
    """Radius at which the anytime budget stops."""
    label_aware: bool = False
    """Test the true label instead of a chosen class (table and radius): cheaper, for evaluation only."""
    rule: str = "ensemble"
    """The base classifier that is certified: ensemble (mean logits), softmax (mean probabilities), vote,
    margin (the surest head decides), weighted (learned), head-K, prefix-K or consensus-K."""
    block: int = 100
    """Noisy copies per block of noise; part of its key, so that results depend on nothing else."""
    blocks_per_pass: int | Literal["auto"] = 1
    """Blocks per forward pass, of one image or of several: more are faster for small networks. auto: what a
    trial finds fastest. Another number is another way to round, and so another base classifier."""
    seed: int = 0
    noise: Literal["grid", "gaussian", "uniform", "laplace"] = "grid"
    """grid: exact integer Gaussian noise, sound for grid images; gaussian: float32, as published codes have
    it; uniform and laplace: float32, with radii in the l1 norm."""
    engine: Literal["auto", "torch", "openvino"] = "torch"
    """What computes the network: openvino needs the extra of that name; auto measures what is installed."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """Another precision is another base classifier. float16 is for cuda; int8 (openvino): quantised, with
    ranges from noisy training images at sigma."""
    compile: Literal["auto", "on", "off"] = "off"
    """torch.compile (torch): takes up to a minute; auto: where the run is long enough to pay for it."""
    grouped: Literal["auto", "on", "off"] = "off"
    """Heads side by side in grouped convolutions (torch, our ResNets); auto: where a trial is faster."""
    lazy_consensus: bool = False
    """With the rule consensus-K: heads beyond the K-th only see copies on which the K disagree. In int8 the
    two parts are quantised one by one, which is another base classifier than consensus-K in int8."""
    graphs: bool = True
    """On cuda (torch): passes that are not compiled are recorded once and replayed, which launches faster.
    Switch it off for a network that cannot be recorded."""
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        between("alpha", self.alpha, 0, 0.5)
        self._check_budget()
        self._check_engine()
        for name in ("n0", "n", "block", "threads"):
            at_least(name, getattr(self, name), 1)
        if self.blocks_per_pass != "auto":
            at_least("blocks_per_pass", self.blocks_per_pass, 1)
        at_least("seed", self.seed, 0)

    def _check_budget(self) -> None:
        """Refuses options that the chosen budget would ignore."""
        ignored = {
            "bound": self.bound != "clopper-pearson" and self.budget != "fixed",
            "radii": self.radii is not None and self.budget != "table",
            "price": self.price is not None and self.budget != "radius",
            "target": self.target is not None and self.budget != "anytime",
            "label_aware": self.label_aware and self.budget not in ("table", "radius"),
        }
        for name, wrong in ignored.items():
            if wrong:
                raise ConfigError(
                    f"a budget that uses {name}", repr(self.budget), f"change the budget or drop {name}"
                )

    def _check_engine(self) -> None:
        """Refuses what the chosen engine cannot do."""
        wrong = {
            "engine openvino for int8": self.precision == "int8" and self.engine == "torch",
            "engine torch for float16": self.precision == "float16" and self.engine == "openvino",
            "engine torch for compile": self.compile == "on" and self.engine != "torch",
            "engine torch for grouped": self.grouped == "on" and self.engine != "torch",
            "device cpu for openvino": self.engine == "openvino" and self.device != "cpu",
        }
        for expected, is_wrong in wrong.items():
            if is_wrong:
                raise ConfigError(
                    expected, f"engine {self.engine!r}, device {self.device!r}", "change one of them"
                )
        if self.precision == "float16" and self.device.startswith("cpu"):
            raise ConfigError(
                "device cuda for float16", repr(self.device), "use float32 or bfloat16 on a processor"
            )
        if self.lazy_consensus and self.grouped != "off":
            raise ConfigError("heads one by one for lazy_consensus", "grouped heads", "drop one of the two")
        if self.lazy_consensus and self.blocks_per_pass != 1:
            raise ConfigError(
                "one block per pass for lazy_consensus", str(self.blocks_per_pass), "drop one of the two"
            )
        if self.lazy_consensus and not self.rule.startswith("consensus-"):
            raise ConfigError(
                "a rule consensus-K with lazy_consensus", repr(self.rule), "for example --rule consensus-2"
            )
