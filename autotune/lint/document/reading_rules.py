"""The rules that a text can break before it is a config, and their pages."""

from dataclasses import dataclass

from autotune.lint.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRule:
    """A fault found while reading; it has no check of its own, for there is no subject yet."""

    id: str
    severity: Severity
    page: str
    """What `autotune gate --explain` prints."""

    @property
    def summary(self) -> str:
        """One line: the first of the page."""
        return self.page.partition("\n")[0]


NOT_READABLE = ReadingRule(
    id="not-readable",
    severity=Severity.ERROR,
    page="""The text is no ds_config, or is read as something else than it says.

DeepSpeed reads a file with hjson (runtime/config.py: DeepSpeedConfig), transformers and accelerate
with json (accelerate/utils/deepspeed.py: HfDeepSpeedConfig). hjson takes text without quotes up to
the end of the line, so `"enabled": True,` becomes the string "True," and no error. A missing quote,
comma or bracket, single quotes round a whole file, Python's True and None, NaN, numbers such as
1_000 or .5 and placeholders that nobody filled in all end here.

Mend the place that is named; `python -m json.tool ds_config.json` checks the whole.""",
)

DECIMAL_COMMA = ReadingRule(
    id="decimal-comma",
    severity=Severity.ERROR,
    page="""A number is written with a comma: 0,01.

In JSON a comma parts two entries, so neither json nor hjson can read what follows; inside a list
`[0,9, 0,999]` even passes, as four numbers.

Write a point: 0.01.""",
)

DUPLICATE_KEY = ReadingRule(
    id="duplicate-key",
    severity=Severity.ERROR,
    page="""A key is given twice in one section.

DeepSpeed refuses the file (runtime/config_utils.py: dict_raise_error_on_duplicate_keys). json,
with which transformers and accelerate read it, and YAML keep the last one without a word.

Keep the one that is meant.""",
)

HJSON_ONLY = ReadingRule(
    id="hjson-only",
    severity=Severity.WARNING,
    page="""The file is Hjson, not JSON: comments, trailing commas, keys without quotes.

DeepSpeed reads files with hjson, and this one as it was meant: a warning. transformers and
accelerate read with json and stop at the first comment: an error under `--launcher hf`. So does
every other tool that takes a ds_config for JSON.

Write JSON; a remark fits into a key that DeepSpeed passes over at the top level, "_comment".""",
)

YAML_NUMBER = ReadingRule(
    id="yaml-number",
    severity=Severity.ERROR,
    page="""A number that YAML reads as text: 1e-8.

YAML 1.1, which PyYAML reads, wants a point and a sign in an exponent: 1e-8 and 5e8 are strings,
and an optimizer handed a string stops in its first step.

Write 1.0e-8 or 5.0e+8.""",
)

ACCELERATE = ReadingRule(
    id="accelerate-config",
    severity=Severity.ERROR,
    page="""Accelerate refuses its YAML, or passes over a key of it.

`accelerate launch` stops at a top-level key that it does not know
(commands/config/config_args.py: from_yaml_file) and at keys that stand beside
`deepspeed_config_file` (utils/dataclasses.py: _deepspeed_config_checks). A key of
`deepspeed_config` that it does not know has no effect and no message (commands/launch.py:
_validate_launch_command copies it to an argument that nobody reads).

Run `accelerate config` for the keys that there are, or name a JSON ds_config in
`deepspeed_config_file`.""",
)

READING_RULES = (
    NOT_READABLE,
    DECIMAL_COMMA,
    DUPLICATE_KEY,
    HJSON_ONLY,
    YAML_NUMBER,
    ACCELERATE,
)
