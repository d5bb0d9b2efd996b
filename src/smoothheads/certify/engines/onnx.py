"""ONNX Runtime on the processor: one file with trunk, heads and normalisation, run without PyTorch.

Making the file needs PyTorch; running it needs NumPy and ONNX Runtime alone (extra `onnx`).
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.engines.artefact import FILES, ONNX, Artefact, identity, obtain
from smoothheads.certify.engines.base import ENGINES, Engine, EngineConfig, Network, Request
from smoothheads.errors import CheckpointError, ConfigError, MissingExtraError, SoundnessError, reason
from smoothheads.lazy import special
from smoothheads.models.aggregate import aggregate_votes, aggregations
from smoothheads.types import Phase, Pixels, Votes

if TYPE_CHECKING:
    from smoothheads.models.multihead import MultiHead
    from smoothheads.noise import Noise

EXTRA: Final = "onnx"
INPUT, OUTPUT = "pixels", "logits"
CLOSE: Final = 1e-3  # of the largest logit
OPSET: Final = 17

Logits = NDArray[np.float32]
Classes = NDArray[np.int64]


@ENGINES.register
@dataclass(frozen=True, kw_only=True)
class OnnxRuntime(EngineConfig):
    """ONNX Runtime on the processor, in float32; needs the extra `onnx`."""

    name: ClassVar[str] = "onnxruntime"

    precision: Literal["float32"] = "float32"

    def build(self, network: Network) -> Engine:
        with network.store.opened() as folder:
            artefact = network.store.given[0] if network.store.given else _made(network, folder)
            return self.open(artefact, network.noise)

    def open(self, artefact: Artefact, noise: Noise) -> OnnxEngine:
        """The engine of a network that was converted before; needs no PyTorch."""
        assert self.blocks_per_pass != "auto"
        return OnnxEngine(artefact, noise, self.threads, self.blocks_per_pass)


def _made(network: Network, root: Path) -> Artefact:
    model, info = network.model, network.info
    weights = model.ensemble_weights
    wanted = identity(model, info.shape, ONNX) | {
        "heads": len(model.heads),
        "classes": info.classes,
        "head_weights": None if weights is None else weights.tolist(),
    }

    def build(folder: Path) -> dict[str, Any]:
        convert(model, info.shape, folder / FILES[ONNX][0])
        return {"versions": {"onnxruntime": runtime().__version__}}

    return obtain(root, "onnxruntime-float32", wanted, build)


class OnnxEngine(Engine):
    """An engine in NumPy: noise, passes of one size, checks, and votes of every aggregation.

    The certificate is for exactly the bytes of the file, under this version of ONNX Runtime.
    """

    tolerance: float = 1e-3

    def __init__(self, artefact: Artefact, noise: Noise, threads: int = 1, blocks_per_pass: int = 1) -> None:
        self.artefacts, self.noise = (artefact,), noise
        self.threads, self.blocks_per_pass = threads, blocks_per_pass
        self.heads, self.classes = artefact.facts["heads"], artefact.facts["classes"]
        self.weights: Sequence[float] | None = artefact.facts["head_weights"]
        self.aggregations = aggregations(self.heads, weighted=self.weights is not None)
        self._session = _session(artefact.model, threads)
        self._probed = False

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "onnxruntime",
            "precision": "float32",
            "device": "cpu",
            "threads": self.threads,
            "onnxruntime": runtime().__version__,
            "artefact": {"sha256": self.fingerprint()},
        }

    def fingerprint(self) -> str:
        return self.artefacts[0].sha256

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        votes = [Votes.zeros(self.aggregations, self.classes) for _ in requests]
        for request, counted in zip(requests, votes, strict=True):
            for logits_LNC in self._logits_of(request):
                for row, classes_N in enumerate(aggregate_votes(logits_LNC, self.weights)):
                    counted.counts[row] += np.bincount(classes_N, minlength=self.classes)
        return votes

    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        parts = self._logits_of(Request(image, index, phase, block, count))
        return np.concatenate([special.softmax(_means(logits_LNC)[-1], -1) for logits_LNC in parts])

    def _logits_of(self, request: Request) -> Iterator[Logits]:
        """Finite logits [L, M, C] of the samples that are wanted, pass by pass; every pass is whole."""
        size, most = self.noise.block_size, self.blocks_per_pass
        image, index, phase = request.image, request.index, request.phase
        for first in range(0, -(-request.count // size), most):
            blocks = range(request.block + first, request.block + first + most)
            drawn = [self.noise.noisy(image, index, phase, block) for block in blocks]
            samples_NCHW = drawn[0] if most == 1 else np.concatenate(drawn)
            self._probe(samples_NCHW)
            logits_LNC = self._logits(samples_NCHW)[:, : request.count - first * size]
            if not np.isfinite(logits_LNC).all():
                got = f"NaN or infinite logits on samples of image {index}"
                raise SoundnessError("finite logits", got, "repair the network")
            yield logits_LNC

    def _logits(self, samples_NCHW: NDArray[np.float32]) -> Logits:
        logits_LNC: Logits = self._session.run([OUTPUT], {INPUT: samples_NCHW})[0]
        wanted = (self.heads, len(samples_NCHW), self.classes)
        if logits_LNC.shape != wanted:
            got = f"shape {logits_LNC.shape}"
            raise SoundnessError(f"logits of shape {wanted}", got, "export the network again")
        return logits_LNC

    def _probe(self, samples_NCHW: NDArray[np.float32]) -> None:
        """Once: the same sample must get the same logits wherever it stands, and twice the same bits."""
        if self._probed:
            return
        first, again = self._logits(samples_NCHW), self._logits(samples_NCHW)
        turned = self._logits(samples_NCHW[::-1].copy())[:, ::-1]
        if not np.isfinite(first).all():
            return
        allowed = self.tolerance * float(np.abs(first - first.mean(-1, keepdims=True)).max())
        if not np.array_equal(first, again) or np.abs(first - turned).max() > allowed:
            raise SoundnessError(
                "logits that depend on their own sample alone",
                "others when the samples stand in another order",
                "use no layer that mixes samples",
            )
        self._probed = True


def convert(model: MultiHead, shape: tuple[int, int, int], path: Path) -> None:
    """Writes the file: pixels [N, C, H, W] in [0, 1] in, logits [L, N, classes] out, for any N.

    Raises ConfigError for a network that ONNX cannot express, or whose logits come out as others.
    """
    import torch

    from smoothheads.models.multihead import temporary_mode

    runtime()
    example = torch.linspace(0, 1, 2 * math.prod(shape)).reshape(2, *shape)
    with temporary_mode(model, training=False), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = model(example).numpy()
        try:
            torch.onnx.export(
                model,
                (example,),
                str(path),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes={INPUT: {0: "samples"}, OUTPUT: {1: "samples"}},
                opset_version=OPSET,
                dynamo=False,
            )
        except Exception as error:  # whatever a network's code or the exporter raises
            raise _refused(reason(error)) from error
    (got,) = _session(path, 1).run([OUTPUT], {INPUT: example.numpy()})
    allowed = CLOSE * float(np.nanmax(np.abs(expected)))
    if not np.allclose(got, expected, rtol=0, atol=allowed, equal_nan=True):
        raise _refused("other logits than PyTorch's")


def runtime() -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingExtraError("onnxruntime", EXTRA) from None


def _session(path: Path, threads: int) -> Any:
    library = runtime()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        return library.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common base
        raise CheckpointError(f"an ONNX network in {path}", reason(error)[:120], "export it again") from None


def _means(values_LNC: NDArray[Any]) -> NDArray[np.float64]:
    """Row k is the mean of the first k + 1 heads, in float64."""
    counts = np.arange(1, len(values_LNC) + 1, dtype=np.float64)
    means: NDArray[np.float64] = np.cumsum(values_LNC, 0, dtype=np.float64) / counts[:, None, None]
    return means


def _refused(got: str) -> ConfigError:
    return ConfigError("a network that ONNX can express", got, "use the engine torch")
