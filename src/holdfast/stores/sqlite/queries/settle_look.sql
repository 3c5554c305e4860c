SELECT t.id, t.version, t.state, t.node
FROM json_each(:ids) j CROSS JOIN holdfast_task t ON t.id = j.value
