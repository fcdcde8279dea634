"""The list of rules that README links.

``python -m autotune.report.gate.rules_page > autotune/lint/rules/README.md`` writes it anew.
"""

import sys

from autotune.gate.rules import all_rules

_HEAD = """\
# The rules of `autotune gate`

`autotune gate --explain RULE` prints a rule's page: why it is a fault, where DeepSpeed says so,
and how to mend it. Severities are the rules' own; a finding may be milder or worse. An error is
what DeepSpeed or the launcher refuses, what ends the run, or what silently trains otherwise than
the config says; a warning runs, and a careful colleague would ask; a note is harmless.

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
