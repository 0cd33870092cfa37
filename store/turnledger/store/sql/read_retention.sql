SELECT since, swept_at, entries, turns, events FROM retention
