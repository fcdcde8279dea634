from importlib.metadata import PackageNotFoundError, version
from unittest.mock import patch

from autotune.doctor.check import Verdict
from autotune.doctor.software import check_nccl, check_packages
from tests.doctor.installations import GOOD, expect, installation


def test_what_is_installed_here_is_supported() -> None:
    [check] = check_packages()
    expect(check, Verdict.OK, f"deepspeed {version('deepspeed')}", f"optuna {version('optuna')}")


def test_a_version_out_of_range_and_a_missing_package_fail_with_their_cure() -> None:
    old, missing, good = check_packages(
        ["optuna>=99", "no-such-package>=1", "ray>=2", "no-such-extra>=1; extra == 'dev'"]
    )
    expect(old, Verdict.FAIL, version("optuna"), "pip install 'optuna>=99'")
    expect(missing, Verdict.FAIL, "not installed", "pip install 'no-such-package>=1'")
    expect(good, Verdict.OK, f"ray {version('ray')}")


def test_nccl_comes_with_torch() -> None:
    expect(check_nccl(GOOD), Verdict.OK, "2.28.9")
    expect(check_nccl(installation(nccl=None)), Verdict.FAIL, "without it")


def test_an_autotune_that_is_not_installed_is_reported() -> None:
    gone = PackageNotFoundError("autotune")
    with patch("autotune.doctor.software.metadata.requires", side_effect=gone):
        [check] = check_packages()
    expect(check, Verdict.WARN, "runs from its source", "pip install -e .")
