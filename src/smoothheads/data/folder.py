"""ImageNet-style folders: `train/` and `val/`, one folder of image files per class. Images are streamed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data.augment import random_resized_box
from smoothheads.data.base import DataInfo, Split
from smoothheads.data.check import existing
from smoothheads.data.downscale import average, downscaled_info
from smoothheads.data.images import decode, pixels
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

SHORTER_SIDE = 256
SIDE = 224
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".ppm", ".webp")
FOLDERS: dict[Split, str] = {"train": "train", "test": "val"}
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
        head = f"folder {SHORTER_SIDE} {SIDE} bilinear factor={self.factor} {self.info.class_names}\n"
        digest = hashlib.sha256(head.encode())
        for path in self.paths:
            digest.update(f"{path}\0{self._size(path)}\n".encode())
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        """Shorter side resized to 256, then the central 224x224."""
        return self._finish(centre_crop(self._decode(position)))

    def augmented(self, position: int, generator: torch.Generator) -> Pixels:
        """A random part of the image resized to 224x224, mirrored half of the time."""
        picture = self._decode(position)
        box = random_resized_box(picture.width, picture.height, generator)
        part = picture.crop(box).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
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
        return image if self.factor == 1 else average(image, self.factor)

    def _size(self, path: str) -> int:
        try:
            return (self.root / path).stat().st_size
        except OSError as error:
            raise DataError(f"the image {self.root / path}", str(error), "restore the file") from error


def image_folder(root: str | Path | None, split: Split) -> FolderDataset:
    """`val/` is the test split. It may stand alone; training then has nothing to train on."""
    path = existing(root, "folder")
    folder = path / FOLDERS[split]
    if not folder.is_dir():
        remedy = "a folder per class belongs there" + (
            "; a val-only folder can be certified, not trained on" if split == "train" else ""
        )
        raise DataError(f"the folder {folder}", "none", remedy)
    classes = _classes(folder)
    _same_classes(path, split, classes)
    files = [_files(folder, name) for name in classes]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(names) for names in files])
    info = DataInfo(
        name=path.resolve().name,
        grid=Grid(255),
        shape=(3, SIDE, SIDE),
        class_names=classes,
        mean=MEAN,
        std=STD,
    )
    return FolderDataset(folder, tuple(name for names in files for name in names), labels, info)


def centre_crop(picture: Image.Image) -> Image.Image:
    shorter = min(picture.size)
    width, height = (int(SHORTER_SIDE * side / shorter) for side in picture.size)
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
    return picture.crop((left, top, left + SIDE, top + SIDE))


def _classes(folder: Path) -> tuple[str, ...]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise DataError(f"a folder per class in {folder}", "no folders", "check the path")
    return tuple(names)


def _same_classes(root: Path, split: Split, classes: tuple[str, ...]) -> None:
    """A class number means the same in both splits only if both have the same folders."""
    other = root / FOLDERS["test" if split == "train" else "train"]
    if not other.is_dir():
        return
    if differing := sorted(set(classes) ^ set(_classes(other))):
        only = FOLDERS[split] if differing[0] in classes else other.name
        got = f"{differing[0]!r} only in {only} ({len(differing)} differ)"
        raise DataError(
            f"the same class folders in train and val of {root}", got, "add or remove class folders"
        )


def _files(folder: Path, name: str) -> list[str]:
    paths = (folder / name).iterdir()
    names = sorted(path.name for path in paths if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    if not names:
        remedy = f"add images ({', '.join(SUFFIXES)}) or remove the folder"
        raise DataError(f"images in the class folder {folder / name}", "none", remedy)
    return [f"{name}/{file}" for file in names]
