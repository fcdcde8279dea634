"""A study in a real PostgreSQL, started for these tests."""

import getpass
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.export import write_study_files
from autotune.study.folder import open_study
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from tests.search.setting import setting

pytestmark = pytest.mark.postgres


def _binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found:
        pytest.fail(f"{name} is not installed; Debian's package is called postgresql")
    return str(found[-1])


def _as_server_user(command: list[str]) -> None:
    # PostgreSQL refuses to run as root; Debian's package brings a user for it.
    prefix = ["runuser", "-u", "postgres", "--"] if getpass.getuser() == "root" else []
    subprocess.run([*prefix, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("postgres")
    data = folder / "data"
    data.mkdir()
    if getpass.getuser() == "root":
        for path in (data, *data.parents):
            if path == Path(os.sep) or path.stat().st_uid != 0:
                break
            path.chmod(0o755)
        subprocess.run(["chown", "postgres", str(data)], check=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    _as_server_user([_binary("initdb"), "-D", str(data), "-A", "trust", "-U", "tuner"])
    options = f"-h 127.0.0.1 -p {port} -k {data}"
    log = str(data / "log")
    _as_server_user([_binary("pg_ctl"), "-D", str(data), "-o", options, "-l", log, "-w", "start"])
    try:
        yield f"postgresql+psycopg://tuner:secret@127.0.0.1:{port}/postgres"
    finally:
        _as_server_user([_binary("pg_ctl"), "-D", str(data), "-m", "immediate", "stop"])


def test_a_study_in_postgres_is_searched_resumed_and_exported(
    server_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in-postgres"
    job = setting(folder)
    first = open_study(folder, server_url, job.setup(), resume=False)
    job.search(trials=6, study=first.stored)
    first.stored.close()
    again = open_study(folder, server_url, job.setup(), resume=True)
    job.search(trials=12, study=again.stored)
    records = again.stored.records()
    assert len(records) == 12
    assert all(record.outcome is not None for record in records)
    write_study_files(StudyView.of(again.stored), folder)
    assert (folder / "trials.csv").exists()
    assert not (folder / "study.db").exists()
    again.stored.close()


def test_an_existing_study_in_postgres_is_not_overwritten_and_its_password_not_shown(
    server_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "taken"
    open_study(folder, server_url, setting(folder).setup(), resume=False).stored.close()
    with pytest.raises(StoreError, match="--resume") as caught:
        StoredStudy("taken", server_url, create=True)
    assert "secret" not in str(caught.value)
