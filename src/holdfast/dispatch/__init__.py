"""What this node runs next.

    bus ──triggers──▶ Intake ──▶ TriggerTable ──book──▶ Dispatcher ──grab──▶ worker
    arrivals ─early─▶   │  ▲
             ─exact─▶   ▼  │ levels
                      Backlog (durable, one per column of a partition)

`intake`, `backlog`, `table` and `slots` are pure: values in, decisions out.  `books` and
`dispatcher` are the two thin shells around them: `books` keeps positions and backlogs in the
store, `dispatcher` takes from the table, grabs and hands over to the worker.
"""
