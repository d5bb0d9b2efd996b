"""Which data set, which of its images, and what is done to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from smoothheads.config.check import Count, Natural, check_fields
from smoothheads.data.base import DataInfo, Source, Split
from smoothheads.errors import ConfigError, DataError
from smoothheads.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

DATASETS: Registry[type[DataConfig]] = Registry("data set", "smoothheads.datasets")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubsetConfig:
    """Which images of a split are used; applied in the order indices, offset, every, first."""

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
    """A data set: what a class must say is its `name` and how a split is read."""

    registry: ClassVar[Registry[Any]] = DATASETS
    name: ClassVar[str]
    known: ClassVar[DataInfo | None] = None
    """The facts of a published set, which need no files."""
    augmented: ClassVar[bool] = False
    """Whether `augment` auto means crop-flip."""

    root: str | None = None
    """Folder or archive that holds the data set (digits are built in)."""
    downscale: Count = 1
    """Average square groups of this many pixels a side, e.g. 2 makes CIFAR-10 16x16."""
    augment: Literal["auto", "none", "crop-flip"] = "auto"
    """Random crop (padding an eighth of the side) and flip; auto: for CIFAR and folders, not for digits."""
    validation: float = 0.1
    """Share of the training split that is held out to watch training; the test split chooses nothing."""
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    """Which training images are used, before the validation images are cut off."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.validation < 1:
            raise ConfigError("0 <= validation < 1", f"{self.validation:g}", "0.1 holds out a tenth")

    @abstractmethod
    def read(self, split: Split) -> Source:
        """The whole split, neither downscaled nor augmented; raises DataError where it cannot be read."""

    def another(self, name: str) -> DataConfig:
        """The data set of that name with the settings that both have."""
        kind = DATASETS.get(name)
        both = {field.name for field in fields(self)} & {field.name for field in fields(kind)}
        return kind(**{key: getattr(self, key) for key in both})

    def framed(self, picture: Image) -> Image:
        """A picture from elsewhere, cut and resized as those of this set are: by default not at all."""
        return picture


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Own(DataConfig):
    """Stands in a checkpoint for images that were passed in Python; its other facts are in the checkpoint."""

    name: ClassVar[str] = "own"

    def read(self, split: Split) -> NoReturn:
        raise DataError(
            f"a {split} split that can be read again",
            "images of somebody's own, passed in Python",
            "pass them in Python again, or name a data set (--data.name)",
        )


def named(name: str, **settings: Any) -> DataConfig:
    """The data set of that name with these settings; raises ConfigError with the nearest known name."""
    return DATASETS.get(name)(**settings)
