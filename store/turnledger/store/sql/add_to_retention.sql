INSERT INTO retention AS total (entries, turns, events)
VALUES (:entries, :turns, :events)
ON CONFLICT (only_row) DO UPDATE SET
    entries = total.entries + excluded.entries,
    turns = total.turns + excluded.turns,
    events = total.events + excluded.events
