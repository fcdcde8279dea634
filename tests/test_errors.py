import inspect
import re

import pytest

from autotune import errors
from autotune.errors import AutotuneError, DispatchError, SpaceError

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, AutotuneError) and cls is not AutotuneError
]


def test_every_class_stands_in_the_tree_that_the_docstring_draws() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(cls.__name__ for cls in CLASSES)


def test_only_a_failed_pool_is_not_the_callers_fault() -> None:
    codes = {cls.__name__: cls.exit_code for cls in CLASSES}
    assert codes.pop("DispatchError") == DispatchError.exit_code == 3
    assert set(codes.values()) == {2}


def test_every_fault_is_kept_and_printed_on_a_line() -> None:
    error = SpaceError("a: wrong", "b: wrong too")
    assert error.faults == ("a: wrong", "b: wrong too")
    assert str(error) == "a: wrong\nb: wrong too"


def test_an_error_without_a_fault_is_our_bug() -> None:
    with pytest.raises(ValueError, match="needs at least one fault"):
        AutotuneError()
