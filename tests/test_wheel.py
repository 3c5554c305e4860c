"""The wheel: exactly what belongs to the package, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "holdfast"

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = folder.iterdir()
    assert path.name == "holdfast-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile):
    package = {
        f"holdfast/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if (path.is_file() and path.suffix in {".py", ".sql"}) or path.name == "py.typed"
    }
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}

    assert set(wheel.namelist()) == package | {f"holdfast-0.1.0.dist-info/{name}" for name in about}


def test_the_package_holds_nothing_that_the_wheel_would_not_expect():
    kinds = {path.suffix or path.name for path in PACKAGE.rglob("*") if path.is_file()}

    assert kinds - {".pyc"} <= {".py", ".sql", ".typed"}


def test_the_wheel_names_few_dependencies_and_its_command(wheel: zipfile.ZipFile):
    metadata = wheel.read("holdfast-0.1.0.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: ([a-z0-9-]+)[^;\n]*$", metadata, re.MULTILINE)

    assert sorted(needed) == ["cronsim", "msgspec", "rich", "typer"]
    assert "Requires-Python: >=3.11" in metadata
    entry_points = wheel.read("holdfast-0.1.0.dist-info/entry_points.txt").decode()
    assert "holdfast = holdfast.cli:main" in entry_points
    assert "[pytest11]\nholdfast = holdfast.testing.pytest_plugin" in entry_points


def test_the_same_tree_gives_the_same_bytes(wheel: zipfile.ZipFile, tmp_path: Path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*command, "--outdir", tmp_path], cwd=PROJECT, capture_output=True, check=True)

    [again] = tmp_path.iterdir()
    assert again.read_bytes() == Path(wheel.filename).read_bytes()


def test_the_lists_pin_what_the_project_asks_for():
    with (PROJECT / "pyproject.toml").open("rb") as file:
        asked = tomllib.load(file)["project"]["dependencies"]
    written = (PROJECT / "requirements/base.in").read_text().splitlines()

    assert [row for row in written if row and not row.startswith("#")] == asked


@pytest.mark.parametrize("name", ["base", "build", "test"])
def test_every_pinned_package_has_its_hashes_and_names_no_host(name: str):
    text = (PROJECT / f"requirements/{name}.txt").read_text()

    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text
