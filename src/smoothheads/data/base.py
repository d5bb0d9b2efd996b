"""Data sets: their settings, the facts about their images, the interface of a split, and where files are.

Everything that runs on settings alone (`--help`, recipes, reports) needs this module and no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn, Protocol

from smoothheads import hub
from smoothheads.config.check import Count, Natural, check_fields
from smoothheads.errors import ConfigError, DataError
from smoothheads.registry import Registry
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Split = Literal["train", "test"]  # what a data set comes in; validation images are cut from train

DATASETS: Registry[type[DataConfig]] = Registry("data set", "smoothheads.datasets")


@dataclass(frozen=True, slots=True)
class DataInfo:
    """The facts about a data set that the model, checkpoints and ledgers need."""

    name: str
    grid: Grid
    shape: tuple[int, int, int]
    """Channels, height, width of one image."""
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and standard deviation per channel, of pixels in [0, 1]; the model's normalisation layer uses
    them."""

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def unnormalized(self) -> DataInfo:
        """Returns a copy with mean 0 and standard deviation 1, for data without training images."""
        channels = self.shape[0]
        return replace(self, mean=(0.0,) * channels, std=(1.0,) * channels)


class Dataset(Protocol):
    """One split. `image(i)` returns grid integers [C, H, W] without augmentation, always the same."""

    @property
    def info(self) -> DataInfo: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def indices(self) -> NDArray[np.int64]:
        """Positions in the original split, which ledgers call idx."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of content and selection: equal fingerprints mean equal images, labels and indices."""
        ...

    def image(self, position: int) -> Pixels: ...

    def take(self, positions: NDArray[np.int64]) -> Dataset:
        """Returns the images at these positions, which remember their indices."""
        ...

    def downscaled(self, factor: int) -> Dataset:
        """Averages square groups of pixels on the grid; the factor must divide both sides."""
        ...

    def __len__(self) -> int: ...


class Splits(NamedTuple):
    """Training images, validation images that were cut from them, and the test split."""

    train: Dataset
    validation: Dataset
    test: Dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class SubsetConfig:
    """Chooses images of a split; the fields apply in the order indices, offset, every, first."""

    offset: Natural = 0
    """Leave out this many images first: --offset 10 --every 20 keeps 10, 30, 50, ..."""
    every: Count = 1
    """Keep every k-th image from there on (the field certifies every 20th of CIFAR-10)."""
    first: Count | None = None
    """Then keep at most this many."""
    indices: tuple[int, ...] | None = None
    """Explicit positions in the split."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class DataConfig(ABC):
    """Settings of a data set. A subclass has a `name` of its own and reads a split."""

    registry: ClassVar[Registry[Any]] = DATASETS
    name: ClassVar[str]
    known: ClassVar[DataInfo | None] = None
    """The facts of a published set, which need no files."""
    augmented: ClassVar[bool] = False
    """True if `augment` auto means crop-flip."""

    root: str | None = None
    """Folder or archive that holds the data set (digits are built in)."""
    downscale: Count = 1
    """Average square groups of this many pixels a side, e.g. 2 makes CIFAR-10 16x16."""
    augment: Literal["auto", "none", "crop-flip"] = "auto"
    """Random crop (padding an eighth of the side) and flip; auto: for CIFAR and folders, not for digits."""
    validation: float = 0.1
    """Fraction of the training split that is held out to validate training; the test split is never used to
    choose anything."""
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    """The training images that are used, before the validation images are cut off."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.validation < 1:
            raise ConfigError(
                f"data.validation must be at least 0 and below 1, not {self.validation:g}; "
                "0.1 holds out a tenth."
            )

    @abstractmethod
    def read(self, split: Split) -> Dataset:
        """Returns the full split, neither downscaled nor augmented; raises DataError if it cannot."""

    def another(self, name: str) -> DataConfig:
        """Returns the settings of the data set `name`, with the values of the fields that both have."""
        kind = DATASETS.get(name)
        both = {field.name for field in fields(self)} & {field.name for field in fields(kind)}
        return kind(**{key: getattr(self, key) for key in both})

    def framed(self, picture: Image) -> Image:
        """Crops and resizes a picture as the images of this set are; by default it stays as it is."""
        return picture


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class InMemory(DataConfig):
    """Stands in a checkpoint for images that were passed in Python; the checkpoint has their facts."""

    name: ClassVar[str] = "in-memory"

    def read(self, split: Split) -> NoReturn:
        raise DataError(
            f"The {split} images were passed in Python and cannot be read again; pass them again, or name a "
            "data set (--data.name)."
        )


def named(name: str, **settings: Any) -> DataConfig:
    """Returns the settings of the data set `name`; raises ConfigError with the nearest known name."""
    return DATASETS.get(name)(**settings)


def damaged(path: Path | str, what: str, reason: str | BaseException) -> DataError:
    """Returns the error for a file that exists but is not a complete `what`."""
    return DataError(
        f"{path} is not a complete {what} ({str(reason) or type(reason).__name__}); fetch the file again."
    )


def existing(root: str | Path | None, name: str) -> Path:
    """Returns the root of the data set `name`, which must exist; `hf://user/name` is fetched first."""
    if root is None:
        raise DataError(f"The data set {name!r} needs to know where its files are; add --root FOLDER.")
    if hub.is_address(root):
        return hub.local(root, "dataset", ("*.parquet",))
    path = Path(root).expanduser()
    if not path.exists():
        raise DataError(f"There is no file or folder {path} for the data set {name!r}; check the path.")
    return path


def only_place(root: Path, name: str, holds: Callable[[Path], bool]) -> Path | None:
    """Returns the folder that `holds` the data: the root, or the only folder below it that does, or None."""
    # The root itself comes first.
    if not root.is_dir() or holds(root):
        return root if root.is_dir() else None
    # Then the folders below it, of which only one may hold the data.
    below = sorted(path for path in root.iterdir() if path.is_dir() and holds(path))
    if len(below) > 1:
        folders = ", ".join(path.name for path in below)
        raise DataError(f"Several folders in {root} hold {name!r} ({folders}); name one of them as the root.")
    return below[0] if below else None
