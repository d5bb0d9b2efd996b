"""smoothheads certify CHECKPOINT [...]"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import tyro

from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import trained_config
from smoothheads.cli.common import OutFolder, ResultCommand, first_argument, local_folder, parse, say
from smoothheads.cli.progress import Progress
from smoothheads.cli.study import parse_cluster, silent
from smoothheads.data import SubsetConfig
from smoothheads.errors import ConfigError
from smoothheads.models.adapters import is_own_model
from smoothheads.types import Certified

if TYPE_CHECKING:
    from smoothheads.checkpoint import Checkpoint
    from smoothheads.data import Dataset
    from smoothheads.runs.models import OwnModel
    from smoothheads.runs.on_ray import State

Shard = tuple[int, int]
"""Every n-th image from the i-th on, as (i, n)."""
TASK_NUMBERS: Final = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
"""Variables in which Slurm and Kubernetes number the tasks of an array or an indexed job."""
VERIFY_SECONDS: Final = 120.0
"""A shorter run is not verified in a fresh process, whose start would cost too much."""


@dataclass(frozen=True, kw_only=True)
class CertifyCommand(ResultCommand):
    """Certify test images: for each one a class and a radius R, so that with probability at least 1 - alpha
    no perturbation of norm below R changes the prediction of the smoothed classifier. The noise decides the
    norm: l2 if it is Gaussian (grid, gaussian), l1 if it is uniform or Laplace.

    CLASSIFIER comes first: a checkpoint folder, the folder of a training run, or a classifier of your own
    with --data and --sigma: an ONNX file, hf://user/name or a folder of transformers or timm, or
    package.module:function, which names a module of PyTorch, a function that makes one, or a function of
    NumPy images [N, C, H, W] in [0, 1] that returns logits or classes. Finished images are in OUT/ledger.tsv
    at once; run the same command again after an interruption and it goes on.

    --budget (fixed, table, radius, anytime), --noise (grid, gaussian, uniform, laplace) and --engine (torch,
    openvino, onnxruntime) choose what the options below are about; --engine openvino is faster than
    torch."""

    certify: Annotated[CertifyConfig, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes]
    classifier: tyro.conf.Fixed[str] = ""
    subset: Annotated[SubsetConfig, tyro.conf.arg(name="")] = field(default_factory=SubsetConfig)
    out: OutFolder = None
    """Folder of the ledger (default: ledger beside the checkpoint)."""
    data: str | None = None
    """Data set of a classifier of your own, such as folder or cifar10; `smoothheads info data` lists them."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    image_size: int | None = None
    """Side to which --data folder crops its pictures (default: the pictures as they are)."""
    mean: tuple[float, ...] | None = None
    """Mean per channel that a classifier of your own expects to be subtracted from pixels in [0, 1]."""
    std: tuple[float, ...] | None = None
    """Standard deviation per channel that it expects the difference to be divided by."""
    denoiser: str | None = None
    """Denoiser in front of a classifier that was trained without noise: zoo:denoiser, a checkpoint, the
    folder or hf:// address of a pipeline of diffusers, or package.module:function (images, sigma)."""
    shard: str | None = None
    """i/n: every n-th image from the i-th on (i from 0), for job arrays; `smoothheads merge` joins them.
    auto/n asks Slurm or Kubernetes for i, where tasks are numbered from 0."""
    workers: int | None = None
    """Processes that share the images out, each with its own threads; the ledger is the same. Default: one
    per core. On Ray: as many as fit."""
    on: Literal["ray"] | None = None
    """ray: on a Ray cluster, which gives the same ledger. Its workers share the images out; what a lost
    worker had under way runs again elsewhere, and nodes may join."""
    ray_address: str | None = None
    """host:port of the cluster's head, or auto (default: RAY_ADDRESS, else a cluster of this machine that
    starts and stops with the command)."""
    fresh: bool = False
    """Throw away what the ledger holds and start again."""

    @classmethod
    def read(cls, arguments: list[str]) -> Self:
        remedy = "give the folder that `smoothheads train` wrote, or an ONNX file"
        name, rest = first_argument(arguments, "a classifier", remedy)
        has_out = any(word.partition("=")[0] in ("-o", "--out") for word in rest)
        name = name and str(local_folder(name, has_out=has_out))
        own = bool(name) and is_own_model(name)
        sigma = trained_config(name).certified_sigma if name and not own else 0.25
        if own and not any(word.partition("=")[0] == "--sigma" for word in rest):
            raise ConfigError(
                "Give --sigma, the standard deviation of the noise, for a classifier of your own."
            )
        default = cls(certify=CertifyConfig(sigma=sigma), classifier=name)
        return parse(cls, rest, default=default, prog=f"certify {name or 'CLASSIFIER'}")

    def run(self) -> None:
        from smoothheads.cli.report import show
        from smoothheads.results.read import read_log
        from smoothheads.runs.certify import abstention_note, certify_run
        from smoothheads.runs.models import OwnModel, engines_folder

        classifier, dataset = self._open()
        own = isinstance(classifier, OwnModel)
        # Which images this process certifies: all, those of a shard, or what Ray gives its workers.
        shard = None if self.shard is None else parse_shard(self.shard)
        if shard is not None and self.certify.seed is None:
            raise ConfigError("All shards of a run must share one seed: give each of them the same --seed.")
        cluster = parse_cluster(self.on, self.ray_address, self.workers, self.certify.threads)
        if shard is not None and cluster is not None:
            raise ConfigError("Give either --shard or --on ray: Ray shares the images out itself.")
        out = self.out or self._default_out(shard)
        images = len(dataset) if shard is None else len(range(shard[0], len(dataset), shard[1]))
        # With a fixed budget progress is counted in samples, otherwise their number is not known beforehand.
        fixed = self.certify.budget == "fixed"
        per_image = self.certify.plan.typical_samples if fixed else 1
        started = time.monotonic()
        with Progress("certify") as progress, silent(cluster):
            notes = {"images": "", "cluster": ""}

            def on_row(_: Certified, done: int, total: int) -> None:
                notes["images"] = f"{done} of {total} images"
                on_votes(max(0, done * per_image - progress.done))

            def on_votes(count: int) -> None:
                progress.add(count, ", ".join(filter(None, notes.values())))

            def on_status(workers: Mapping[State, int]) -> None:
                counts = ", ".join(f"{count} {state}" for state, count in workers.items())
                notes["cluster"] = f"workers: {counts}"
                on_votes(0)

            certify_run(
                classifier,
                dataset,
                self.certify,
                out,
                workers=self.workers,
                cluster=cluster,
                converted=None if own else engines_folder(self.classifier),
                shard=shard,
                fresh=self.fresh,
                on_note=say,
                on_convert=progress.prepare,
                on_start=lambda done: progress.begin(images * per_image, done * per_image),
                on_row=on_row,
                on_votes=on_votes if fixed else None,
                on_status=on_status,
            )
        # Votes that depend on state outside of the network come out otherwise in a fresh process.
        if self.certify.recheck and time.monotonic() - started > VERIFY_SECONDS:
            from smoothheads.runs.referee import recheck_votes

            say("evaluating some images again in a fresh process")
            result = recheck_votes(None if own else self.classifier, out, root=self.root)
            say(f"{len(result.images)} images get the same votes there")
        show([out], as_json=self.json)
        if (note := abstention_note(read_log(out))) is not None:
            say(f"note: {note}")
        if not self.json:
            say(f"ledger: {out}")

    def _default_out(self, shard: Shard | None) -> Path:
        """Returns the folder of the ledger: beside the checkpoint or the ONNX file, or named after a
        function."""
        kind = "ledger" if self.denoiser is None else "denoised-ledger"
        kind += "" if shard is None else f"-{shard[0]}-of-{shard[1]}"
        if not is_own_model(self.classifier):
            return Path(self.classifier) / kind
        path = Path(self.classifier.replace(":", "."))
        return path.with_name(f"{path.name.removesuffix('.onnx')}-{kind}")

    def _open(self) -> tuple[Checkpoint | OwnModel, Dataset]:
        """Returns the network of a checkpoint or a classifier of the user's own, perhaps behind a denoiser,
        and the images to certify."""
        from smoothheads.data import load_test, named, select
        from smoothheads.runs.certify import certification_images
        from smoothheads.runs.models import ModelSource, open_checkpoint

        if is_own_model(self.classifier):
            if self.data is None:
                raise ConfigError(
                    f"Give --data and --root: {self.classifier} does not say what images it takes."
                )
            if self.image_size is not None and self.data != "folder":
                raise ConfigError("--image-size is for --data folder; other data sets have one size.")
            size = {} if self.image_size is None else {"size": self.image_size}
            data = named(self.data, root=self.root, **size)
            dataset = select(load_test(data), self.subset)
        else:
            if self.data is not None or self.mean or self.std or self.image_size:
                raise ConfigError(
                    "--data, --image-size, --mean and --std are for ONNX files and functions: a checkpoint "
                    "has its own."
                )
            checkpoint = open_checkpoint(self.classifier)
            data = checkpoint.config.data
            data = replace(data, root=self.root or data.root)
            checkpoint = replace(checkpoint, config=replace(checkpoint.config, data=data))
            trained = checkpoint.config.train.sigma
            if self.certify.sigma != trained and self.denoiser is None:
                say(f"note: trained with sigma {trained:g}, certifying with {self.certify.sigma:g}")
            dataset = certification_images(checkpoint, self.subset, on_note=say)
            if self.denoiser is None:
                return checkpoint, dataset
        source = ModelSource(
            place=self.classifier, data=data, mean=self.mean, std=self.std, denoiser=self.denoiser
        )
        return source.open(self.certify.sigma), dataset


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """Returns (i, n) of i/n, or of auto/n, which asks the scheduler for i.

    Args:
        text: The value of --shard.
        environment: Variables in which Slurm and Kubernetes number the tasks.
    """
    given = re.fullmatch(r"(\d+|auto)/(\d+)", text)
    if given is None:
        raise ConfigError(f"{text!r} is no shard: give i/n with 0 <= i < n, or auto/n.")
    number, count = given[1], int(given[2])
    if number == "auto":
        number = next((environment[name] for name in TASK_NUMBERS if name in environment), "")
    if not number.isdecimal():
        raise ConfigError(
            f"--shard {text} needs {' or '.join(TASK_NUMBERS)}: run it as a task of a Slurm array or of an "
            "indexed job, or give the shard as i/n."
        )
    if int(number) >= count and given[1] != "auto":
        raise ConfigError(f"{text!r} is no shard: give i/n with 0 <= i < n, or auto/n.")
    if int(number) >= count:
        raise ConfigError(
            f"Task {number} has no place among the shards of --shard {text}: number the tasks from 0, or "
            "give the right n."
        )
    return int(number), count
