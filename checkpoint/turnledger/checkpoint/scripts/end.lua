-- Ends a turn that will not go through the queue: failed, abandoned, or completed without being recorded.
--   KEYS 1 record  hash   2 steps  list   3 open  set   4 turns  zset
--   ARGV 1 turn_id   2 owner   3 revision   4 operation   5 state   6 spare copy, ms   7... fields and values
-- Answer: ended_now + when, ms | missing | ended + state | stale + state, owner, revision.
if redis.call('HGET', KEYS[1], 'operation') == ARGV[4] then
  return {'ended_now', redis.call('HGET', KEYS[1], 'touched_at')}
end
local refused = refusal(KEYS[1], ARGV[2], ARGV[3])
if refused then
  return refused
end
local now = now_ms()
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('HSET', KEYS[1], 'state', ARGV[5], 'operation', ARGV[4], 'revision', ARGV[3] + 1, 'touched_at', now,
  'bootstrap', '', 'lease_until', 0, unpack(slice(ARGV, 7, #ARGV)))
expire_together(KEYS[1], KEYS[2], now + ARGV[6])
return {'ended_now', redis.call('HGET', KEYS[1], 'touched_at')}
