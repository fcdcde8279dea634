"""Every rule, in the order in which findings of one severity are printed."""

from autotune.lint.rule import Rule
from autotune.lint.rules import auto, batch, deprecated, hf, inert, types, unknown

RULES: tuple[Rule, ...] = (
    *unknown.RULES,
    *types.RULES,
    *deprecated.RULES,
    *inert.RULES,
    *batch.RULES,
    *auto.RULES,
    *hf.RULES,
)
