"""The list of rules that README links.

``python -m autotune.report.gate.rules_page > autotune/lint/rules/README.md`` writes it.
"""

import sys

from autotune.gating.rules import all_rules

_HEAD = """\
# The rules of `autotune gate`

`autotune gate --explain RULE` prints a rule's page: why it is a fault, where DeepSpeed checks it,
and how to fix it. A finding may be milder or worse than its rule. An error: DeepSpeed or the
launcher refuses the config, the run fails, or it silently trains differently from the config. A
warning: the config runs, but is probably not intended. A note is harmless.

| rule | severity | what it finds |
| --- | --- | --- |
"""


def rules_page() -> str:
    """Return the list of all rules as Markdown."""
    rows = (
        f"| `{rule.id}` | {rule.severity} | {rule.summary.replace('|', '&#124;')} |\n"
        for rule in all_rules().values()
    )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(rules_page())
