DELETE FROM holdfast_key WHERE until IS NULL AND task IN (SELECT value FROM json_each(:ids))
