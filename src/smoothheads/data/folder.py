"""Folders of pictures: `train/` and `val/` or `test/`, with a folder per class. Images are streamed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.config.check import at_least
from smoothheads.data.base import DataInfo, Split
from smoothheads.data.check import existing
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.data.downscale import average, downscaled_info
from smoothheads.data.images import decode, pixels, size_of
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    import torch

IMAGENET_SIZE = 224
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".ppm", ".webp")
FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "test", "validation")}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's


@dataclass(frozen=True, eq=False)
class FolderDataset:
    """A split whose images are decoded when asked for."""

    root: Path
    """The split's folder."""
    paths: tuple[str, ...]
    """Relative to the root: class folders in their order, files sorted within."""
    labels: NDArray[np.int64]
    info: DataInfo
    size: int | None = None
    """Side of the square that is cut out; none: the pictures are used as they are."""
    factor: int = 1
    """Side of the square groups of pixels that are averaged."""

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        return np.arange(len(self.paths), dtype=np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the processing, the classes, and every file's relative path and size.

        Contents are not read, which would take an hour on ImageNet: a file replaced by another of the same
        length under the same name goes unnoticed.
        """
        size = "as they are" if self.size is None else f"{shorter_side(self.size)} {self.size} bilinear"
        head = f"folder {size} factor={self.factor} {self.info.class_names}\n"
        digest = hashlib.sha256(head.encode())
        for path in self.paths:
            digest.update(f"{path}\0{self._size(path)}\n".encode())
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        return self._finish(framed(self._decode(position), self.size))

    def augmented(self, position: int, generator: torch.Generator) -> Pixels:
        """A random part of the picture resized to the size, or shifted by up to an eighth of its side where
        pictures are used as they are; mirrored half of the time."""
        import torch

        from smoothheads.data.augment import crop_flip, random_resized_box

        picture = self._decode(position)
        if self.size is None:
            return self._averaged(crop_flip(pixels(picture)[None], generator)[0])
        box = random_resized_box(picture.width, picture.height, generator)
        part = picture.crop(box).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if torch.rand((), generator=generator) < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._finish(part)

    def downscaled(self, factor: int) -> FolderDataset:
        return replace(self, info=downscaled_info(self.info, factor), factor=factor)

    def __len__(self) -> int:
        return len(self.paths)

    def _decode(self, position: int) -> Image.Image:
        path = self.root / self.paths[position]
        return decode(path, str(path))

    def _finish(self, picture: Image.Image) -> Pixels:
        image = pixels(picture)
        wanted = tuple(side * self.factor for side in self.info.shape[1:])
        if image.shape[1:] != wanted:
            got = f"{image.shape[2]}x{image.shape[1]} among them"
            raise DataError(f"images of {wanted[1]}x{wanted[0]} in {self.root}", got, "set --data.size")
        return self._averaged(image)

    def _averaged(self, image: Pixels) -> Pixels:
        return image if self.factor == 1 else average(image, self.factor)

    def _size(self, path: str) -> int:
        try:
            return (self.root / path).stat().st_size
        except OSError as error:
            raise DataError(f"the image {self.root / path}", str(error), "restore the file") from error


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Folder(DataConfig):
    """Pictures in folders: ROOT/train/CLASS/*.png and ROOT/val/CLASS/*.png; test or validation instead of val
    will do. The test split may stand alone; training then has nothing to train on."""

    name: ClassVar[str] = "folder"
    augmented: ClassVar[bool] = True

    size: Annotated[int, partial(at_least, least=8)] | None = None
    """Side of the images that the network takes: the shorter side of a picture is resized to 8/7 of it, then
    the central square is cut out (224 for ImageNet). Default: the pictures as they are, all of one size."""

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Version 1, which wrote every field that it knew, had ImageNet's size only."""
        wrote_all = {"root", "downscale", "augment", "validation", "subset"} <= data.keys()
        return {"size": IMAGENET_SIZE} | data if wrote_all and "size" not in data else data

    def read(self, split: Split) -> FolderDataset:
        root = existing(self.root, self.name)
        folder = _split_folder(root, split)
        if folder is None:
            raise _no_split(root, split)
        classes = _classes(folder)
        _same_classes(folder, _split_folder(root, "test" if split == "train" else "train"), classes)
        files = [_files(folder, name) for name in classes]
        labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(names) for names in files])
        paths = tuple(name for names in files for name in names)
        height, width = (self.size, self.size) if self.size else _common_size(folder, paths)
        info = DataInfo(
            name=root.resolve().name,
            grid=Grid(255),
            shape=(3, height, width),
            class_names=classes,
            mean=MEAN,
            std=STD,
        )
        return FolderDataset(folder, paths, labels, info, self.size)

    def framed(self, picture: Image.Image) -> Image.Image:
        return framed(picture, self.size)


def framed(picture: Image.Image, size: int | None) -> Image.Image:
    """The shorter side resized, then the central square of `size`; as it is without one."""
    if size is None:
        return picture
    shorter = min(picture.size)
    width, height = (int(shorter_side(size) * side / shorter) for side in picture.size)
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return picture.crop((left, top, left + size, top + size))


def shorter_side(size: int) -> int:
    """256 for 224, as everybody has it for ImageNet."""
    return round(size * 8 / 7)


def _split_folder(root: Path, split: Split) -> Path | None:
    return next((root / name for name in FOLDERS[split] if (root / name).is_dir()), None)


def _no_split(root: Path, split: Split) -> DataError:
    there = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    got = f"the folders {', '.join(there[:5])}" if there else "none"
    remedy = "a folder per class belongs there" + (
        "; a test split alone can be certified, not trained on" if split == "train" else ""
    )
    return DataError(f"the folder {' or '.join(FOLDERS[split])} in {root}", got, remedy)


def _common_size(folder: Path, paths: tuple[str, ...]) -> tuple[int, int]:
    """Height and width that all pictures have; only their headers are read."""
    width, height = size_of(folder / paths[0])
    for path in paths[1:]:
        other = size_of(folder / path)
        if other != (width, height):
            got = f"{width}x{height} ({paths[0]}) and {other[0]}x{other[1]} ({path})"
            remedy = "say what size the network takes, e.g. --data.size 224"
            raise DataError(f"pictures of one size in {folder}", got, remedy)
    return height, width


def _classes(folder: Path) -> tuple[str, ...]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise DataError(f"a folder per class in {folder}", "no folders", "check the path")
    return tuple(names)


def _same_classes(folder: Path, other: Path | None, classes: tuple[str, ...]) -> None:
    """A class number means the same in both splits only if both have the same folders."""
    if other is not None and (differing := sorted(set(classes) ^ set(_classes(other)))):
        only = folder.name if differing[0] in classes else other.name
        expected = f"the same class folders in {folder.name} and {other.name} of {folder.parent}"
        got = f"{differing[0]!r} only in {only} ({len(differing)} differ)"
        raise DataError(expected, got, "add or remove class folders")


def _files(folder: Path, name: str) -> list[str]:
    paths = (folder / name).iterdir()
    names = sorted(path.name for path in paths if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    if not names:
        remedy = f"add images ({', '.join(SUFFIXES)}) or remove the folder"
        raise DataError(f"images in the class folder {folder / name}", "none", remedy)
    return [f"{name}/{file}" for file in names]
