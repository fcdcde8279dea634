"""`autotune run` from end to end: set up, search, confirm, export."""

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.search.progress import Progress
from autotune.study.lock import study_lock
from autotune.tuning.modelled import tune_modelled
from autotune.tuning.prepare import prepare
from autotune.tuning.request import TuneRequest, TuneResult


def tune(request: TuneRequest, progress: Progress) -> TuneResult:
    """Search, confirm and export.

    Raises:
        AutotuneError: something the user can fix; nothing was overwritten.
        KeyboardInterrupt: after the running trials were ended; `--resume` continues the study.
    """
    study = prepare(request, progress)
    try:
        with study_lock(study.folder):
            if study.wanted == EvaluatorKind.MODELLED:
                return tune_modelled(study, progress)
            # Imported here: it loads Ray, which a modelled study does not need.
            from autotune.tuning.on_pool import tune_on_pool

            return tune_on_pool(study, progress)
    except KeyboardInterrupt:
        on = f"; --study {study.folder.name} --resume continues it" if study.folder.exists() else ""
        progress.noted(f"interrupted{on}")
        raise
