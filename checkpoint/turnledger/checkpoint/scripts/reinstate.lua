-- Puts a rejected turn back on the way to its commit, behind its ledger's pending turns.
--   KEYS 1 record  hash   2 pending  list   3 rejected  list   4 completions  str   5 turns  zset   6 backlog  zset
--   ARGV 1 turn_id
-- Answer: 1 put back | 0 it was not rejected.
if redis.call('HGET', KEYS[1], 'state') ~= 'rejected' then
  return 0
end
local now = now_ms()
redis.call('LREM', KEYS[3], 1, ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[6], now, ARGV[1])
redis.call('ZADD', KEYS[5], now, ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'completed', 'completion_no', redis.call('INCR', KEYS[4]), 'refusal', '',
  'reported', '0', 'attempts', '0', 'touched_at', now)
return 1
