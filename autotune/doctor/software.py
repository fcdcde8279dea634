"""Python packages and NCCL."""

from collections.abc import Iterator, Sequence
from importlib import metadata

from packaging.requirements import Requirement

from autotune.doctor.check import Check, fail, ok, warn
from autotune.doctor.installation import Installation

_TOLD = ("torch", "deepspeed", "transformers", "accelerate", "optuna", "ray")


def check_packages(requirements: Sequence[str] | None = None) -> Iterator[Check]:
    """Every package is installed, in a version that autotune supports.

    Args:
        requirements: as `importlib.metadata.requires` gives them; None uses autotune's.
    """
    if requirements is None:
        try:
            requirements = metadata.requires("autotune") or []
        except metadata.PackageNotFoundError:
            yield warn(
                "packages",
                "autotune runs from its source, so the versions that it supports are not known",
                "pip install -e .",
            )
            return
    versions = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield fail(requirement.name, "not installed", _install(requirement))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield fail(
                requirement.name,
                f"{version}; autotune supports {requirement.specifier}",
                _install(requirement),
            )
        elif requirement.name in _TOLD:
            versions.append(f"{requirement.name} {version}")
    if versions:
        yield ok("packages", ", ".join(versions))


def check_nccl(torch: Installation) -> Check:
    """Torch has NCCL, which real ranks on CUDA need."""
    if torch.nccl is None:
        return fail("NCCL", "torch was built without it", "install a torch for CUDA on Linux")
    return ok("NCCL", torch.nccl)


def _install(requirement: Requirement) -> str:
    return f"pip install '{requirement.name}{requirement.specifier}'"
