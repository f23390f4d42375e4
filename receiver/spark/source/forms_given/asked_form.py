"""Which form the rows of a query have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.spark.source.forms_given.long_form import LongForm
from receiver.spark.source.forms_given.wide_form import WideForm

if TYPE_CHECKING:
    from receiver.spark.source.forms_given.forms import Form
    from receiver.spark.source.read_plans.read_plan import ReadPlan

__all__ = ["form_of"]


def form_of(plan: ReadPlan) -> Form:
    """The form that the options ask for."""
    return LongForm(plan) if plan.options.form == "long" else WideForm(plan)
