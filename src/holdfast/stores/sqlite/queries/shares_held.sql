SELECT count(*) FROM holdfast_share
WHERE number IN (SELECT value FROM json_each(:numbers)) AND node = :node AND NOT ended
