-- Gives an unfinished turn to a new owner: a parked one, or a running one whose lease has lapsed. One that lapsed
-- while its reply was being sent is blocked instead: nobody knows whether it arrived.
--   KEYS 1 record  hash   2 steps  list   3 turns  zset
--   ARGV 1 turn_id   2 new owner   3 lease, ms   4 expiry, ms   5 the record format this release knows
--        6 what for: resume, end; whoever ends the turn may have it blocked, and whatever became of its reply
-- Answer: claimed + the record's fields and values, its steps | missing | ended + state, entry_id, failure
--         | running + owner, state | format + the one it has | blocked + reason.
local found = redis.call('HMGET', KEYS[1], 'state', 'owner', 'lease_until', 'revision', 'slice', 'entry_id',
  'format', 'blocked', 'delivery', 'failure')
if not found[1] then
  return {'missing'}
end
if found[1] ~= 'running' and found[1] ~= 'parked' then
  return {'ended', found[1], found[6], found[10] or ''}
end
if found[7] ~= ARGV[5] then
  return {'format', found[7] or ''}
end
local ends = ARGV[6] == 'end'
if not ends and found[8] and found[8] ~= '' then
  return {'blocked', found[8]}
end
local now = now_ms()
if found[2] ~= ARGV[2] then
  if found[1] == 'running' and tonumber(found[3]) > now then
    return {'running', found[2], found[1]}
  end
  if not ends and found[9] == 'delivering' then
    redis.call('HSET', KEYS[1], 'blocked', 'delivery_unknown')
    return {'blocked', 'delivery_unknown'}
  end
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'revision', found[4] + 1, 'slice', found[5] + 1, 'state', 'running',
    'operation', '', 'lease_until', now + ARGV[3], 'touched_at', now)
  expire_together(KEYS[1], KEYS[2], now + ARGV[4])
end
return {'claimed', redis.call('HGETALL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1)}
