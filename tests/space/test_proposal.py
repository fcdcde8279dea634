"""A proposal carries what a study may change, and nothing else."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.space.proposal import Proposal, Scalar

SCALARS: st.SearchStrategy[Scalar] = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


def test_model_settings_are_kept_apart_from_the_ds_config() -> None:
    proposal = Proposal(values={"model.attn_implementation": "sdpa", "bf16.enabled": True})
    assert proposal.ds_values == {"bf16.enabled": True}
    assert proposal.model_settings == {"attn_implementation": "sdpa"}


def test_the_order_of_keys_makes_no_difference() -> None:
    left, right = Proposal(values={"a": 1, "b": 2}), Proposal(values={"b": 2, "a": 1})
    assert left == right
    assert len({left, right}) == 1


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), SCALARS))
def test_a_proposal_survives_json(values: dict[str, Scalar]) -> None:
    proposal = Proposal(values=values)
    read = Proposal.from_json(json.loads(json.dumps(proposal.to_json())))
    assert read == proposal
    assert [type(v) for v in read.values.values()] == [type(v) for v in values.values()]
