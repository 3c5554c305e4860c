"""A scrape as a dict: what stands in the exposition, and nothing else."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    def __init__(self, text: bytes) -> None:
        self.text = text.decode()
        self.series: Series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.series}

    def value(self, name: str, **labels: str) -> float | None:
        """None when the scrape has no such series."""
        return self.series.get((name, frozenset(labels.items())))

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(labels)[label] for found, labels in self.series if found == name}
