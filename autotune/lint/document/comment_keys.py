"""Keys that serve as comments in JSON."""

_MARKS = ("_", "//", "#", "$")


def is_comment(key: str) -> bool:
    """Whether the last part of a dotted key is spelled as a comment: `_comment`, `//`, `#`.

    At the top level DeepSpeed ignores such a key like any unknown one. In a section that it parses
    with pydantic (`zero_optimization`, `fp16`, `bf16` and so on) it refuses it, and an optimizer or
    scheduler gets it as an argument.

    Example:
        >>> is_comment("_comment"), is_comment("fp16.//"), is_comment("zero_optimization.stage")
        (True, True, False)
    """
    return key.rpartition(".")[2].startswith(_MARKS)
