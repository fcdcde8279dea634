import pytest

from autotune.trial.cuda_arch_list import is_readable, readable


@pytest.mark.parametrize(
    "given", ["", "  ", "9.0", "8.0;9.0+PTX", "7.5 8.0 8.6 9.0 10.0 12.0+PTX", "8.0; 9.0"]
)
def test_what_deepspeed_can_read_is_left_alone(given: str) -> None:
    assert is_readable(given)


@pytest.mark.parametrize(
    ("given", "cured"),
    [
        ("9.0a", "9.0"),
        ("9.0a;10.0f", "9.0;10.0"),
        ("9.0a+PTX", "9.0+PTX"),
        ("8.0,9.0", "8.0;9.0"),
        ("8.0;;9.0", "8.0;9.0"),
        ("8.0;", "8.0"),
        ("8.0\t9.0", "8.0;9.0"),
        ("90", "9.0"),
        ("sm_90a", "9.0"),
        ("Hopper", "9.0+PTX"),
        ("8.0;8.0;9.0a", "8.0;9.0"),
        ("native", ""),
        ("9", ""),
        ("nonsense", ""),
    ],
)
def test_what_it_cannot_read_is_cured(given: str, cured: str) -> None:
    assert not is_readable(given)
    assert readable(given) == cured
    assert is_readable(cured)


@pytest.mark.parametrize("given", ["9.0", "8.0;9.0+PTX", "7.5 8.0+PTX", "9.0a", "Ampere", "native"])
def test_deepspeeds_builder_agrees(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what DeepSpeed's own code makes of the list, as it builds at first use."""
    from deepspeed.ops.op_builder.fused_adam import FusedAdamBuilder

    def reads(arch_list: str) -> bool:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", arch_list)
        builder = FusedAdamBuilder()
        builder.jit_mode = True
        try:
            builder.compute_capability_args()
        except ValueError:
            return False
        except RuntimeError as error:
            # An empty list has it ask for devices, of which there may be none.
            return "no CUDA devices" in str(error)
        return True

    assert reads(given) == is_readable(given)
    assert reads(readable(given))
