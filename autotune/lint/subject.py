"""The input of a rule: the config, and how it will be launched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autotune import dotted
from autotune.ds_config.fields.kind import number_in
from autotune.ds_config.fields.table import documented_key
from autotune.ds_config.key_aliases import documented
from autotune.job.cpu_threads import RankLauncher
from autotune.job.launcher import Launcher
from autotune.job.model_shape import ModelShape
from autotune.lint.config_entries import Entry, entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The planned run; a fact that is None is not known, and rules that need it judge nothing."""

    launcher: Launcher = Launcher.DEEPSPEED
    gpus: int | None = None
    """Devices of the whole job, all nodes together."""
    nodes: int | None = None
    pipeline_stages: int | None = None
    tensor_parallel: int | None = None
    client_optimizer: str | None = None
    """Class of the optimizer that the program passes to `initialize`."""
    hf_args: Mapping[str, Any] | None = None
    """`TrainingArguments`."""
    model: ModelShape | None = None
    num_parameters: int | None = None
    num_trainable: int | None = None
    largest_parameter: int | None = None
    """Elements of the model's largest parameter, an embedding as a rule."""
    seq_len: int | None = None
    activation_checkpointing: bool | None = None
    started_by: RankLauncher | None = None
    """What starts the ranks."""
    cpu_threads: int | None = None
    """CPU threads of a rank (`OMP_NUM_THREADS`), where they are set by hand."""

    @property
    def data_parallel(self) -> int | None:
        """Ranks that batches and ZeRO are divided over; None if not known."""
        if self.gpus is None:
            return None
        other = (self.pipeline_stages or 1) * (self.tensor_parallel or 1)
        return self.gpus // other if self.gpus % other == 0 else None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A config that could be read, and the launch it is meant for.

    Types are not checked: a section may be a list and a size a string. Rules read values through
    these methods, which return None for a value of another type; only the type rule reports it.
    """

    config: Mapping[str, Any]
    """As written, `_comment` keys included."""
    launch: Launch = field(default_factory=Launch)
    positions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Line and column, both from 1, of dotted keys as the file spells them."""
    form: str = "ds_config"
    """ds_config, accelerate (a section of an Accelerate YAML) or neox (a gpt-neox YAML)."""

    @cached_property
    def flat(self) -> Mapping[str, Any]:
        """Leaves under dotted keys, as the file spells them."""
        return dotted.flatten(self.config)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every key in a section that DeepSpeed knows, with its field."""
        return tuple(entries(self.config))

    @cached_property
    def documented(self) -> Mapping[str, Any]:
        """Leaves under the dotted keys that DeepSpeed documents."""
        return documented(self.flat)

    def position(self, key: str) -> tuple[int | None, int | None]:
        """Return line and column of a key, or of the nearest section above it that has one."""
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            if (found := self.positions.get(".".join(parts[:length]))) is not None:
                return found
        return None, None

    def spelled(self, key: str) -> str:
        """Return the file's spelling of a documented key; the key itself if the file lacks it."""
        if key in self.flat or dotted.get(self.config, key) is not None:
            return key
        for written in self.flat:
            if documented_key(written) == key:
                return written
        return key

    def value(self, key: str, *, default: Any = None) -> Any:
        """Return the value of a documented key by any of its spellings."""
        if key in self.documented:
            return self.documented[key]
        return dotted.get(self.config, key, default)

    def number(self, key: str) -> int | float | None:
        """Return a value if it is a number; None for "auto", strings, booleans and missing keys.

        Example:
            >>> Subject(config={"train_batch_size": "auto"}).number("train_batch_size")
        """
        value = self.value(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def section(self, key: str) -> Mapping[str, Any] | None:
        """Return a section if it is a mapping."""
        value = dotted.get(self.config, key)
        return value if isinstance(value, Mapping) else None

    def enabled(self, section: str) -> bool | None:
        """Return `section.enabled`: True or False; None for "auto" and other values.

        A missing section, or one without the key, is not enabled.
        """
        if dotted.get(self.config, section) is None and f"{section}.enabled" not in self.documented:
            return False
        value = self.value(f"{section}.enabled", default=False)
        return value if isinstance(value, bool) else None

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage, 0 where none is given; None for "auto" and other values.

        DeepSpeed takes "2", 2.0 and true for the numbers that they stand for.
        """
        stage = self.value("zero_optimization.stage", default=0)
        stage = number_in(stage) if isinstance(stage, str) else stage
        return int(stage) if stage in (0, 1, 2, 3) else None
