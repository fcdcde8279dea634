"""Every rule, in the order in which findings of one severity are printed."""

from autotune.lint.rule import Rule
from autotune.lint.rules import deprecated, inert, types, unknown

RULES: tuple[Rule, ...] = (
    *unknown.RULES,
    *types.RULES,
    *deprecated.RULES,
    *inert.RULES,
)
