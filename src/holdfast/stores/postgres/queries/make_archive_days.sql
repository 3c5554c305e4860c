SELECT {schema}.make_archive_days(
    ({schema}.now() AT TIME ZONE 'UTC')::date - 1, :days::integer
)
