"""Converts TORCH_CUDA_ARCH_LIST to a form that DeepSpeed can read.

DeepSpeed splits the list at blanks and semicolons, each entry at its dot, and reads both parts as
whole numbers, except `+PTX` (op_builder/builder.py: compute_capability_args). `9.0a`, `Hopper` or
`8.0,9.0`, which other builders accept, end its build with a ValueError.
"""

import re

VARIABLE = "TORCH_CUDA_ARCH_LIST"

_ENTRY = re.compile(r"(\d+)\.(\d)(\+PTX)?")
_WITH_SUFFIX = re.compile(r"(?:sm_|compute_)?(\d+)\.?(\d)[af]?(\+PTX)?", re.IGNORECASE)
# torch/utils/cpp_extension.py: _get_cuda_arch_flags
_NAMED = {
    "volta": "7.0+PTX",
    "turing": "7.5+PTX",
    "ampere": "8.0;8.6+PTX",
    "ada": "8.9+PTX",
    "hopper": "9.0+PTX",
    "blackwell": "10.0;10.3;12.0;12.1+PTX",
}


def is_readable(arch_list: str) -> bool:
    """Return whether DeepSpeed can read a list; with an empty one it asks the devices.

    Example:
        >>> is_readable("8.0;9.0+PTX"), is_readable("9.0a"), is_readable("")
        (True, False, True)
    """
    entries = [entry for entry in arch_list.strip().replace(" ", ";").split(";") if entry]
    if any(entry == "" for entry in arch_list.strip().split(";")) and entries:
        return False  # torch refuses an empty part where DeepSpeed does not
    return all(_ENTRY.fullmatch(entry) for entry in entries)


def readable(arch_list: str) -> str:
    """Return the list in a form that DeepSpeed can read; empty without a valid entry.

    Suffixes such as the `a` of `9.0a` are dropped: DeepSpeed's kernels use no architecture-specific
    features.

    Example:
        >>> readable("9.0a; 8.6,Ampere"), readable("native")
        ('9.0;8.6;8.0;8.6+PTX', '')
    """
    entries: list[str] = []
    for part in re.split(r"[;,\s]+", arch_list):
        named = _NAMED.get(part.lower())
        for entry in named.split(";") if named else [part]:
            match = _WITH_SUFFIX.fullmatch(entry)
            if match:
                entries.append(f"{match[1]}.{match[2]}{(match[3] or '').upper()}")
    return ";".join(dict.fromkeys(entries))
