"""Networks converted for OpenVINO or ONNX Runtime, and what the engines that run them share.

They are kept in a folder under the hash of what they were made of. A converted network is a base classifier
of its own, a quantised one all the more: the certificate is for exactly these bytes, and whoever deploys it
must run them.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from smoothheads.certify.engines.base import Engine, Floats, Network
from smoothheads.certify.soundness import weights_fingerprint
from smoothheads.config import load_json
from smoothheads.errors import CheckpointError, ConfigError, SmoothheadsError, reason
from smoothheads.files import exclusive, new_folder, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.certify.config import CertifyConfig
    from smoothheads.data import Dataset
    from smoothheads.models.multihead import MultiHead

OPENVINO: Final = "smoothheads-openvino/2"
ONNX: Final = "smoothheads-onnx/1"
FACTS: Final = "artefact.json"
FILES: Final = {OPENVINO: ("model.xml", "model.bin"), ONNX: ("model.onnx",)}
"""The files of a converted network by its format, the network first."""
CLOSE: Final = 1e-3  # conversion may move a logit by this fraction of the largest one

Facts: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[Path], Facts]
"""Writes the files into a folder and returns facts about how they were made."""


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    folder: Path
    sha256: str
    """Hash of the hashes of its files."""
    facts: Facts

    @property
    def model(self) -> Path:
        return self.folder / self.files[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the network; FACTS lies in the same folder."""
        return FILES[self.facts["format"]]


@dataclass(frozen=True, slots=True)
class ConversionCache:
    """Where engines keep networks that they convert, and what they need to convert one."""

    folder: Path | None = None
    """None: networks are converted anew, and nothing is left behind."""
    training: Callable[[], Dataset] | None = None
    """Returns the training images that int8 is calibrated with, if they are needed."""
    given: tuple[ConvertedModel, ...] = ()
    """A converted network to run; nothing is converted then."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with how many of how many calibration images are read, in every round."""

    @contextmanager
    def opened(self) -> Iterator[Path]:
        if self.folder is not None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


class ConvertedEngine(Engine):
    """Runs one converted network, which cannot change afterwards."""

    package: ClassVar[str]
    """The package that runs it."""
    format: ClassVar[str]
    version: str
    """The version of the package, which is part of the function."""

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        self.precision, self.threads = config.precision, config.threads
        with network.cache.opened() as folder:
            (model,) = network.cache.given or (self.convert(network, folder),)
            self.converted = (model,)
            self.open(model, config, network)

    @abstractmethod
    def convert(self, network: Network, root: Path) -> ConvertedModel:
        """Returns the converted network under `root`, made if it is not there."""

    @abstractmethod
    def open(self, model: ConvertedModel, config: CertifyConfig, network: Network) -> None:
        """Prepares the network for passes of the configured size."""

    def identify(self, network: Network) -> Facts:
        """Returns what tells this network from any other."""
        # The same weights in another code are another network.
        weights = weights_fingerprint(network.module)
        text = f"{weights} {network.info.shape} {network.module!r}"
        return {
            "format": self.format,
            "weights": weights,
            "network": hashlib.sha256(text.encode()).hexdigest(),
        }

    def fingerprint(self) -> str:
        return self.converted[0].sha256

    def describe(self) -> dict[str, Any]:
        (model,) = self.converted
        return {
            "engine": self.name,
            "precision": self.precision,
            "device": "cpu",
            "threads": self.threads,
            self.package: self.version,
            "artefact": {"sha256": model.sha256, "made_with": model.facts.get("versions", {})},
        } | ({"calibration": model.facts["calibration"]} if "calibration" in model.facts else {})


def convert_checked(
    model: MultiHead,
    shape: tuple[int, int, int],
    problem: str,
    convert: Callable[[MultiHead, Tensor], Any],
    run: Callable[[Any, Floats], Floats],
) -> Any:
    """Returns what `convert` makes of a network.

    Raises ConfigError for a network that cannot be converted, or whose logits come out as others.

    Args:
        model: The network.
        shape: Channels, height and width of an image.
        problem: The beginning of the message, such as "ONNX cannot express this network".
        convert: Converts the network with the help of an example batch.
        run: Gives the converted network's logits for a batch.
    """
    import torch

    from smoothheads.models.multihead import temporary_mode

    # Two images that are no constants: one alone would become a fixed batch size.
    example = torch.linspace(0, 1, 2 * math.prod(shape)).reshape(2, *shape)
    try:
        with temporary_mode(model, training=False), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            expected = model(example).numpy()
            converted = convert(model, example)
            got = run(converted, example.numpy())
    except SmoothheadsError:
        raise
    except Exception as error:  # whatever a network's code or a converter raises
        raise ConfigError(f"{problem} ({reason(error)}): use engine torch.") from error
    # NaN must stay NaN; sampling refuses it with the reason.
    allowed = CLOSE * float(np.nanmax(np.abs(expected)))
    if not np.allclose(got, expected, rtol=0, atol=allowed, equal_nan=True):
        raise ConfigError(f"{problem} (its logits differ from PyTorch's): use engine torch.")
    return converted


def obtain(root: Path, name: str, identity: Facts, build: Build) -> ConvertedModel:
    """Returns the converted network under `root`, which is built if it is not there.

    If several processes ask, one of them builds. Raises CheckpointError for one that is damaged or was made
    of something else.
    """
    folder = root / identity["network"][:16] / name
    # One process converts, the others wait for it; the folder appears when it is complete.
    with exclusive(folder.parent, wait=True):
        if not folder.exists():
            with new_folder(folder) as partial:
                made = build(partial)
                facts = identity | made | {"sha256": _digest(partial, identity["format"])}
                write_json(partial / FACTS, facts)
        return _verified(folder, identity, f"delete {folder} to have it made again")


def find(roots: Iterable[Path], sha256: str) -> ConvertedModel:
    """Returns the converted network of exactly these bytes, wherever it lies under `roots`."""
    searched = list(roots)
    folders = [path.parent for root in searched for path in sorted(root.glob(f"*/*/{FACTS}"))]
    for folder in folders:
        with suppress(CheckpointError):  # another network, or a damaged one
            return load_converted(folder, sha256)
    raise CheckpointError(
        f"There is no converted network with sha256 {sha256[:12]}... in {' or '.join(map(str, searched))}, "
        f"only {len(folders)} others: restore it, or certify again into a new ledger."
    )


def load_converted(folder: Path, sha256: str) -> ConvertedModel:
    """Returns the converted network in a folder; raises CheckpointError unless it has that hash."""
    return _verified(folder, {"sha256": sha256}, "restore the original files")


def _verified(folder: Path, identity: Facts, remedy: str) -> ConvertedModel:
    try:
        facts = load_json(folder / FACTS)
        digest = _digest(folder, facts.get("format"))
    except (ConfigError, OSError) as error:
        raise CheckpointError(f"There is no converted network in {folder} ({error}): {remedy}.") from None
    # The facts must name what was asked for, and the files must be those of the facts.
    for key, value in (*identity.items(), ("sha256", digest)):
        if facts.get(key) != value:
            raise CheckpointError(
                f"The converted network in {folder} states {key} {str(facts.get(key, 'nothing'))[:40]} "
                f"instead of {str(value)[:40]}: {remedy}."
            )
    return ConvertedModel(folder, digest, facts)


def _digest(folder: Path, made_by: Any) -> str:
    """Returns a hash of the hashes of the files of a format; an unknown format has none."""
    names = FILES[made_by] if made_by in list(FILES) else ()
    lines = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}" for name in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
