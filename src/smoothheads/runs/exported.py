"""An exported folder: the function that was certified, as a whole, and what was certified of it.

Opening it checks every file against SHA256SUMS. That finds damage and mix-ups; whoever can rewrite the list
can rewrite the files, so a stranger's folder is as good as the way its list came to you.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothheads import hub
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Artefacts, Store, artefact
from smoothheads.certify.engines.artefact import Artefact
from smoothheads.certify.engines.onnx import OnnxRuntime
from smoothheads.checkpoint import folder as checkpoint
from smoothheads.config import differences, load_json, require_equal, to_dict
from smoothheads.errors import CheckpointError, ConfigError, LedgerError
from smoothheads.files import sha256
from smoothheads.provenance import versions
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE, Manifest, read_manifest
from smoothheads.runs.layout import CHECKPOINT, ENGINES, LEDGER, engines_folder, open_checkpoint

if TYPE_CHECKING:
    from smoothheads.models.multihead import MultiHead
    from smoothheads.smoothed import Smoothed

FORMAT = "smoothheads-export/1"
EXTRAS = {"openvino": "openvino", "onnxruntime": "onnx"}
"""Of the engines that convert networks."""
FACTS, README, SUMS, ENGINE = "export.json", "README.txt", "SHA256SUMS", "engine"

CHECKPOINT_FILES = (checkpoint.WEIGHTS, checkpoint.CONFIG, checkpoint.MANIFEST)
LEDGER_FILES = (ledger.TABLE, FILE)


def _function(config: CertifyConfig) -> dict[str, Any]:
    """The settings that make the function; the others say how often it is asked and how sure the answer must
    be."""
    plain = to_dict(config)
    noise, engine = plain["noise"], plain["engine"]
    own = {name: plain[name] for name in ("sigma", "aggregation", "block")}
    return own | {"noise": noise.pop("name"), **noise, "engine": engine.pop("name"), **engine}


@dataclass(frozen=True, slots=True)
class Exported:
    """Made by `Exported.open`."""

    folder: Path
    config: CertifyConfig
    manifest: Manifest
    """Of the ledger."""
    facts: dict[str, Any]
    """What export.json says."""

    @classmethod
    def open(cls, folder: Path | str) -> Exported:
        """Raises CheckpointError for a folder that is not exactly as it was exported."""
        folder = hub.local(folder)
        listed = _verified(folder)
        manifest, facts = read_manifest(folder / LEDGER), _json(folder / FACTS)
        if facts.get("format") != FORMAT:
            raise CheckpointError(
                f"format {FORMAT}", repr(facts.get("format")), "use the version that wrote it"
            )
        unlisted = required(manifest) - listed
        if unlisted:
            raise _incomplete(folder, f"no line for {', '.join(sorted(unlisted))}")
        require_weights(manifest, sha256(folder / CHECKPOINT / checkpoint.WEIGHTS))
        return cls(folder, settings(manifest), manifest, facts)

    def smoothed(
        self, config: CertifyConfig | None = None, *, model: MultiHead | None = None, **changes: Any
    ) -> Smoothed:
        """The smoothed classifier that was certified; `changes` may concern n0, n, alpha and the budget.

        `model` gives the structure of a network that the registry does not know. Raises ConfigError for
        settings that make another function. `notes` say what of the software differs here.
        """
        from smoothheads.checkpoint.weights import load
        from smoothheads.smoothed import Smoothed

        config = self._same_function(config, changes)
        loaded = load(self.folder, model)
        smoothed = Smoothed(loaded.model, loaded.info, config, store=Store(given=self._artefacts()))
        smoothed.notes += self._unlike(smoothed)
        return smoothed

    def certifier(self, config: CertifyConfig | None = None, **changes: Any) -> Certifier:
        """As `smoothed`, but without PyTorch where the engine needs none."""
        config = self._same_function(config, changes)
        seeded = config.seeded()
        if not isinstance(seeded.engine, OnnxRuntime):
            return self.smoothed(config)
        assert seeded.seed is not None
        _, info = checkpoint.description(self.folder / CHECKPOINT)
        noise = seeded.noise.keyed(seeded.sigma, info.grid, seeded.seed, seeded.block)
        (found,) = self._artefacts()
        certifier = Certifier(
            seeded.engine.open(found, noise), info, seeded, repeatable=config.seed is not None
        )
        certifier.notes = self._unlike(certifier)
        return certifier

    def listed(self) -> set[str]:
        """The files of the export, its list of hashes apart."""
        return _verified(self.folder)

    def _artefacts(self) -> Artefacts:
        hashes = artefact_hashes(self.manifest)
        return tuple(artefact.stored(self.folder / name, digest) for name, digest in hashes.items())

    def _same_function(self, config: CertifyConfig | None, changes: dict[str, Any]) -> CertifyConfig:
        config = (config or replace(self.config, seed=None)).changed(**changes)
        remedy = "the certificate is for the exported function; certify the other one and export that"
        certified, wanted = _function(self.config), _function(config)
        require_equal(certified, wanted, ConfigError, "the function that was certified", remedy)
        return config

    def _unlike(self, smoothed: Certifier) -> tuple[str, ...]:
        now = {"engine": smoothed.engine.describe(), "versions": versions()}
        found = differences({key: getattr(self.manifest, key) for key in now}, now)
        if not found:
            return ()
        changes = "; ".join(f"{key} {here}, certified with {stated}" for key, stated, here in found)
        return (f"rounding, and with it the function, may differ here: {changes}",)


def open_export(folder: Path | str, *, model: MultiHead | None = None, **changes: Any) -> Smoothed:
    """The smoothed classifier in an exported folder, or at `hf://user/name[@revision]`; see `Exported`."""
    return Exported.open(folder).smoothed(model=model, **changes)


def from_pretrained(place: str | Path, **changes: Any) -> Smoothed:
    """The smoothed classifier in a folder or at `hf://user/name[@revision]`.

    An export is exactly the function that was certified, and refuses `changes` that make another one; a plain
    checkpoint has the sigma that it was trained with unless `changes` name another. Every file is checked
    against its hash, and no code that comes with it is run.
    """
    from smoothheads.smoothed import Smoothed

    folder = hub.local(place)
    if is_export(folder):
        return Exported.open(folder).smoothed(**changes)
    loaded = open_checkpoint(folder)
    settings = {"sigma": loaded.config.train.sigma, "store": Store(engines_folder(folder)), **changes}
    return Smoothed(loaded.model, loaded.info, **settings)


def is_export(folder: Path | str) -> bool:
    """Also of one that lost a file: it must not pass for a plain checkpoint."""
    return any((hub.local(folder) / name).is_file() for name in (FACTS, SUMS))


def settings(manifest: Manifest) -> CertifyConfig:
    """What a ledger was certified with, as a classifier without labels uses it."""
    config = manifest.certify
    if config.engine.undecided:
        raise LedgerError("a ledger that says its engine", "auto", "certify with this version")
    return config.changed(label_aware=False) if config.budget.uses_label else config


def artefact_hashes(manifest: Manifest) -> dict[str, str]:
    """Of the converted networks that were certified, by their folders in an export; none for an engine that
    converts nothing."""
    stated = manifest.engine.get("artefact", {})
    parts = {ENGINE: stated} if "sha256" in stated else {f"{ENGINE}/{part}": stated[part] for part in stated}
    if not all(isinstance(part, dict) and isinstance(part.get("sha256"), str) for part in parts.values()):
        raise LedgerError("a manifest that names the converted network", repr(stated), "certify again")
    if not parts and settings(manifest).engine.name in EXTRAS:
        raise LedgerError("a manifest that names the converted network", "none", "certify with this version")
    return {folder: part["sha256"] for folder, part in parts.items()}


def find_artefacts(manifest: Manifest, ledger: Path, checkpoint: Path) -> dict[str, Artefact]:
    """The converted networks that were certified, by their folders in an export, where `certify` keeps them;
    raises CheckpointError if they are not there any more."""
    roots = engines_folder(checkpoint), ledger / ENGINES
    return {folder: artefact.find(roots, digest) for folder, digest in artefact_hashes(manifest).items()}


def require_weights(manifest: Manifest, got: str) -> None:
    stated = str(manifest.weights)
    if stated != got:
        raise LedgerError(
            f"the weights that the ledger was certified with ({stated[:12]}...)",
            f"{got[:12]}...",
            "give the checkpoint that the ledger is about",
        )


def required(manifest: Manifest) -> set[str]:
    """The files that an export of this ledger has, the list of hashes apart."""
    folders = {CHECKPOINT: CHECKPOINT_FILES, LEDGER: LEDGER_FILES}
    files = artefact.FILES[
        artefact.ONNX if isinstance(manifest.certify.engine, OnnxRuntime) else artefact.FORMAT
    ]
    folders |= dict.fromkeys(artefact_hashes(manifest), (*files, artefact.FACTS))
    return {FACTS, README} | {f"{folder}/{name}" for folder, names in folders.items() for name in names}


def sums(folder: Path) -> str:
    """As `sha256sum` writes them, of every file in the folder."""
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(_files(folder)))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _verified(folder: Path) -> set[str]:
    """The names in the list; raises CheckpointError where a file is not there or not the same."""
    path = folder / SUMS
    if not path.is_file():
        raise _incomplete(folder, f"no {SUMS}")
    there, listed = _files(folder), set()
    for line in path.read_bytes().decode("latin-1").removesuffix("\n").split("\n"):
        found = re.fullmatch(r"([0-9a-f]{64})  (\S+)", line)
        if found is None:
            raise _incomplete(folder, f"a damaged {SUMS}")
        wanted, name = found.groups()
        got = sha256(folder / name) if name in there else "no file"
        if got != wanted:
            raise _incomplete(folder, f"{name} with sha256 {got[:12]} instead of {wanted[:12]}")
        listed.add(name)
    return listed


def _json(path: Path) -> dict[str, Any]:
    try:
        return load_json(path)
    except ConfigError as error:
        raise CheckpointError(f"{error} Or export again.") from None


def _incomplete(folder: Path, got: str) -> CheckpointError:
    return CheckpointError(f"an export as it was written in {folder}", got, "copy it again, or export again")
