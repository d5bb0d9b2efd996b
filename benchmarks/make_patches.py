"""Makes the patches on which the denoiser of the zoo is trained.

python benchmarks/make_patches.py --cifar10 FOLDER --photos FOLDER --out patches.npz

Half of the 64x64 patches are random crops of photographs, the other half are mosaics of four CIFAR-10 images,
so that the denoiser sees the statistics of small images and of the inside of large ones. Test patches come
from the CIFAR-10 test images and from the last photographs, of which no training patch is cut.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data import Dataset, load, named

SIDE = 64
Images = NDArray[np.uint8]


def mosaics(dataset: Dataset, count: int, generator: np.random.Generator) -> Images:
    """Returns patches [count, 3, 64, 64] of four images of `dataset` each."""
    chosen = generator.permutation(len(dataset))[: 4 * count]
    tiles = np.stack([dataset.image(int(i)) for i in chosen]).reshape(4, count, 3, SIDE // 2, SIDE // 2)
    top, bottom = np.concatenate([tiles[0], tiles[1]], axis=3), np.concatenate([tiles[2], tiles[3]], axis=3)
    return np.concatenate([top, bottom], axis=2)


def crops(paths: Sequence[Path], count: int, generator: np.random.Generator) -> Images:
    """Returns `count` random crops [count, 3, 64, 64], equally many of each photograph."""
    patches = []
    for number in range(count):
        with Image.open(paths[number % len(paths)]) as photo:
            pixels = np.asarray(photo.convert("RGB"))
        top, left = (int(generator.integers(0, side - SIDE + 1)) for side in pixels.shape[:2])
        patches.append(pixels[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1))
    return np.stack(patches)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cifar10", required=True, help="folder of CIFAR-10")
    parser.add_argument("--photos", required=True, type=Path, help="folder of photographs, with subfolders")
    parser.add_argument("--count", type=int, default=12_500, help="training patches of each kind")
    parser.add_argument("--held-out", type=int, default=100, help="photographs without training patches")
    parser.add_argument("--out", type=Path, default=Path("patches.npz"))
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    small = load(named("cifar10", root=options.cifar10, validation=0.0))
    photos = [path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
    photos.sort()
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, dataset, paths, count in (
        ("train", small.train, photos[: -options.held_out], options.count),
        ("test", small.test, photos[-options.held_out :], 100),
    ):
        patches = np.concatenate([mosaics(dataset, count, generator), crops(paths, count, generator)])
        order = generator.permutation(len(patches))
        arrays[f"{split}_images"] = patches[order]
        arrays[f"{split}_labels"] = order // count  # 0 for mosaics, 1 for photographs
    np.savez(options.out, **arrays)


if __name__ == "__main__":
    main()
