"""The rules about a file's text, checked before it is a config."""

from autotune.lint.finding import Severity
from autotune.lint.rule_info import RuleInfo

NOT_READABLE = RuleInfo(
    id="not-readable",
    severity=Severity.ERROR,
    text="""The text is not a ds_config, or is not read as intended.

DeepSpeed reads a file with hjson (runtime/config.py: DeepSpeedConfig), transformers and accelerate
with json (accelerate/utils/deepspeed.py: HfDeepSpeedConfig). hjson reads text without quotes up to
the end of the line, so `"enabled": True,` silently becomes the string "True,". A missing quote,
comma or bracket, single quotes, Python's True and None, NaN, numbers such as 1_000 or .5 and
placeholders that are not filled in are reported here.

Suggestion: fix the place that is named; `python -m json.tool ds_config.json` checks the file.""",
)

DECIMAL_COMMA = RuleInfo(
    id="decimal-comma",
    severity=Severity.ERROR,
    text="""A number is written with a comma: 0,01.

In JSON a comma separates two entries, so neither json nor hjson can read what follows; inside a
list `[0,9, 0,999]` is accepted, as four numbers.

Suggestion: write a point: 0.01.""",
)

DUPLICATE_KEY = RuleInfo(
    id="duplicate-key",
    severity=Severity.ERROR,
    text="""A key is given twice in one section.

DeepSpeed refuses the file (runtime/config_utils.py: dict_raise_error_on_duplicate_keys). json,
which transformers and accelerate use, and YAML silently keep the last one.

Suggestion: keep the intended one.""",
)

HJSON_ONLY = RuleInfo(
    id="hjson-only",
    severity=Severity.WARNING,
    text="""The file is Hjson, not JSON: comments, trailing commas, keys without quotes.

DeepSpeed reads files with hjson, and this one as intended: a warning. transformers and accelerate
read with json and stop at the first comment: an error under `--launcher hf`. Other tools that read
a ds_config as JSON stop too.

Suggestion: write JSON; a comment can be the value of a top-level key that DeepSpeed ignores, such
as "_comment".""",
)

YAML_NUMBER = RuleInfo(
    id="yaml-number",
    severity=Severity.ERROR,
    text="""A number that YAML reads as text: 1e-8.

YAML 1.1, which PyYAML reads, requires a point and a sign in an exponent: 1e-8 and 5e8 are strings,
and an optimizer fails with a string in its first step.

Suggestion: write 1.0e-8 or 5.0e+8.""",
)

ACCELERATE = RuleInfo(
    id="accelerate-config",
    severity=Severity.ERROR,
    text="""Accelerate refuses its YAML, or ignores a key of it.

`accelerate launch` stops at an unknown top-level key (commands/config/config_args.py:
from_yaml_file) and at keys that conflict with `deepspeed_config_file` (utils/dataclasses.py:
_deepspeed_config_checks). An unknown key of `deepspeed_config` has no effect and no message
(commands/launch.py: _validate_launch_command copies it to an argument that is not read).

Suggestion: run `accelerate config` to see the valid keys, or name a JSON ds_config in
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
