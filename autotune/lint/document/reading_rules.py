"""The rules that a text can break before it is a config."""

from autotune.lint.finding import Severity
from autotune.lint.rule_info import RuleInfo

NOT_READABLE = RuleInfo(
    id="not-readable",
    severity=Severity.ERROR,
    text="""The text is no ds_config, or is read as something else than it says.

DeepSpeed reads a file with hjson (runtime/config.py: DeepSpeedConfig), transformers and accelerate
with json (accelerate/utils/deepspeed.py: HfDeepSpeedConfig). hjson takes text without quotes up to
the end of the line, so `"enabled": True,` becomes the string "True," and no error. A missing quote,
comma or bracket, single quotes round a whole file, Python's True and None, NaN, numbers such as
1_000 or .5 and placeholders that nobody filled in all end here.

Fix the place that is named; `python -m json.tool ds_config.json` checks the whole.""",
)

DECIMAL_COMMA = RuleInfo(
    id="decimal-comma",
    severity=Severity.ERROR,
    text="""A number is written with a comma: 0,01.

In JSON a comma parts two entries, so neither json nor hjson can read what follows; inside a list
`[0,9, 0,999]` even passes, as four numbers.

Write a point: 0.01.""",
)

DUPLICATE_KEY = RuleInfo(
    id="duplicate-key",
    severity=Severity.ERROR,
    text="""A key is given twice in one section.

DeepSpeed refuses the file (runtime/config_utils.py: dict_raise_error_on_duplicate_keys). json,
with which transformers and accelerate read it, and YAML keep the last one without a word.

Keep the one that is meant.""",
)

HJSON_ONLY = RuleInfo(
    id="hjson-only",
    severity=Severity.WARNING,
    text="""The file is Hjson, not JSON: comments, trailing commas, keys without quotes.

DeepSpeed reads files with hjson, and this one as it was meant: a warning. transformers and
accelerate read with json and stop at the first comment: an error under `--launcher hf`. So does
every other tool that takes a ds_config for JSON.

Write JSON; a remark fits into a key that DeepSpeed passes over at the top level, "_comment".""",
)

YAML_NUMBER = RuleInfo(
    id="yaml-number",
    severity=Severity.ERROR,
    text="""A number that YAML reads as text: 1e-8.

YAML 1.1, which PyYAML reads, wants a point and a sign in an exponent: 1e-8 and 5e8 are strings,
and an optimizer handed a string stops in its first step.

Write 1.0e-8 or 5.0e+8.""",
)

ACCELERATE = RuleInfo(
    id="accelerate-config",
    severity=Severity.ERROR,
    text="""Accelerate refuses its YAML, or passes over a key of it.

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
