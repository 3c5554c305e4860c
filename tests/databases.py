"""Empty databases for tests: copies of the migrated one, used again if a test left only rows in it.

A copy takes longer than most tests.  Rows are truncated and sequences begin anew; whatever else may
have been changed (tables, functions, settings, rights, statistics, our own first rows) is part of a
fingerprint, and a database that has another one than the template's is dropped.
"""

from __future__ import annotations

import os
from itertools import count

from holdfast.errors import StoreUnavailable
from holdfast.testing.postgres import Server
from holdfast.testing.processes import until

_NUMBERS = count(1)

_LEFT = "connections left"
_ALONE = f"""
DO $$ DECLARE others text; BEGIN
    SELECT string_agg(concat_ws(' ', application_name, state, query), '; ') INTO others
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
    IF others IS NOT NULL THEN RAISE EXCEPTION '{_LEFT}: %', others; END IF;
END $$;
"""
_FILLED = """
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
"""
_EMPTIED = """
DO $$ DECLARE name text; BEGIN
    SELECT string_agg(c.oid::regclass::text, ', ') INTO name FROM pg_class AS c
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r'
        AND c.relname <> ALL ('{{{first}}}') AND pg_relation_size(c.oid) > 0;
    IF name IS NOT NULL THEN EXECUTE 'TRUNCATE ' || name || ' CASCADE'; END IF;
    FOR name IN SELECT c.oid::regclass FROM pg_class AS c
        WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'S'
    LOOP EXECUTE 'ALTER SEQUENCE ' || name || ' RESTART'; END LOOP;
END $$;
"""
_OURS = "NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
_FINGERPRINT = f"""
WITH spaces AS (
    SELECT n.oid, n.nspname, n.nspacl FROM pg_namespace AS n
    WHERE n.nspname {_OURS} AND n.nspname NOT LIKE 'pg%temp%'
),
facts AS (
    SELECT concat_ws(' ', s.nspname, s.nspacl) AS fact FROM spaces AS s
    UNION ALL
    SELECT concat_ws(' ', s.nspname, c.relname, c.relkind, c.relacl, c.reloptions,
        CASE c.relkind WHEN 'r' THEN c.reltuples END,
        (SELECT count(*) FROM pg_statistic AS a WHERE a.starelid = c.oid),
        (SELECT string_agg(concat_ws(' ', a.attname, a.atttypid, a.attnotnull), ',')
            FROM pg_attribute AS a WHERE a.attrelid = c.oid))
    FROM pg_class AS c JOIN spaces AS s ON s.oid = c.relnamespace
    UNION ALL
    SELECT concat_ws(' ', p.proname, p.proacl, md5(p.prosrc))
    FROM pg_proc AS p JOIN spaces AS s ON s.oid = p.pronamespace
    UNION ALL
    SELECT concat_ws(' ', c.conname, c.convalidated, pg_get_constraintdef(c.oid))
    FROM pg_constraint AS c JOIN spaces AS s ON s.oid = c.connamespace
    UNION ALL
    SELECT concat_ws(' ', i.indexrelid::regclass, i.indisvalid) FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid JOIN spaces AS s ON s.oid = c.relnamespace
    UNION ALL
    SELECT concat_ws(' ', t.tgname, t.tgenabled) FROM pg_trigger AS t WHERE NOT t.tgisinternal
    UNION ALL
    SELECT concat_ws(' ', d.datacl, (SELECT string_agg(r.setconfig::text, ',')
        FROM pg_db_role_setting AS r WHERE r.setdatabase = d.oid))
    FROM pg_database AS d WHERE d.datname = current_database()
    {{first}}
)
SELECT md5(string_agg(f.fact, '|' ORDER BY f.fact)) FROM facts AS f
"""


class Databases:
    """Copies of one template, on one server."""

    def __init__(self, server: Server, template: str) -> None:
        self._server = server
        self._template = template
        # Tables that are never empty: what stands in them is part of the fingerprint.
        first = server.execute(_FILLED, database=template)
        rows = [f"UNION ALL SELECT f::text FROM holdfast.{table} AS f" for table in first]
        self._fingerprint = _FINGERPRINT.format(first=" ".join(rows))
        self._emptied = _EMPTIED.format(first=",".join(first))
        self._wanted = server.execute(self._fingerprint, database=template)
        self._free: list[str] = []

    def taken(self) -> str:
        """The name of an empty database."""
        if self._free:
            return self._free.pop()
        name = f"holdfast_{os.getpid()}_{next(_NUMBERS)}"
        self._server.create_database(name, template=self._template)
        return name

    def given_back(self, name: str) -> None:
        """As soon as nobody is connected to it any more; `StoreUnavailable` when somebody stays."""
        try:
            found = alone(self._server, name, self._emptied + self._fingerprint)
        except StoreUnavailable as error:
            if _LEFT in str(error):
                self._server.drop_database(name)
                raise
            found = []  # our tables are gone
        if found == self._wanted:
            self._free.append(name)
        else:
            self._server.drop_database(name)

    def close(self) -> None:
        for name in self._free:
            self._server.drop_database(name)


def alone(server: Server, name: str, sql: str = "") -> list[str]:
    """What the database answers, as soon as nobody else is connected to it.

    A backend takes a moment to notice that its client has gone.
    """
    answer: list[str] = []
    others = ""

    def is_answered() -> bool:
        nonlocal others
        try:
            answer[:] = server.execute(_ALONE + sql, database=name)
        except StoreUnavailable as error:
            others = str(error)
            if _LEFT not in others:
                raise
            return False
        return True

    until(is_answered, 3.0, lambda: others)
    return answer
