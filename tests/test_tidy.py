"""The tree tells the architecture; these tests keep the tree honest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import holdfast
from holdfast import errors

ROOT = Path(holdfast.__file__).parent
LINES_MAX = 600
FUNCTION_LINES_MAX = 50

BASICS = {"errors", "clock", "ids", "sql", "telemetry", "portal", "words", "loops"}
VALUES = {
    "address",
    "task",
    "policy",
    "payload",
    "outcomes",
    "limit",
    "ring",
    "timing",
    "schedule",
    "insight",
    "probes",
    "fingerprint",
} | BASICS
CONTRACTS = {"store", "bus", "coordinator", "booking", "handler", "transactions"} | VALUES
CORE = {"client", "dispatch", "worker", "duties"} | CONTRACTS
ADAPTERS = {"stores", "buses", "coordinators", "callers"}
EDGES = {"tasks", "queues", "schedules", "node", "config", "app"}

# Which part may import which.  A part that is missing here fails the test, so that every new part
# declares itself, and chains of imports are covered.
MAY_IMPORT = {
    **dict.fromkeys(BASICS, BASICS),
    **dict.fromkeys(VALUES - BASICS, VALUES),
    **dict.fromkeys(CONTRACTS - VALUES, VALUES | {"booking"}),
    "coordinator": VALUES | {"store"},  # it answers with what the store's leases say
    **dict.fromkeys(CORE - CONTRACTS, CONTRACTS),
    **dict.fromkeys(ADAPTERS, CONTRACTS),
    "schedules": CONTRACTS | {"client"},
    "tasks": CONTRACTS | {"client", "schedules"},
    "queues": CONTRACTS,
    "node": CORE | ADAPTERS,
    "config": VALUES | {"node"},
    "why": CONTRACTS | {"queues"},
    "doctor": CONTRACTS | {"config"},
    "app": CORE | {"tasks", "queues", "schedules", "node", "config"},
    "testing": CORE | ADAPTERS | EDGES,
    "verify": BASICS,
    "simulation": CORE | ADAPTERS | EDGES | {"testing", "verify"},
    "bench": CORE | ADAPTERS | EDGES | {"testing"},
    "chaos": CORE | ADAPTERS | EDGES | {"testing", "bench", "verify"},
    "demo": CORE | ADAPTERS | EDGES | {"testing"},
    "cli": CORE
    | ADAPTERS
    | EDGES
    | {"testing", "bench", "demo", "why", "doctor", "simulation", "verify"},
    "integrations": CORE | EDGES | {"cli"},  # a framework's own commands are commands of ours
}

# Where a third-party driver may be imported: in one folder for each family.  The bench is exempt:
# it measures the bare drivers and the peers, to have something to compare with.
DRIVERS = {
    "asyncpg": ("stores/postgres/", "buses/postgres.py", "bench/"),
    # sqlite3 is no third party, so it is never missing; the demo is a program of a user's.
    "sqlite3": ("stores/sqlite/", "callers/sqlite.py", "bench/", "chaos/", "demo/"),
    "apsw": ("chaos/power.py",),
    "pgqueuer": ("bench/",),
    "psycopg": ("callers/",),
    "sqlalchemy": ("callers/",),
    "django": ("callers/", "integrations/django/"),
    "django_tasks": ("integrations/django/",),
    "asgiref": ("integrations/django/",),
    "fastapi": (),
    "starlette": (),
    "flask": (),
    "prometheus_client": ("telemetry/metrics.py",),
    "opentelemetry": ("telemetry/tracing.py",),
    "uvloop": ("loops.py",),
    "typer": ("cli/", "bench/cli.py"),
    "pytest": ("testing/",),
}

# Calls that would smuggle in time, chance or identity, or write past the CLI's console.
BANNED = re.compile(
    r"(datetime\.)?(datetime\.(now|utcnow|today)|date\.today)"
    r"|time\.(time|monotonic|perf_counter)(_ns)?|time\.sleep"
    r"|random\.(?!Random$)\w+|(uuid\.)?uuid[14]|print"
)
BANNED_NAMES = {  # the same, imported by name
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep"},
    "uuid": {"uuid1", "uuid4"},
    "random": {"random", "choice", "uniform", "randint", "shuffle", "sample", "expovariate"},
}
BANNED_OK = {"clock.py", "ids.py"}

UNSAFE = re.compile(r"pickle|yaml\.load|\beval\(|\bexec\(|shell=True|\|\s*safe\b", re.IGNORECASE)
SYNONYMS = {"job", "jobs", "workflow", "workflows", "heartbeat", "leader", "reaper", "pruner"}


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


def part(name: str) -> str:
    return name.removesuffix(".py").split("/")[0]


def imports(name: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that the module imports, relative ones resolved."""
    package = ["holdfast", *name.split("/")[:-1]]
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            # `from holdfast import task` names the part in the alias.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def test_imports_go_one_way():
    wrong = [
        f"{name}:{line}: {part(name)} may not import {target}"
        for name in trees()
        if part(name) != "__init__"
        for line, full in imports(name)
        if full.startswith("holdfast.")
        and (target := full.split(".")[1]) != part(name)
        and target not in MAY_IMPORT.get(part(name), set())
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_says_what_it_may_import():
    wrong = {part(name) for name in trees()} - MAY_IMPORT.keys() - {"__init__", "__main__"}

    assert not wrong, f"no entry in MAY_IMPORT: {sorted(wrong)}"


def test_each_driver_is_imported_in_one_place():
    wrong = [
        f"{name}:{line}: {driver} belongs to {' or '.join(DRIVERS[driver])}"
        for name in trees()
        for line, full in imports(name)
        if (driver := full.split(".")[0]) in DRIVERS and not name.startswith(DRIVERS[driver])
    ]
    assert not wrong, "\n".join(wrong)


def test_time_and_chance_come_in_as_parameters():
    wrong = [
        f"{name}:{node.lineno}: {call}() is banned; take a Clock or a Random"
        for name, tree in trees().items()
        if name not in BANNED_OK
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and BANNED.fullmatch(call := ast.unparse(node.func))
    ]
    wrong += [
        f"{name}:{line}: {full} is banned; take a Clock or a Random"
        for name in trees()
        if name not in BANNED_OK
        for line, full in imports(name)
        if full.rpartition(".")[2] in BANNED_NAMES.get(full.rpartition(".")[0], set())
    ]
    assert not wrong, "\n".join(wrong)


def test_no_data_becomes_code():
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(ROOT.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if UNSAFE.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_outgrows_its_welcome():
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    wrong = [f"{path}: {size} lines" for path, size in sizes.items() if size > LINES_MAX]
    assert not wrong, "\n".join(wrong)


def test_a_function_fits_on_a_screen():
    wrong = [
        f"{name}:{node.lineno}: {node.name} has {size} lines"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not wrong, "\n".join(wrong)


def test_the_code_uses_no_synonyms_of_the_glossary():
    wrong = [
        f"{name}:{line}: {found} is not a word of the glossary"
        for name, tree in trees().items()
        for line, found in definitions(tree)
        if SYNONYMS & set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", found).lower()))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_error_tree_is_the_one_in_the_docstring():
    drawn, path = {}, ["HoldfastError"]
    for indent, name in re.findall(r"^([│ ]*)[├└]── (\w+)", errors.__doc__, re.MULTILINE):
        depth = len(indent) // 4 + 1
        drawn[name] = path[depth - 1]
        path[depth:] = [name]

    classes = [found for found in vars(errors).values() if isinstance(found, type)]
    real = {
        found.__name__: found.__base__.__name__
        for found in classes
        if issubclass(found, errors.HoldfastError) and found is not errors.HoldfastError
    }
    assert drawn == real


def test_every_error_of_ours_stands_in_the_tree():
    ours = {name for name, found in vars(errors).items() if isinstance(found, type)}
    wrong = [
        f"{name}:{node.lineno}: {node.name} belongs to errors.py"
        for name, tree in trees().items()
        if name != "errors.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if {ast.unparse(base).rpartition(".")[2] for base in node.bases} & ours
    ]
    assert not wrong, "\n".join(wrong)


def sources() -> list[Path]:
    return [*ROOT.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
