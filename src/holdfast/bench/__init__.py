"""`holdfast bench`: load and latency on this machine, beside what the bare store can do.

    cli          what can be asked for
    measure      runs a scenario several times and judges the medians
    drain · enqueue · latency · backlog · sustained · fairness      one module for each scenario
    ceiling      the store's own verbs in a loop, without the engine
    bare         statements on bare connections: the prepared insert, the pinned snapshots
    peer         another queue on the same server, in the same run
    child        producers in a process of their own
    ground       where the stores of the runs come from, and how they vanish

Every run ends with a look into the store: a figure counts only when each task was handled once
and stands in the archive.
"""
