"""Opens whatever names a classifier: a checkpoint, the folder of a training run, an export, or `hf://user/name`.

An export is the function that was certified, together with what was certified of it. Opening one checks
every file against SHA256SUMS, which finds damage and mix-ups. Whoever can rewrite the list can rewrite the
files, so a stranger's folder is as trustworthy as the way its list came to you.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothheads import checkpoint, hub
from smoothheads import checkpoint as layout
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache, ConvertedModel, conversion
from smoothheads.certify.soundness import state_fingerprint
from smoothheads.checkpoint import checkpoint_folder, description, trained_config
from smoothheads.config import differences, load_json, require_equal, to_dict
from smoothheads.data import DataConfig
from smoothheads.errors import CheckpointError, ConfigError, LedgerError, import_extra
from smoothheads.files import sha256
from smoothheads.models.adapters import BlackBox, adapt, is_object_name, is_own_model, load_object
from smoothheads.provenance import versions
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE, Manifest

if TYPE_CHECKING:
    from torch import nn

    from smoothheads.checkpoint import Checkpoint
    from smoothheads.data import Dataset
    from smoothheads.models.multihead import MultiHead
    from smoothheads.smoothed import Smoothed

# The names in the folder of a training run.
CHECKPOINT = layout.FOLDER
CONFIG, METRICS, STATE, PREPARED = "config.json", "metrics.jsonl", "state.safetensors", "prepared.safetensors"
ENGINES, LEDGER = "engines", "ledger"

# The names in an export.
FORMAT = "smoothheads-export/1"
FACTS, README, SUMS, ENGINE = "export.json", "README.txt", "SHA256SUMS", "engine"
CHECKPOINT_FILES = (layout.WEIGHTS, layout.CONFIG, layout.MANIFEST)
LEDGER_FILES = (ledger.TABLE, FILE)
EXTRAS = {"openvino": "openvino", "onnxruntime": "onnx"}
"""The extras of the engines that convert networks."""

open_checkpoint = checkpoint.load


def engines_folder(place: Path | str) -> Path:
    """Returns the folder of networks that were converted for an engine, which is beside the checkpoint."""
    return checkpoint_folder(place).absolute().parent / ENGINES


@dataclass(frozen=True)
class Model:
    """A trained classifier; made by `open_model`."""

    folder: Path
    structure: nn.Module | None = None
    """The module that the weights belong to, if the registry of architectures does not know it."""

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return checkpoint.load(self.folder, self.structure)

    @cached_property
    def data(self) -> DataConfig:
        """Returns the data set that it was trained on, without loading the network."""
        return trained_config(self.folder).data

    @property
    def weights(self) -> str:
        """Returns the hash of the network's weights."""
        return sha256(checkpoint_folder(self.folder) / layout.WEIGHTS)

    @property
    def config(self) -> CertifyConfig:
        """Returns the settings that it is smoothed with unless others are given."""
        return CertifyConfig(sigma=trained_config(self.folder).certified_sigma)

    @property
    def prediction_config(self) -> CertifyConfig:
        """Returns the settings of `predict`, with few samples and a secret seed."""
        return self.config.changed(n=1000)

    def smoothed(self, config: CertifyConfig | None = None, **changes: Any) -> Smoothed:
        """Returns the smoothed classifier, with these settings or with `changes` to its own.

        Args:
            config: The settings; None takes its own.
            changes: Settings such as n=1000 or alpha=0.01.
        """
        from smoothheads.smoothed import Smoothed

        loaded, cache = self.checkpoint, ConversionCache(engines_folder(self.folder), self._training_images)
        if loaded.config.model.arch == "denoiser":
            raise ConfigError(
                f"{self.folder} is a denoiser and no classifier: put it in front of one with sh.denoised."
            )
        config = (config or self.config).changed(**changes)
        return Smoothed(loaded.model, loaded.info, config, cache=cache)

    def certifier(self, config: CertifyConfig | None = None, **changes: Any) -> Certifier:
        """Returns what certifies images, without PyTorch where that is possible."""
        return self.smoothed(config, **changes).certifier

    def _training_images(self) -> Dataset:
        from smoothheads.data import load

        return load(self.data).train


@dataclass(frozen=True)
class Export(Model):
    """A folder that `smoothheads export` wrote."""

    @classmethod
    def open(cls, folder: Path | str, structure: nn.Module | None = None) -> Export:
        """Raises CheckpointError for a folder that is not exactly as it was exported."""
        # 1. Every file is what SHA256SUMS says.
        export = cls(hub.local(folder), structure)
        listed = export.check_files()
        if export.facts.get("format") != FORMAT:
            raise CheckpointError(
                f"{export.folder} has format {export.facts.get('format')!r} and not {FORMAT}: "
                "use the version that wrote it."
            )
        # 2. Every file that the ledger's certificates rest on is in the list.
        if missing := required_files(export.manifest) - listed:
            raise _incomplete(export.folder, f"{SUMS} has no line for {', '.join(sorted(missing))}")
        # 3. The weights are those that were certified.
        check_weights(export.manifest, sha256(export.folder / CHECKPOINT / layout.WEIGHTS))
        return export

    @cached_property
    def manifest(self) -> Manifest:
        """Returns the manifest of its ledger, whose checksums it has to meet."""
        return ledger.load(self.folder / LEDGER).manifest

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Returns what export.json says."""
        try:
            return load_json(self.folder / FACTS)
        except ConfigError as error:
            raise CheckpointError(f"{error} Or export again.") from None

    @property
    def config(self) -> CertifyConfig:
        return certified_settings(self.manifest)

    @property
    def prediction_config(self) -> CertifyConfig:
        return replace(self.config, seed=None)

    def smoothed(self, config: CertifyConfig | None = None, **changes: Any) -> Smoothed:
        """Returns the smoothed classifier that was certified; its `notes` say what of the software differs.

        Raises ConfigError for settings that make another function: n0, n, alpha and the budget are free.
        """
        from smoothheads.smoothed import Smoothed

        # The converted network comes from the export itself: converting again could give another function.
        loaded, config = self.checkpoint, self._same_function(config, changes)
        cache = ConversionCache(given=self._converted())
        smoothed = Smoothed(loaded.model, loaded.info, config, cache=cache)
        smoothed.certifier.notes += self._differences(smoothed.certifier)
        return smoothed

    def certifier(self, config: CertifyConfig | None = None, **changes: Any) -> Certifier:
        config = self._same_function(config, changes)
        # Of all engines only onnxruntime runs without PyTorch, which takes seconds to import.
        if config.engine != "onnxruntime":
            return self.smoothed(config).certifier
        _, info = description(self.folder / CHECKPOINT)
        certifier = Certifier(None, info, config, cache=ConversionCache(given=self._converted()))
        certifier.notes += self._differences(certifier)
        return certifier

    def check_files(self) -> set[str]:
        """Returns the names in SHA256SUMS; raises CheckpointError where a file is missing or has changed."""
        path = self.folder / SUMS
        if not path.is_file():
            raise _incomplete(self.folder, f"it has no {SUMS}")
        present, listed = _files(self.folder), set()
        for line in path.read_bytes().decode("latin-1").removesuffix("\n").split("\n"):
            match = re.fullmatch(r"([0-9a-f]{64})  (\S+)", line)
            if match is None:
                raise _incomplete(self.folder, f"{SUMS} is damaged")
            expected, name = match.groups()
            # Names that lead out of the folder are not among its files.
            got = sha256(self.folder / name) if name in present else "no file"
            if got != expected:
                raise _incomplete(self.folder, f"{name} has sha256 {got[:12]} instead of {expected[:12]}")
            listed.add(name)
        return listed

    def _converted(self) -> tuple[ConvertedModel, ...]:
        digest = converted_hash(self.manifest)
        return () if digest is None else (conversion.load_converted(self.folder / ENGINE, digest),)

    def _same_function(self, config: CertifyConfig | None, changes: dict[str, Any]) -> CertifyConfig:
        # The seed is not part of the function: whoever knew it could search for images with unlucky noise.
        config = (config or replace(self.config, seed=None)).changed(**changes)
        remedy = "the certificate is for the exported function; certify the other one and export that"
        certified, now = function_settings(self.config), function_settings(config)
        require_equal(certified, now, ConfigError, "the function that was certified", remedy)
        return config

    def _differences(self, certifier: Certifier) -> tuple[str, ...]:
        now = {"engine": certifier.engine.describe(), "versions": versions()}
        found = differences({key: getattr(self.manifest, key) for key in now}, now)
        if not found:
            return ()
        changes = "; ".join(f"{key} {here}, certified with {stated}" for key, stated, here in found)
        return (f"rounding, and with it the function, may differ here: {changes}",)


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Names a classifier that was not trained here, and its images, so that another process can open both.

    The manifest of a ledger has it.
    """

    place: str
    """An ONNX file, `hf://user/name`, `package.module:function` or, behind a denoiser, a checkpoint."""
    data: DataConfig
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    denoiser: str | None = None
    """What `open_denoiser` opens: the denoiser of denoised smoothing (Salman et al. 2020)."""

    def open(self, sigma: float) -> OwnModel:
        """Opens the classifier; its denoiser, if it has one, is told the noise level sigma."""
        from smoothheads.models.denoiser import denoised

        model: MultiHead | BlackBox
        if is_own_model(self.place):
            found = load_object(self.place) if is_object_name(self.place) else self.place
            model = adapt(found, mean=self.mean, std=self.std)
        else:
            model = open_checkpoint(self.place).model
        if self.denoiser is None:
            return OwnModel(self.place, model, self)
        name = f"{self.place} behind {self.denoiser}"
        return OwnModel(name, denoised(model, open_denoiser(self.denoiser), sigma), self)


@dataclass(frozen=True)
class OwnModel:
    """A classifier that was not trained here."""

    name: str
    model: MultiHead | BlackBox
    source: ModelSource | None = None
    """Where it comes from, if another process can open it again."""

    @property
    def weights_hash(self) -> str:
        if isinstance(self.model, BlackBox):
            return self.model.fingerprint()
        return state_fingerprint(self.model)


def open_denoiser(place: str) -> Any:
    """Returns the function, network or pipeline that `denoised` takes, see `put_denoiser_before`."""
    from smoothheads.models.denoiser import Denoiser

    if is_object_name(place):
        return load_object(place)
    folder = hub.local(place)
    if (folder / "model_index.json").is_file():
        pipelines = import_extra("diffusers", "denoise").DiffusionPipeline
        return pipelines.from_pretrained(folder, use_safetensors=True, local_files_only=True)
    network = checkpoint.load(folder).model.heads[0]
    if not isinstance(network, Denoiser):
        raise ConfigError(f"{place} is a classifier and no denoiser: give zoo:denoiser, for example.")
    return network


def open_model(place: str | Path, structure: nn.Module | None = None) -> Model:
    """Opens the classifier in a folder or at `hf://user/name[@revision]`.

    Args:
        place: A checkpoint, the folder of a training run, or an export.
        structure: The module that the weights belong to, if the registry of architectures does not know it.
    """
    if is_own_model(place):
        raise ConfigError(
            f"{place} does not say what images it takes: certify it with --data, or in Python with "
            "sh.Smoothed(model, data, sigma=...)."
        )
    folder = hub.local(place)
    return Export.open(folder, structure) if is_export(folder) else Model(folder, structure)


def from_pretrained(place: str | Path, *, model: nn.Module | None = None, **changes: Any) -> Smoothed:
    """Returns the smoothed classifier in a folder or at `hf://user/name[@revision]`.

    An export is exactly the function that was certified, and refuses `changes` that make another one; a plain
    checkpoint has the sigma that it was trained with unless `changes` name another. Every file is checked
    against its hash, and no code that comes with it is run.

    Args:
        place: A checkpoint, the folder of a training run, or an export.
        model: The structure of a network that the registry of architectures does not know.
        changes: Settings such as n=1000 or alpha=0.01.
    """
    return open_model(place, model).smoothed(**changes)


def is_export(folder: Path | str) -> bool:
    """Returns whether it is an export, perhaps one that lost a file: it must not pass for a checkpoint."""
    return any((hub.local(folder) / name).is_file() for name in (FACTS, SUMS))


# What a ledger says about the function that it certifies.


def function_settings(config: CertifyConfig) -> dict[str, Any]:
    """Returns the settings that make the function; the others say how often it is sampled."""
    plain = to_dict(config.resolved())
    free = {"alpha", "recheck", "seed", "budget", "n0", "n", "radii", "tolerance", "floor", "target"}
    free |= {"seconds", "label_aware"}
    return {name: value for name, value in plain.items() if name not in free}


def certified_settings(manifest: Manifest) -> CertifyConfig:
    """Returns what a ledger was certified with, as a classifier without labels uses it."""
    return manifest.certify.changed(label_aware=False)


def converted_hash(manifest: Manifest) -> str | None:
    """Returns the hash of the converted network that was certified; None for an engine that converts none."""
    if manifest.certify.engine not in EXTRAS:
        return None
    stated = manifest.engine.get("artefact")
    if not isinstance(stated, dict) or not isinstance(stated.get("sha256"), str):
        raise LedgerError(f"The manifest does not name the converted network ({stated!r}): certify again.")
    return str(stated["sha256"])


def find_converted(manifest: Manifest, ledger: Path, checkpoint: Path) -> tuple[ConvertedModel, ...]:
    """Returns the converted network that was certified, if the engine converts networks.

    Raises CheckpointError if it is not where `certify` keeps it any more.
    """
    digest = converted_hash(manifest)
    roots = engines_folder(checkpoint), ledger / ENGINES
    return () if digest is None else (conversion.find(roots, digest),)


def check_weights(manifest: Manifest, got: str) -> None:
    """Raises LedgerError unless the ledger was certified with the weights of this hash."""
    stated = str(manifest.weights)
    if stated != got:
        raise LedgerError(
            f"The ledger was certified with the weights {stated[:12]}..., and these are {got[:12]}...: "
            "give the checkpoint that the ledger is about."
        )


def required_files(manifest: Manifest) -> set[str]:
    """Returns the files that an export of this ledger has, the list of hashes apart."""
    folders = {CHECKPOINT: CHECKPOINT_FILES, LEDGER: LEDGER_FILES}
    if converted_hash(manifest) is not None:
        onnx = manifest.certify.engine == "onnxruntime"
        folders[ENGINE] = (
            *conversion.FILES[conversion.ONNX if onnx else conversion.OPENVINO],
            conversion.FACTS,
        )
    return {FACTS, README} | {f"{folder}/{name}" for folder, names in folders.items() for name in names}


def checksums(folder: Path) -> str:
    """Returns the hashes of all files in the folder, as `sha256sum` writes them."""
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(_files(folder)))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _incomplete(folder: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{folder} is not as it was exported ({why}): copy it again, or export again.")
