"""PyTorch: BatchNorm folded into convolutions, channels last, optionally in half precision."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from smoothheads import device as devices
from smoothheads.certify import soundness
from smoothheads.certify.engines.base import ENGINES, Engine, Floats, Network

if TYPE_CHECKING:
    from torch import Tensor, nn

    from smoothheads.certify.config import CertifyConfig
    from smoothheads.models.multihead import MultiHead

CLOSE: Final = 1e-3  # folding may move a logit by this fraction of the largest one


@ENGINES.register
class TorchEngine(Engine):
    """PyTorch on the processor; cuda is untested.

    It works on a copy of its own in eval mode, so that the model stays as it is and may even be trained on. A
    module that cannot be copied is put into eval mode and used itself.
    """

    name: ClassVar[str] = "torch"
    parameters: ClassVar[Mapping[str, Any]] = {"device": "cpu"}
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        import torch

        self.use_network(network)
        self.precision, self.threads = config.precision, config.threads
        self.device = devices.parse(config.device)
        self.tolerance = 1e-3 if self.precision == "float32" else 5e-2
        # In half precision another batch size may mean another kernel, which rounds far more than float32.
        self.any_batch = self.precision == "float32"
        # A copy in eval mode, with BatchNorm folded into the convolutions where that is safe.
        own = network.module
        with contextlib.suppress(Exception):  # somebody's own module may hold what cannot be copied
            own = copy.deepcopy(own)
        lean = fold_batch_norm(own.eval(), network.info.shape)
        self.folded = lean is not None
        self.model: MultiHead = (lean or own).to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def logits(self, samples_NCHW: Floats) -> Floats:
        import torch

        with (
            torch.inference_mode(),
            devices.threads(self.threads),
            devices.strict(self.device),
            devices.autocast(self.device, self.precision),
        ):
            # Channels last is the faster layout for convolutions on a processor.
            samples = torch.from_numpy(samples_NCHW).contiguous(memory_format=torch.channels_last)
            logits_LNC: Tensor = self.model(devices.sent(samples, self.device))
        # A copy, because a network may hand out the same memory twice.
        logits: Floats = logits_LNC.to("cpu", torch.float32, copy=True).numpy()
        return logits

    def fingerprint(self) -> str:
        return soundness.state_fingerprint(self.model)

    def describe(self) -> dict[str, Any]:
        emulated = self.precision == "bfloat16" and not devices.computes_bfloat16(self.device)
        return {
            "engine": "torch",
            "precision": self.precision,
            "device": str(self.device),
            "threads": self.threads,
            "folded": self.folded,
            **({"emulated": True} if emulated else {}),
        }


def fold_batch_norm(model: MultiHead, shape: tuple[int, int, int]) -> MultiHead | None:
    """Returns a copy of a network in eval mode with every BatchNorm folded into the convolution before it.

    It is the same function up to rounding, with fewer passes through memory. Only modules are exchanged; the
    network's own code still runs. Returns None if nothing can be folded, or not without harm.
    """
    import torch

    try:
        # Tracing and probing run the network's code, so they get copies that are thrown away.
        pairs = list(_foldable_pairs(copy.deepcopy(model)))
        plain, lean = copy.deepcopy(model), copy.deepcopy(model)
    except Exception:  # somebody's own module that cannot be copied is used as it is
        return None
    if not pairs:
        return None
    for convolution, norm in pairs:
        _fold(lean, convolution, norm)
    # The same logits up to rounding, or nothing is folded; the comparison is false for NaN.
    like = next(lean.parameters())
    with torch.inference_mode():
        x = torch.linspace(0, 1, 2 * math.prod(shape), device=like.device, dtype=like.dtype)
        try:
            before, after = (network(x.reshape(2, *shape)) for network in (plain, lean))
        except Exception:  # it does not take these images, which `evaluate` will say
            return None
        close = bool((before - after).abs().max() <= CLOSE * before.abs().max())
    return lean if close else None


def _foldable_pairs(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the names of convolutions and of the BatchNorms that are the only ones to read them."""
    from torch import fx

    from smoothheads.models.cost import BATCH_NORMS, CONVOLUTIONS

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            layer = isinstance(m, (*CONVOLUTIONS, *BATCH_NORMS))  # also those with a class of their own
            return layer or super().is_leaf_module(m, module_qualified_name)

    try:
        nodes = list(Tracer().trace(module).nodes)
    except Exception:  # code that looks at the data cannot be traced, but its parts may be
        for name, child in module.named_children():
            yield from _foldable_pairs(child, f"{prefix}{name}.")
        return
    # A BatchNorm can be folded if it alone reads a convolution, and both are called once.
    calls = Counter(node.target for node in nodes if node.op == "call_module")
    for norm in nodes:
        reads = norm.all_input_nodes
        if norm.op != "call_module" or len(reads) != 1 or reads[0].op != "call_module":
            continue
        alone = len(reads[0].users) == 1 and calls[norm.target] == calls[reads[0].target] == 1
        names = str(reads[0].target), str(norm.target)
        if alone and _is_foldable(*map(module.get_submodule, names)):
            yield prefix + names[0], prefix + names[1]


def _is_foldable(convolution: nn.Module, norm: nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.utils.parametrize import is_parametrized

    from smoothheads.models.cost import BATCH_NORMS, CONVOLUTIONS

    plain = isinstance(convolution, CONVOLUTIONS) and isinstance(norm, BATCH_NORMS)
    if not plain or norm.training or norm.running_mean is None or norm.running_var is None:
        return False
    # A forward method, hook or parametrization of somebody's own would get lost.
    forwards = (type(convolution).forward, type(norm).forward)
    usual = forwards in [(kind.forward, _BatchNorm.forward) for kind in CONVOLUTIONS]
    return usual and not any(
        is_parametrized(each) or each._forward_hooks or each._forward_pre_hooks
        for each in (convolution, norm)
    )


def _fold(model: nn.Module, convolution: str, norm: str) -> None:
    """Folds in float64, so that one rounding is all that it costs."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before: Any = model.get_submodule(convolution)
    after: Any = model.get_submodule(norm)
    kind = before.weight.dtype
    fused: nn.Module = fuse_conv_bn_eval(before.double(), after.double())
    for name, module in ((convolution, fused.to(kind)), (norm, nn.Identity())):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, module)
