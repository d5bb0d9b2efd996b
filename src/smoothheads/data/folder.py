"""Folders of pictures: `train/` and `val/` or `test/`, with a folder per class. Images are streamed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.config.check import at_least
from smoothheads.data.arrays import average, downscaled_info
from smoothheads.data.base import DATASETS, DataConfig, DataInfo, Split, existing
from smoothheads.data.images import SUFFIXES, decode, pixels, size_of
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    import torch

FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "test")}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's


@dataclass(frozen=True, eq=False)
class FolderDataset:
    """A split whose images are decoded when they are needed."""

    root: Path
    """The split's folder."""
    paths: tuple[str, ...]
    """Paths relative to the root: class folders in their order, files sorted within."""
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    """Positions in the full split."""
    info: DataInfo
    size: int | None = None
    """Side of the square that is cropped; None uses the pictures as they are."""
    factor: int = 1
    """Side of the square groups of pixels that are averaged."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the processing, the classes, and every file's index, relative path and size.

        Contents are not read, which would take an hour on ImageNet: a file replaced by another of the same
        length under the same name goes unnoticed.
        """
        size = "as they are" if self.size is None else f"{shorter_side(self.size)} {self.size} bilinear"
        head = f"folder {size} factor={self.factor} {self.info.class_names}\n"
        digest = hashlib.sha256(head.encode())
        for index, path in zip(self.indices, self.paths, strict=True):
            try:
                length = (self.root / path).stat().st_size
            except OSError as error:
                raise DataError(f"The image {self.root / path} cannot be read ({error}).") from error
            digest.update(f"{index} {path}\0{length}\n".encode())
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        return self._finish(pixels(framed(self._decode(position), self.size)))

    def augmented(self, position: int, generator: torch.Generator) -> Pixels:
        """Returns a random view of an image, mirrored half of the time.

        With a `size` a random part of the picture is resized to it; pictures that are used as they are get
        shifted by up to an eighth of their sides.
        """
        import torch

        from smoothheads.data.loader import crop_flip, random_resized_box

        picture = self._decode(position)
        # Pictures that are used as they are: a random shift.
        if self.size is None:
            return self._finish(crop_flip(pixels(picture)[None], generator)[0])
        # Otherwise a random part of the picture at the network's size, mirrored half of the time.
        box = random_resized_box(picture.width, picture.height, generator)
        part = picture.crop(box).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if torch.rand((), generator=generator) < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._finish(pixels(part))

    def take(self, positions: NDArray[np.int64]) -> FolderDataset:
        """Returns the images at these positions, without reading them."""
        paths = tuple(self.paths[position] for position in positions)
        return replace(self, paths=paths, labels=self.labels[positions], indices=self.indices[positions])

    def downscaled(self, factor: int) -> FolderDataset:
        return replace(self, info=downscaled_info(self.info, factor), factor=factor)

    def __len__(self) -> int:
        return len(self.paths)

    def _decode(self, position: int) -> Image.Image:
        path = self.root / self.paths[position]
        return decode(path, str(path))

    def _finish(self, image: Pixels) -> Pixels:
        """Averages an image, which must have the size of all others by now."""
        height, width = (side * self.factor for side in self.info.shape[1:])
        if image.shape[1:] != (height, width):
            raise DataError(
                f"The pictures in {self.root} must be {width}x{height}, and one is "
                f"{image.shape[2]}x{image.shape[1]}; set --data.size."
            )
        return image if self.factor == 1 else average(image, self.factor)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Folder(DataConfig):
    """Pictures in folders: ROOT/train/CLASS/*.png and ROOT/val/CLASS/*.png, or ROOT/test/CLASS/*.png.

    The test split may stand alone; it can be certified, but there is nothing to train on.
    """

    name: ClassVar[str] = "folder"
    augmented: ClassVar[bool] = True

    size: Annotated[int, partial(at_least, least=8)] | None = None
    """Side of the images that the network takes: the shorter side of a picture is resized to 8/7 of it, then
    the central square is cropped (224 for ImageNet). Default: the pictures as they are, all of one size."""

    def read(self, split: Split) -> FolderDataset:
        root = existing(self.root, self.name)
        folder = _split_folder(root, split)
        if folder is None:
            folders = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
            raise DataError(
                f"{root} has no folder {' or '.join(FOLDERS[split])} (it has "
                f"{', '.join(folders[:5]) or 'none'}); put a folder per class there."
                + (" A test split alone can be certified, not trained on." if split == "train" else "")
            )
        classes = _classes(folder)
        # A class number means the same in both splits only if both have the same folders.
        other = _split_folder(root, "test" if split == "train" else "train")
        if other is not None and (differing := sorted(set(classes) ^ set(_classes(other)))):
            only = folder.name if differing[0] in classes else other.name
            raise DataError(
                f"{folder.name} and {other.name} of {root} must have the same class folders, and "
                f"{differing[0]!r} is only in {only} ({len(differing)} differ)."
            )
        # Classes in alphabetical order, files sorted within: the order never depends on the disk.
        files = [_files(folder, name) for name in classes]
        labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(names) for names in files])
        paths = tuple(name for names in files for name in names)
        # Without a size the pictures are used as they are, which needs all of them to have one.
        height, width = (self.size, self.size) if self.size else _common_size(folder, paths)
        info = DataInfo(root.resolve().name, Grid(255), (3, height, width), classes, MEAN, STD)
        return FolderDataset(folder, paths, labels, np.arange(len(paths)), info, self.size)

    def framed(self, picture: Image.Image) -> Image.Image:
        return framed(picture, self.size)


def framed(picture: Image.Image, size: int | None) -> Image.Image:
    """Resizes the shorter side and crops the central square of `size`; without a size nothing changes."""
    if size is None:
        return picture
    # The shorter side to 8/7 of the size, the other in proportion (256 for 224).
    shorter = min(picture.size)
    width, height = (int(shorter_side(size) * side / shorter) for side in picture.size)
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    # The central square.
    left, top = round((width - size) / 2), round((height - size) / 2)
    return picture.crop((left, top, left + size, top + size))


def shorter_side(size: int) -> int:
    """Returns what the shorter side is resized to before the crop: 256 for 224, as the field does."""
    return round(size * 8 / 7)


def _split_folder(root: Path, split: Split) -> Path | None:
    """Returns the only folder of a split, None if there is none."""
    folders = [root / name for name in FOLDERS[split] if (root / name).is_dir()]
    if len(folders) > 1:
        names = " and ".join(folder.name for folder in folders)
        raise DataError(f"{root} has both {names}; keep the one to be certified and rename the other.")
    return folders[0] if folders else None


def _common_size(folder: Path, paths: tuple[str, ...]) -> tuple[int, int]:
    """Returns height and width that all pictures have; only their headers are read."""
    sizes = {size_of(folder / path): path for path in paths}
    if len(sizes) > 1:
        first, other = (f"{width}x{height} ({path})" for (width, height), path in list(sizes.items())[:2])
        raise DataError(
            f"The pictures in {folder} have several sizes: {first} and {other}; set the size that the "
            "network takes, e.g. --data.size 224."
        )
    ((width, height),) = sizes
    return height, width


def _classes(folder: Path) -> tuple[str, ...]:
    """Returns the names of the class folders in alphabetical order."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise DataError(f"{folder} has no class folders; put a folder of pictures per class there.")
    return tuple(names)


def _files(folder: Path, name: str) -> list[str]:
    """Returns the pictures of a class, sorted, with the class folder before their names."""
    paths = (folder / name).iterdir()
    names = sorted(path.name for path in paths if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    if not names:
        raise DataError(
            f"The class folder {folder / name} has no images ({', '.join(SUFFIXES)}); add some or remove it."
        )
    return [f"{name}/{file}" for file in names]
