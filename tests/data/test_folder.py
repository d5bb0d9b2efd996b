from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smoothheads.data import SubsetConfig, load, load_test, named, select
from smoothheads.data.folder import framed
from smoothheads.data.loader import Loader
from smoothheads.errors import DataError
from smoothheads.seeding import generator

from .builders import folder_of_images, image_folder, write_image


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
    crop = np.asarray(framed(Image.fromarray(ramp), 224), np.float64)
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
    config = named("folder", root=str(root), size=224)
    assert len(load_test(config)) == 6
    with pytest.raises(DataError, match=r"no folder train \(it has val\).*certified, not trained on"):
        load(config)


def test_an_empty_class_folder_is_refused(root: Path) -> None:
    (root / "val" / "n02" / "notes.txt").write_text("not an image")
    for path in (root / "val" / "n02").glob("*.JPEG"):
        path.unlink()
    with pytest.raises(DataError, match=r"class folder .*n02 has no images"):
        image_folder(root, "test")


def test_both_splits_need_the_same_classes(root: Path) -> None:
    write_image(root / "val" / "n04" / "x.JPEG", (256, 256))
    for split in ("train", "test"):
        with pytest.raises(DataError, match=r"'n04' is only in val \(1 differ\)"):
            image_folder(root, split)


def test_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        image_folder(tmp_path / "absent", "test")
    with pytest.raises(DataError, match=r"no folder val or test \(it has none\)"):
        image_folder(tmp_path, "test")
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="no class folders"):
        image_folder(tmp_path, "test")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_jpeg_is_named_even_from_a_worker(root: Path, workers: int) -> None:
    path = root / "train" / "n02" / "n02_1.JPEG"
    path.write_bytes(path.read_bytes()[:400])
    loader = Loader(image_folder(root, "train"), 4, seed=0, augment=True, workers=workers)
    with pytest.raises(DataError, match=r"n02_1\.JPEG is not a complete image"):
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
    test = load_test(named("folder", root=str(shared_data / "imagenet-sample"), size=224))
    assert (len(test), test.info.classes) == (1000, 1000)
    assert test.info.class_names[0] == "n01440764"
    few = select(test, SubsetConfig(every=100))
    means = np.mean([few.image(i).mean(axis=(1, 2)) for i in range(len(few))], axis=0) / 255
    np.testing.assert_allclose(means, test.info.mean, atol=0.15)


def small_pictures(root: Path, test: str = "val", size: tuple[int, int] = (12, 16)) -> None:
    for split, count in (("train", 3), (test, 2)):
        for name in ("a", "b"):
            for i in range(count):
                write_image(root / split / name / f"{i}.png", size, seed=i)


@pytest.mark.parametrize("test", ["val", "test"])
def test_pictures_of_one_size_are_used_as_they_are(tmp_path: Path, test: str) -> None:
    small_pictures(tmp_path, test)
    splits = load(named("folder", root=str(tmp_path), validation=0))
    assert splits.test.info.shape == splits.train.info.shape == (3, 16, 12)
    picture = np.asarray(Image.open(tmp_path / test / "a" / "1.png")).transpose(2, 0, 1)
    assert np.array_equal(splits.test.image(1), picture)
    batch = next(iter(Loader(splits.train, 6, seed=0, augment=True).epoch(0)))
    assert batch.images.shape == (6, 3, 16, 12)


def test_pictures_of_several_sizes_need_one_to_be_said(root: Path) -> None:
    message = r"train have several sizes: 260x300 .* and 270x300 .*--data\.size 224"
    with pytest.raises(DataError, match=message):
        load(named("folder", root=str(root)))
    assert load(named("folder", root=str(root), size=64)).train.info.shape == (3, 64, 64)


def test_test_pictures_of_another_size_are_refused(tmp_path: Path) -> None:
    small_pictures(tmp_path)
    write_image(tmp_path / "val" / "a" / "1.png", (13, 16))
    with pytest.raises(DataError, match="several sizes"):
        load_test(named("folder", root=str(tmp_path)))


def test_a_root_of_class_folders_is_told_what_is_expected(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "1.png", (8, 8))
    with pytest.raises(DataError, match=r"no folder train \(it has cat\); put a folder per class"):
        load(named("folder", root=str(tmp_path)))


def test_val_and_test_together_are_not_guessed_between(tmp_path: Path) -> None:
    small_pictures(tmp_path)
    small_pictures(tmp_path, "test")
    with pytest.raises(DataError, match=r"both val and test; keep the one to be certified"):
        load_test(named("folder", root=str(tmp_path)))
