"""Data sets: grid integers with their facts (q, classes, mean, standard deviation) and a fingerprint.

Nothing here imports torch; training batches are in `smoothheads.data.loader`. Importing the modules of the
data sets registers them.
"""

from smoothheads.data import folder as folder
from smoothheads.data import npz as npz
from smoothheads.data import parquet as parquet
from smoothheads.data import published as published
from smoothheads.data.arrays import ArrayDataset as ArrayDataset
from smoothheads.data.base import DATASETS as DATASETS
from smoothheads.data.base import DataConfig as DataConfig
from smoothheads.data.base import DataInfo as DataInfo
from smoothheads.data.base import Dataset as Dataset
from smoothheads.data.base import InMemory as InMemory
from smoothheads.data.base import Split as Split
from smoothheads.data.base import Splits as Splits
from smoothheads.data.base import SubsetConfig as SubsetConfig
from smoothheads.data.base import named as named
from smoothheads.data.coerce import as_dataset as as_dataset
from smoothheads.data.coerce import as_pixels as as_pixels
from smoothheads.data.coerce import from_arrays as from_arrays
from smoothheads.data.splits import augments as augments
from smoothheads.data.splits import describe as describe
from smoothheads.data.splits import fixed_permutation as fixed_permutation
from smoothheads.data.splits import load as load
from smoothheads.data.splits import load_test as load_test
from smoothheads.data.splits import read_split as read_split
from smoothheads.data.splits import select as select
