"""Makes the patches on which the denoiser of the zoo is trained.

python benchmarks/make_patches.py --cifar10 FOLDER --photos FOLDER --out patches.npz

Patches are mosaics of CIFAR-10 images (label 0, four in 64x64 pixels) and random crops of photographs (label
1), so that the denoiser sees small images and the inside of large ones. Test patches come from the CIFAR-10
test images and from the last photographs, of which no training patch is cut.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data import Dataset, load, named

TILE = 32
Images = NDArray[np.uint8]


def mosaics(dataset: Dataset, count: int, side: int, generator: np.random.Generator) -> Images:
    """Returns patches [count, 3, side, side] of different images of `dataset`."""
    across = side // TILE
    chosen = generator.permutation(len(dataset))[: count * across**2]
    tiles = np.stack([dataset.image(int(i)) for i in chosen]).reshape(count, across, across, 3, TILE, TILE)
    return tiles.transpose(0, 3, 1, 4, 2, 5).reshape(count, 3, side, side)


def crops(paths: Sequence[Path], count: int, side: int, generator: np.random.Generator) -> Images:
    """Returns `count` random crops [count, 3, side, side], equally many of each photograph."""
    patches = np.empty((count, 3, side, side), np.uint8)
    for number, path in enumerate(paths):
        with Image.open(path) as photo:
            pixels = np.asarray(photo.convert("RGB"))
        for patch in patches[number :: len(paths)]:
            top, left = (int(generator.integers(0, length - side + 1)) for length in pixels.shape[:2])
            patch[:] = pixels[top : top + side, left : left + side].transpose(2, 0, 1)
    return patches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cifar10", required=True, help="folder of CIFAR-10")
    parser.add_argument("--photos", required=True, type=Path, help="folder of photographs, with subfolders")
    parser.add_argument("--side", type=int, default=64, help="side of the patches, a multiple of 32")
    parser.add_argument("--crops", type=int, default=25_000, help="training crops of photographs")
    parser.add_argument("--held-out", type=int, default=100, help="photographs without training patches")
    parser.add_argument("--out", type=Path, default=Path("patches.npz"))
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    small = load(named("cifar10", root=options.cifar10, validation=0.0))
    photos = [path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
    photos.sort()
    arrays: dict[str, NDArray[np.generic]] = {}
    tiles = (options.side // TILE) ** 2
    for split, dataset, paths, count in (
        ("train", small.train, photos[: -options.held_out], options.crops),
        ("test", small.test, photos[-options.held_out :], 100),
    ):
        kinds = [
            # Every training image is in one mosaic.
            mosaics(dataset, min(len(dataset) // tiles, count), options.side, generator),
            crops(paths, count, options.side, generator),
        ]
        labels = np.repeat([0, 1], [len(kind) for kind in kinds])
        order = generator.permutation(len(labels))
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = np.concatenate(kinds)[order], labels[order]
    np.savez(options.out, **arrays)


if __name__ == "__main__":
    main()
