"""The shape of the house: who may import whom, and where foreign libraries come in."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "autotune"

# Data flows one way: space -> proposal -> ds_config -> trial -> outcome -> study -> export. A
# module may import what stands in an earlier group, or in its own. Values and rules come before
# what works with them, so `outcome` stands before the trial that makes one.
FLOW: tuple[tuple[str, ...], ...] = (
    (
        "autotune",
        "autotune.errors",
        "autotune.dotted",
        "autotune.serialization",
        "autotune.sigterm",
    ),
    ("autotune.job",),
    ("autotune.space.proposal", "autotune.ds_config"),
    ("autotune.lint",),
    ("autotune.space",),
    ("autotune.study.outcome", "autotune.study.step_times", "autotune.study.environment"),
    ("autotune.predict",),
    # A job is resolved from its ds_config, which the readers of `lint` read.
    (
        "autotune.job.base",
        "autotune.job.batch",
        "autotune.job.precision",
        "autotune.job.resolve",
        "autotune.job.resolved_workload",
    ),
    ("autotune.plan",),
    ("autotune.trial",),
    ("autotune.pool",),
    ("autotune.evaluate",),
    ("autotune.study",),
    ("autotune.search",),
    ("autotune.replay",),
    ("autotune.export",),
    ("autotune.gate",),
    ("autotune.report",),
    ("autotune.doctor", "autotune.probe", "autotune.tune"),
    ("autotune.api",),
    ("autotune.cli",),
)

# Foreign libraries, and the only places that import them.
FOREIGN = {
    "optuna": ("autotune.study.store",),
    "ray": ("autotune.pool",),
    # make_table writes the table of DeepSpeed's fields anew for a new version of it.
    "deepspeed": ("autotune.trial", "autotune.ds_config.fields.make_table"),
    "torch": ("autotune.trial", "autotune.predict.program.trace"),
    "transformers": ("autotune.trial", "autotune.predict.program.trace"),
    "hjson": ("autotune.lint.document",),
    "yaml": (
        "autotune.space",
        "autotune.job.device",
        "autotune.predict.links.networks",
        "autotune.lint.document",
        "autotune.gate.accepted",
        "autotune.job.job_file",
    ),
    "cattrs": ("autotune.serialization",),
    "filelock": ("autotune.study.lock",),
    "pandas": ("autotune.export",),
    "pynvml": ("autotune.pool",),
    "psutil": ("autotune.pool",),
    "typer": ("autotune.cli",),
    "rich": ("autotune.cli", "autotune.report"),
}


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield node.lineno, name if name in MODULES else str(node.module)


def _position(module: str) -> int:
    """Return the place of a module in the flow: that of its longest listed name."""
    places = {name: index for index, group in enumerate(FLOW) for name in group}
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        if (name := ".".join(parts[:length])) in places:
            return places[name]
    if module == "autotune":
        return 0
    raise AssertionError(f"{module} has no place in the flow; give it one in FLOW")


def _inside(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


# The package itself is the facade: it names what `autotune.api` offers, and loads it when used.
@pytest.mark.parametrize("module", [name for name in MODULES if name != "autotune"])
def test_a_module_imports_only_what_stands_before_it(module: str) -> None:
    breaches = [
        f"{MODULES[module].relative_to(ROOT)}:{line}: imports {name}"
        for line, name in _imports(MODULES[module])
        if name.partition(".")[0] == "autotune" and _position(name) > _position(module)
    ]
    assert breaches == []


@pytest.mark.parametrize("library", FOREIGN)
def test_a_foreign_library_is_imported_in_its_place_only(library: str) -> None:
    breaches = [
        f"{path.relative_to(ROOT)}:{line}"
        for module, path in MODULES.items()
        for line, name in _imports(path)
        if name.partition(".")[0] == library and not _inside(module, FOREIGN[library])
    ]
    assert breaches == []


def test_every_module_begins_with_its_docstring() -> None:
    without = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert without == []


@pytest.mark.parametrize(
    "statement",
    [
        "import autotune",
        "import autotune.cli.main",
        "import autotune.space",
        "import autotune.gate",
    ],
)
def test_importing_is_light(statement: str) -> None:
    heavy = ("torch", "ray", "deepspeed", "optuna", "transformers", "pandas")
    code = f"import sys; {statement}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    }
    dead = []
    for target in targets:
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # elsewhere; a test must not need the network
        if (path and not (ROOT / path).exists()) or (not path and anchor not in headings):
            dead.append(target)
    assert dead == []
