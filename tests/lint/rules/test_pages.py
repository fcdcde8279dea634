"""The pages of the rules, as `autotune gate --explain` prints them."""

import pytest

from autotune.lint.document.reading_rules import READING_RULES
from autotune.lint.rules import RULES

PAGES = {rule.id: rule.page for rule in READING_RULES} | {rule.id: rule.page for rule in RULES}


@pytest.mark.parametrize("identifier", PAGES)
def test_a_page_names_the_fault_gives_the_reason_and_a_suggestion(identifier: str) -> None:
    fault, *reason, suggestion = PAGES[identifier].split("\n\n")
    assert fault.endswith(".")
    assert "\n" not in fault
    assert reason
    assert suggestion.startswith("Suggestion: ")
