"""Real faults on real servers and processes, judged by the checkers of `holdfast.verify`.

    producer ─▶ store ◀─ workers (processes, killed and stopped)
                  │          │
               witness     diary            what the database committed, what handlers did
                  └── history ──▶ checkers

The witness is a set of triggers that write down every committed change of a task or of a lease, in
the transaction that makes it: nobody has to be believed.
"""
