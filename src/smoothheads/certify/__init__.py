"""Certification: statistics on votes (algorithm, bounds, budgets) and engines that count them."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.certify.certifier import Certifier as Certifier
    from smoothheads.certify.config import CertifyConfig as CertifyConfig

__getattr__ = lazy.attributes(__name__, {"certifier": "Certifier", "config": "CertifyConfig"})
