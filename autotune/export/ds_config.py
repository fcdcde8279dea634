"""The exported ds_config: what was run, with what only the user's own script can know."""

from typing import Any

from autotune import dotted
from autotune.ds_config.build import BATCH_KEYS, without_searched
from autotune.errors import ExportError
from autotune.space.proposal import MODEL_PREFIX
from autotune.study.view import StudyView


def exported_ds_config(study: StudyView) -> dict[str, Any]:
    """Return the config of the study's winner, or of the baseline that it did not beat.

    A key that the user's base config left to Hugging Face ("auto") stays "auto" if it was not
    searched: the learning rate is in the user's TrainingArguments, not here.

    Raises:
        ExportError: nothing was confirmed.
    """
    exported = study.exported
    if exported is None:
        raise ExportError(
            f"study {study.name}: no trial was confirmed, so there is nothing to export; go on "
            "with `autotune run --resume`"
        )
    searched = [p.key for p in study.setup.space.parameters if not p.key.startswith(MODEL_PREFIX)]
    kept = dotted.flatten(without_searched(study.setup.base, searched))
    autos = {key: value for key, value in kept.items() if value == "auto" and key not in BATCH_KEYS}
    return dotted.updated(exported.candidate.ds_config, autos)
