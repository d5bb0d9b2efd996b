"""Data sets: grid integers with their q, classes, mean, deviation and fingerprint."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.data.arrays import ArrayDataset as ArrayDataset
    from smoothheads.data.base import DataInfo as DataInfo
    from smoothheads.data.base import Dataset as Dataset
    from smoothheads.data.base import Splits as Splits
    from smoothheads.data.coerce import as_dataset as as_dataset
    from smoothheads.data.coerce import from_arrays as from_arrays
    from smoothheads.data.config import DATASETS as DATASETS
    from smoothheads.data.config import DataConfig as DataConfig
    from smoothheads.data.config import SubsetConfig as SubsetConfig
    from smoothheads.data.config import named as named
    from smoothheads.data.digits import Digits as Digits
    from smoothheads.data.loader import Batch as Batch
    from smoothheads.data.loader import Loader as Loader
    from smoothheads.data.loader import Shards as Shards
    from smoothheads.data.loader import plain_batches as plain_batches
    from smoothheads.data.read import read_image as read_image
    from smoothheads.data.splits import augments as augments
    from smoothheads.data.splits import describe as describe
    from smoothheads.data.splits import load as load
    from smoothheads.data.splits import load_test as load_test
    from smoothheads.data.subset import select as select

__getattr__ = lazy.attributes(
    __name__,
    {
        "arrays": "ArrayDataset",
        "base": "DataInfo Dataset Splits",
        "coerce": "as_dataset from_arrays",
        "config": "DATASETS DataConfig SubsetConfig named",
        "digits": "Digits",
        "loader": "Batch Loader Shards plain_batches",
        "read": "read_image",
        "splits": "augments describe load load_test",
        "subset": "select",
    },
)

from smoothheads.data import cifar, digits, folder, mnist, npz, parquet  # noqa: F401 (they register)
