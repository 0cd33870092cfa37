-- Sets a completed turn aside that the commit point refused for good; kept until an operator decides.
--   KEYS 1 record  hash   2 pending  list   3 rejected  list   4 turns  zset   5 backlog  zset
--   ARGV 1 turn_id   2 reason
-- Answer: 1 rejected now | 0 it was not pending.
if redis.call('HGET', KEYS[1], 'state') ~= 'completed' then
  return 0
end
local now = now_ms()
redis.call('LREM', KEYS[2], 1, ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('LREM', KEYS[3], 1, ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'rejected', 'refusal', ARGV[2], 'reported', '0', 'touched_at', now)
return 1
