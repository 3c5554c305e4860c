SELECT min(next_at) FROM holdfast_schedule WHERE paused = 0 AND next_at > :now
