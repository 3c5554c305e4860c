"""Bounds of dispatching, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    look_ahead: int = 10_000  # triggers in memory, per queue
    window: int = 1_000  # triggers of one column in memory
    reload_at: int = 100  # a column is read again when this few are left
    lane_window: int = 32  # triggers of one lane in memory ...
    lanes_loaded: int = 3_200  # ... and of all lanes of a queue
    lane_trim_s: float = 1.0  # how often the dispatched triggers of lanes are deleted
    spill_s: float = 0.05  # first wait before lanes are written when that helped nobody, doubling
    spill_s_max: float = 1.0  # ... up to this
    page: int = 1_000  # rows of one arrivals read, over all partitions
    append_max: int = 10_000  # triggers of a partition waiting to be appended to the backlog
    remembered_max: int = 1_000_000  # ids appended above P that the exact read will skip
    unhandled_max: int = 10_000  # triggers kept for kinds without a handler
    grab_batch: int = 500
    grabs_max: int = 3  # grabs in flight: more would only make the batches smaller
    trim_count: int = 1_000  # range delete after so many acks ...
    trim_s: float = 15.0  # ... or after so long, with the counters of so many keys a column
    counters_kept: int = 100
    idle_wait_s: float = 5.0  # the longest time that anything lost stays lost
    exact_s: float = 1.0  # how often P follows, while something arrives
    retry_s: float = 0.05  # first back-off after a failed store call, doubling ...
    retry_s_max: float = 5.0  # ... up to this
    ingest_share: float = 0.1  # of the time, while there is other work to start
