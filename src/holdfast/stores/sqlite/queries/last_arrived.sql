SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_task'
