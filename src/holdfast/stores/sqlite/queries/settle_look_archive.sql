SELECT a.id, a.version, a.state, a.node
FROM json_each(:ids) j CROSS JOIN holdfast_archive a ON a.id = j.value
