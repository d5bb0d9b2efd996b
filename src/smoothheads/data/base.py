"""What every data set is: grid integers, labels, and the facts that travel with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Split = Literal["train", "test"]  # what a data set comes in; validation is cut from train


@dataclass(frozen=True, slots=True)
class DataInfo:
    """Facts about a data set that the model and every artefact need."""

    name: str
    grid: Grid
    shape: tuple[int, int, int]
    """Channels, height, width of one image."""
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Per channel, of pixels in [0, 1]; they become the model's normalisation layer."""

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def unnormalized(self) -> DataInfo:
        """With mean 0 and deviation 1, where there are no training images to take them from."""
        channels = self.shape[0]
        return replace(self, mean=(0.0,) * channels, std=(1.0,) * channels)


class Dataset(Protocol):
    """One split. `image(i)` gives grid integers [C, H, W] without augmentation, always the same."""

    @property
    def info(self) -> DataInfo: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def indices(self) -> NDArray[np.int64]:
        """Positions in the original split: what a ledger calls idx."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of content and selection: equal fingerprints mean equal images, labels and indices."""
        ...

    def image(self, position: int) -> Pixels: ...

    def __len__(self) -> int: ...


class Source(Dataset, Protocol):
    """A whole split as it was read."""

    def downscaled(self, factor: int) -> Dataset:
        """Square groups of pixels averaged on the grid; the factor must divide both sides."""
        ...


class Splits(NamedTuple):
    """Training data, the part of it held out for watching, and the test split that chooses nothing."""

    train: Dataset
    validation: Dataset
    test: Dataset
