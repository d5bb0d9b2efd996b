from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smoothheads.config import DataConfig, SubsetConfig
from smoothheads.data import Loader, load, load_test, select
from smoothheads.data.folder import centre_crop, image_folder
from smoothheads.errors import DataError
from smoothheads.seeding import generator

from .builders import folder_of_images, write_image


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder_of_images(tmp_path)
    return tmp_path


def test_classes_are_the_sorted_folders(root: Path) -> None:
    train = image_folder(root, "train")
    assert train.info.class_names == ("n01", "n02", "n03")
    assert train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert train.paths[5] == "n02/n02_1.JPEG"


@pytest.mark.parametrize("size", [(256, 256), (500, 375), (100, 300), (224, 224), (40, 41), (256, 301)])
def test_the_centre_is_cut_out(size: tuple[int, int]) -> None:
    """A picture whose red rises by column and green by row shows where the crop lies."""
    width, height = size
    ramp = np.zeros((height, width, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, width)[None]
    ramp[..., 1] = np.linspace(0, 255, height)[:, None]
    crop = np.asarray(centre_crop(Image.fromarray(ramp)), np.float64)
    assert crop.shape == (224, 224, 3)
    covered = 223 / 256 * min(size)  # between the centres of the outermost pixels
    for axis, side in ((1, width), (0, height)):
        profile = crop[..., 1 - axis].mean(axis=1 - axis)
        assert (profile[0] + profile[-1]) / 2 == pytest.approx(127.5, abs=1.5)
        assert profile[-1] - profile[0] == pytest.approx(255 * covered / (side - 1), abs=3)


def test_an_image_of_the_right_size_is_only_cropped(tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (256, 300, 3), dtype=np.uint8))
    for name in ("a", "b"):
        (tmp_path / "val" / name).mkdir(parents=True)
        picture.save(tmp_path / "val" / name / "x.png")
    image = image_folder(tmp_path, "test").image(0)
    assert np.array_equal(image, np.asarray(picture)[16:240, 38:262].transpose(2, 0, 1))


def test_augmentation_depends_on_the_generator_alone(root: Path) -> None:
    train = image_folder(root, "train")
    first = train.augmented(0, generator(1, "x"))
    assert first.shape == (3, 224, 224)
    assert first.dtype == np.uint8
    assert np.array_equal(first, train.augmented(0, generator(1, "x")))
    assert not np.array_equal(first, train.augmented(0, generator(2, "x")))


def test_half_of_the_augmented_images_are_mirrored(tmp_path: Path) -> None:
    """Left black, right white: any part that spans the middle shows which side is which."""
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint8)[None, :, None], (64, 1, 3))
    (tmp_path / "train" / "a").mkdir(parents=True)
    Image.fromarray(ramp).save(tmp_path / "train" / "a" / "x.png")
    train = image_folder(tmp_path, "train")
    stream = torch.Generator().manual_seed(0)
    images = [train.augmented(0, stream).astype(float) for _ in range(200)]
    mirrored = sum(image[:, :, 0].mean() > image[:, :, -1].mean() for image in images)
    assert 60 <= mirrored <= 140  # binomial(200, 1/2): 5.7 standard deviations


def test_val_alone_can_be_certified_but_not_trained_on(root: Path) -> None:
    shutil.rmtree(root / "train")
    config = DataConfig(name="folder", root=str(root))
    assert len(load_test(config)) == 6
    with pytest.raises(DataError, match=r"train, got none; .*certified, not trained on"):
        load(config)


def test_an_empty_class_folder_is_refused(root: Path) -> None:
    (root / "val" / "n02" / "notes.txt").write_text("not an image")
    for path in (root / "val" / "n02").glob("*.JPEG"):
        path.unlink()
    with pytest.raises(DataError, match=r"class folder .*n02, got none"):
        image_folder(root, "test")


def test_both_splits_need_the_same_classes(root: Path) -> None:
    write_image(root / "val" / "n04" / "x.JPEG", (256, 256))
    for split in ("train", "test"):
        with pytest.raises(DataError, match=r"'n04' only in val \(1 differ\)"):
            image_folder(root, split)


def test_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        image_folder(tmp_path / "absent", "test")
    with pytest.raises(DataError, match="val, got none"):
        image_folder(tmp_path, "test")
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="no folders"):
        image_folder(tmp_path, "test")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_jpeg_is_named_even_from_a_worker(root: Path, workers: int) -> None:
    path = root / "train" / "n02" / "n02_1.JPEG"
    path.write_bytes(path.read_bytes()[:400])
    loader = Loader(image_folder(root, "train"), 4, seed=0, augment=True, workers=workers)
    with pytest.raises(DataError, match=r"whole image at .*n02_1\.JPEG"):
        list(loader.epoch(0))


def test_the_fingerprint_sees_names_and_sizes(root: Path) -> None:
    before = image_folder(root, "test").fingerprint
    path = root / "val" / "n01" / "n01_0.JPEG"
    path.rename(path.with_name("n01_00.JPEG"))
    renamed = image_folder(root, "test").fingerprint
    path.with_name("n01_00.JPEG").rename(path)
    path.write_bytes(path.read_bytes() + b"\0")
    longer = image_folder(root, "test").fingerprint
    assert len({before, renamed, longer}) == 3


def test_a_vanished_file_is_named(root: Path) -> None:
    test = image_folder(root, "test")
    (root / "val" / "n01" / "n01_0.JPEG").unlink()
    with pytest.raises(DataError, match="n01_0"):
        _ = test.fingerprint
    with pytest.raises(DataError, match="n01_0"):
        test.image(0)


@pytest.mark.shared
def test_the_real_sample(shared_data: Path) -> None:
    test = load_test(DataConfig(name="folder", root=str(shared_data / "imagenet-sample")))
    assert (len(test), test.info.classes) == (1000, 1000)
    assert test.info.class_names[0] == "n01440764"
    few = select(test, SubsetConfig(every=100))
    means = np.mean([few.image(i).mean(axis=(1, 2)) for i in range(len(few))], axis=0) / 255
    np.testing.assert_allclose(means, test.info.mean, atol=0.15)
