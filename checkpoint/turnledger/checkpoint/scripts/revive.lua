-- Makes a committed turn a completed one again, from its spare copy; where it stands is put right afterwards.
--   KEYS 1 record  hash   2 steps  list   3 completions  str  counter of the ledger's completions
--   ARGV 1 how many of the following are fields and the values they had
-- Answer: 1 completed | 0 the record has changed, or is gone.
if not unchanged(KEYS[1], 1) or redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local number = redis.call('HGET', KEYS[1], 'completion_no')
if tonumber(redis.call('GET', KEYS[3]) or '0') < tonumber(number) then
  redis.call('SET', KEYS[3], number)
end
redis.call('PERSIST', KEYS[3])
redis.call('PERSIST', KEYS[1])
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[1], 'state', 'completed', 'outcome', '', 'ordinal', '', 'first', '', 'attempts', '0',
  'touched_at', now_ms())
return 1
