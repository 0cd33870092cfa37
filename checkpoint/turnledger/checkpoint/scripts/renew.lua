-- Renews a lease and with it the record's life. Never touches revision or owner. An owner that was given up comes back.
--   KEYS 1 record  hash   2 steps  list
--   ARGV 1 owner   2 lease, ms   3 expiry, ms
-- Answer: 1 renewed | 0 no longer this owner's running turn.
local found = redis.call('HMGET', KEYS[1], 'state', 'owner')
if found[2] == ARGV[1] then
  run_on(KEYS[1])
  found[1] = redis.call('HGET', KEYS[1], 'state')
end
if found[1] ~= 'running' or found[2] ~= ARGV[1] then
  return 0
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'lease_until', now + ARGV[2], 'touched_at', now)
expire_together(KEYS[1], KEYS[2], now + ARGV[3])
return 1
