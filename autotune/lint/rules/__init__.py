"""Every rule, in the order in which findings of one severity are printed."""

from autotune.lint.rule import Rule

RULES: tuple[Rule, ...] = ()
