"""`smoothheads ARGUMENTS` as torchrun starts it, where rank 0 is killed once, after the third step.

torchrun ... mortal.py MARK ARGUMENTS
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from smoothheads import cli, ranks
from smoothheads.training.loop import EpochDone, StepDone, Trainer

MARK = Path(sys.argv[1])
immortal = Trainer.run


def run(trainer: Trainer) -> Iterator[StepDone | EpochDone]:
    for event in immortal(trainer):
        yield event
        if trainer.step == 3 and ranks.first() and not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)


Trainer.run = run  # type: ignore[assignment,method-assign]
sys.exit(cli.main(sys.argv[2:]))
