-- Appends steps and sets fields of an unfinished turn. Costs what is new, never what is there. An owner that was
-- given up, and keeps its lease, comes back.
--   KEYS 1 record  hash   2 steps  list   3 turns  zset
--   ARGV 1 turn_id   2 owner   3 revision   4 operation   5 lease, ms (0 gives it up)   6 expiry, ms
--        7 how many of the following are fields and values; the rest are steps
-- Answer: saved + revision | missing | ended + state | stale + state, owner, revision.
if redis.call('HGET', KEYS[1], 'operation') == ARGV[4] then
  return {'saved', redis.call('HGET', KEYS[1], 'revision')}
end
local refused = refusal(KEYS[1], ARGV[2], ARGV[3])
if refused then
  return refused
end
local now = now_ms()
local last_field = 7 + ARGV[7]
local lease_until = 0
if ARGV[5] ~= '0' then
  lease_until = now + ARGV[5]
  run_on(KEYS[1])
end
push('RPUSH', KEYS[2], slice(ARGV, last_field + 1, #ARGV))
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('HSET', KEYS[1], 'operation', ARGV[4], 'revision', ARGV[3] + 1, 'lease_until', lease_until,
  'touched_at', now, unpack(slice(ARGV, 8, last_field)))
expire_together(KEYS[1], KEYS[2], now + ARGV[6])
return {'saved', tostring(ARGV[3] + 1)}
