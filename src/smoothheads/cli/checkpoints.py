"""The commands that turn classifiers into other forms: export, push, import, ensemble and zoo."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from smoothheads.cli.common import OutFile, ResultCommand, local_folder, print_json, say
from smoothheads.errors import ConfigError

NewFolder = Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]


@dataclass(frozen=True, kw_only=True)
class ExportCommand(ResultCommand):
    """Put a certified classifier into one folder to ship: network, converted network if the engine has one,
    every setting, the ledger, a summary and the hash of every file. `smoothheads predict OUT image.png` then
    runs exactly the function that was certified, on a machine that needs nothing else, no training data.

    A checkpoint or a converted network that is not the certified one any more is refused."""

    ledger: tyro.conf.Positional[str]
    """Folder that `smoothheads certify` wrote, or that of a training run with a `ledger` in it."""
    out: OutFile = None
    """The new folder (default: export beside the ledger), or the new file."""
    format: Literal["folder", "onnx"] = "folder"
    """onnx: the network alone, as one file for other runtimes: pixels in [0, 1] in, logits of all heads out.
    Its certificates are those of a ledger that was certified with --engine onnxruntime."""
    checkpoint: Path | None = None
    """The network that the ledger is about, if it does not lie above the ledger."""

    def run(self) -> None:
        from smoothheads.config import load_json
        from smoothheads.results.read import ledger_folder
        from smoothheads.runs.export import export_onnx, export_run
        from smoothheads.runs.models import FACTS

        place = local_folder(self.ledger, has_out=self.out is not None)
        if self.format == "onnx":
            file = export_onnx(place, self.out or Path("model.onnx"), checkpoint=self.checkpoint)
            print_json({"out": str(file)}) if self.json else print(file)
            return
        ledger = ledger_folder(place)
        out = export_run(ledger, self.out or ledger.with_name("export"), checkpoint=self.checkpoint)
        if self.json:
            print_json({"out": str(out)} | load_json(out / FACTS))
            return
        print(out)
        say(f"try: smoothheads predict {out} IMAGE --radius")


@dataclass(frozen=True, kw_only=True)
class PushCommand(ResultCommand):
    """Upload a classifier to the Hugging Face Hub: weights, settings, the ledger as evidence, and a card with
    the certified accuracies and what is guaranteed. `hf://user/name` then stands for it wherever a checkpoint
    is taken, and `sh.from_pretrained("hf://user/name")` opens it in Python.

    Log in first with `hf auth login`, or set HF_TOKEN."""

    folder: tyro.conf.Positional[Path]
    """An export, a training run (it is exported if its ledger is finished), or a checkpoint."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="USER/NAME")]
    """Repository; it is created if it does not exist."""
    private: bool = False
    """Make a new repository private."""
    message: str | None = None
    """Message of the commit."""
    revision: str | None = None
    """Branch to push to; it is created if it does not exist."""

    def run(self) -> None:
        from smoothheads.runs.export import push

        address = push(
            self.folder, self.repo, private=self.private, message=self.message, revision=self.revision
        )
        print_json({"address": address}) if self.json else print(address)


@dataclass(frozen=True, kw_only=True)
class ImportCommand(ResultCommand):
    """Turn other people's weights into a checkpoint that certify, predict and ensemble read.

    Takes .pth and .pth.tar files of Cohen, Horvath, the SOME authors and whoever uses their layout; nothing
    in them is executed. Several files are separate networks and become one head each. The files do not say
    architecture, data and sigma, so that these are options."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Weights: the file of one network, or those of several separate networks."""
    arch: str
    """Architecture of the network, e.g. resnet110."""
    data: str
    """Data set that it was trained on; only those in folders, .npz and .parquet files must exist."""
    out: NewFolder
    """Folder of the checkpoint."""
    root: str | None = None
    """Where the data set lies; it can be named later, when certifying."""
    downscale: int = 1
    """Side of the square groups of pixels that were averaged."""
    size: int | None = None
    """Side of the images of a folder, e.g. 224 for ImageNet (default: the pictures as they are)."""
    heads: int | None = None
    """Heads in the file (default: one, or one per file)."""
    cut: str | None = None
    """Where the trunk ends (default: stage2, layer3 or convs, by the architecture)."""
    sigma: float = 0.25
    """Standard deviation of the noise that the network was trained with."""
    normalize: Literal["standard", "centre", "none"] | None = None
    """standard: the network subtracts the mean and divides by the standard deviation; centre: it only
    subtracts; none: it takes pixels as they are, as the field's LeNets do. Required except for CIFAR-10 and
    folders."""
    mean: tuple[float, ...] = ()
    """Mean per channel that the network subtracts (default: that of the data set)."""
    std: tuple[float, ...] = ()
    """Standard deviation per channel by which it divides, likewise."""

    def run(self) -> None:
        from smoothheads.checkpoint.legacy import import_weights
        from smoothheads.data import named
        from smoothheads.models import ARCHITECTURES, ModelConfig
        from smoothheads.training import RunConfig, TrainConfig

        # Where all networks of the field normalise alike, that is the default.
        normalize = self.normalize or ("standard" if self.data in ("cifar10", "folder") else None)
        if normalize is None:
            raise ConfigError(
                f"Add --normalize standard, centre or none: authors normalise images of {self.data} in "
                "different ways; the logits of an image that you know tell which."
            )
        # Several files are separate networks: heads that share nothing, hence cut at the input.
        several = len(self.files) > 1
        model = ModelConfig(
            arch=self.arch,
            heads=max(1, len(self.files)) if self.heads is None else self.heads,
            cut=self.cut or ("input" if several else ARCHITECTURES.get(self.arch).cut),
            normalize=normalize != "none",
        )
        size = {} if self.size is None else {"size": self.size}
        data = named(self.data, root=self.root, downscale=self.downscale, **size)
        config = RunConfig(data=data, model=model, train=TrainConfig(sigma=self.sigma))
        centre_only = normalize == "centre"
        out = import_weights(
            self.files, config, self.out, centre_only=centre_only, mean=self.mean, std=self.std
        )
        if self.json:
            print_json({"checkpoint": str(out)})
            return
        say(f"{model.arch}, {model.heads} head(s), trained on {self.data} with sigma {self.sigma:g}")
        print(out)


@dataclass(frozen=True, kw_only=True)
class EnsembleCommand(ResultCommand):
    """Join separately trained networks into one whose heads they are: one checkpoint, certified by every
    aggregation (mean, vote, consensus, ...) in one pass. The heads' logits are the members' to the bit.

    With --learn-weights the aggregation `weighted` is learned on noisy validation images; one multi-head
    checkpoint is enough for that."""

    checkpoints: tyro.conf.Positional[tuple[Path, ...]]
    """Checkpoint folders or folders of training runs, of one architecture, one data set and one sigma."""
    out: NewFolder
    """Folder of the joined checkpoint."""
    learn_weights: bool = False
    """Learn a weight per head on validation images, for the aggregation `weighted`."""
    on_training: bool = False
    """Learn on training images instead, which the networks know."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training; only learning needs it."""
    draws: int = 10
    """Noise draws per image that the weights are learned on."""
    device: str = "cpu"
    """Device that learns the weights; cuda is untested."""
    threads: int = 1
    """Threads of torch."""

    def run(self) -> None:
        from smoothheads import device
        from smoothheads.checkpoint import load
        from smoothheads.runs.ensemble import ensemble_run

        with device.threads(self.threads):
            out = ensemble_run(
                self.checkpoints,
                self.out,
                learn_weights=self.learn_weights,
                root=self.root,
                draws=self.draws,
                on_training=self.on_training,
                device=device.parse(self.device),
            )
        joined = load(out)
        learned, heads = joined.model.ensemble_weights, len(joined.model.heads)
        weights = None if learned is None else [round(w, 4) for w in learned.tolist()]
        if self.json:
            print_json({"checkpoint": str(out), "heads": heads, "weights": weights})
            return
        source = f", weights {weights} from {joined.manifest['weights_learned_on']} images" if weights else ""
        say(f"{heads} heads{source}")
        print(out)


@dataclass(frozen=True, kw_only=True)
class ZooCommand(ResultCommand):
    """List the trained networks that come with smoothheads. `zoo:NAME` stands for one wherever a checkpoint
    is taken, for example `smoothheads predict zoo:NAME image.png --radius`. Each classifier comes with the
    ledger that proves its numbers: `smoothheads audit zoo:NAME`. `smoothheads push zoo:NAME user/name` puts
    one on the Hugging Face Hub."""

    def run(self) -> None:
        from smoothheads.report.table import NONE, Table, number, to_text, word
        from smoothheads.zoo import entries, installed

        networks = list(entries().values())
        if self.json:
            print_json([asdict(entry) for entry in networks])
            return
        # One column for each radius at which any of the ledgers was evaluated.
        radii = sorted(
            {radius for entry in networks for radius in entry.metrics.get("certified", {})}, key=float
        )
        rows = []
        for entry in networks:
            metrics, certified = entry.metrics, entry.metrics.get("certified", {})
            cells = [
                word(f"zoo:{entry.name}"),
                word(metrics["data"]),
                number(metrics["sigma"], "g"),
                number(metrics.get("images"), ",d"),
                number(metrics.get("acr"), ".3f"),
                *(number(certified.get(radius), ".1%") for radius in radii),
                number(entry.size, ".1f", 1e-6),
                word(entry.cost) if entry.cost else NONE,
            ]
            rows.append(tuple(cells))
        columns = ("network", "data", "sigma", "images", "ACR", *radii, "MB", "training")
        title = "Trained networks: certified accuracy by radius, size, and cost of training"
        notes = []
        for entry in networks:
            notes.append(f"zoo:{entry.name} was trained by: {entry.command}")
            if psnr := entry.metrics.get("validation", {}).get("psnr"):
                decibels = ", ".join(f"{value:.1f} dB at sigma {sigma}" for sigma, value in psnr.items())
                notes.append(
                    f"It is a denoiser (--denoiser zoo:{entry.name}) and restores images to {decibels}."
                )
            elif not entry.certified:
                notes.append("It was never certified, and comes without a ledger.")
            if installed(entry.name) is None:
                notes.append("Its files are in a checkout of the repository only.")
        print(to_text(Table(title, columns, tuple(rows), tuple(notes))))
