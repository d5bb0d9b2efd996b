"""Budgets: how many samples an image gets. `fixed` compares with published tables; the others need fewer."""

from smoothheads.certify.budgets.anytime import AnytimeBudget
from smoothheads.certify.budgets.base import BUDGETS, Budget, FixedBudget
from smoothheads.certify.budgets.radius import RadiusBudget
from smoothheads.certify.budgets.table import TableBudget

__all__ = ["BUDGETS", "AnytimeBudget", "Budget", "FixedBudget", "RadiusBudget", "TableBudget"]
