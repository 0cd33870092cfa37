-- For this transaction alone; without it the log refuses to lose an event.
SELECT set_config('turnledger.maintenance', :name, true)
