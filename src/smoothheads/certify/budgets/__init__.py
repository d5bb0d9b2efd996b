"""Budgets: how many samples an image gets. `fixed` compares with published tables; the others need fewer."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.certify.budgets.anytime import AnytimeBudget as AnytimeBudget
    from smoothheads.certify.budgets.base import BUDGETS as BUDGETS
    from smoothheads.certify.budgets.base import Budget as Budget
    from smoothheads.certify.budgets.fixed import FixedBudget as FixedBudget
    from smoothheads.certify.budgets.radius import RadiusBudget as RadiusBudget
    from smoothheads.certify.budgets.table import TableBudget as TableBudget

__getattr__ = lazy.attributes(
    __name__,
    {
        "anytime": "AnytimeBudget",
        "base": "BUDGETS Budget",
        "fixed": "FixedBudget",
        "radius": "RadiusBudget",
        "table": "TableBudget",
    },
)
