"""Keys that people write as comments into JSON, which has none."""

_MARKS = ("_", "//", "#", "$")


def is_comment(key: str) -> bool:
    """Whether the last part of a dotted key is a comment by its spelling: `_comment`, `//`, `#`.

    At the top level DeepSpeed passes over such a key as over any it does not know. Inside a
    section that it parses with pydantic (`zero_optimization`, `fp16`, `bf16` and so on) it refuses
    a comment like any other unknown key, and an optimizer or scheduler is handed it as an argument.

    Example:
        >>> is_comment("_comment"), is_comment("fp16.//"), is_comment("zero_optimization.stage")
        (True, True, False)
    """
    return key.rpartition(".")[2].startswith(_MARKS)
