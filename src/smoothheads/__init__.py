"""Train, certify, compare and ship image classifiers with a proof attached."""
