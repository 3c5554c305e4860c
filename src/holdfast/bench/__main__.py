"""`python -m holdfast.bench`: the benchmarks without the rest of the command line."""

from holdfast.bench.cli import app

app()
