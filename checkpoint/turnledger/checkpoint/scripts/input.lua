-- Appends what came in for a parked turn behind its saved steps; the same message again changes nothing. Whoever
-- parked it must resume it before writing again: the revision moves on. A turn that was parked because its owner fell
-- silent is not waiting for anything, and its owner may be back.
--   KEYS 1 record  hash   2 steps  list   3 turns  zset
--   ARGV 1 turn_id   2 message id   3 the same as JSON, which joins the record's list   4 expiry, ms   5... steps
-- Answer: taken | again | missing | ended + state | busy + state, owner.
local found = redis.call('HMGET', KEYS[1], 'state', 'owner', 'input:' .. ARGV[2], 'reason', 'message_ids')
if not found[1] then
  return {'missing'}
end
if found[3] then
  return {'again'}
end
if found[1] == 'running' or (found[1] == 'parked' and found[4] == 'owner_lost') then
  return {'busy', found[1], found[2]}
end
if found[1] ~= 'parked' then
  return {'ended', found[1]}
end
local ids = found[5] or '[]'
ids = ids == '[]' and '[' .. ARGV[3] .. ']' or string.sub(ids, 1, -2) .. ',' .. ARGV[3] .. ']'
local now = now_ms()
push('RPUSH', KEYS[2], slice(ARGV, 5, #ARGV))
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HSET', KEYS[1], 'input:' .. ARGV[2], '1', 'message_ids', ids, 'operation', '', 'touched_at', now)
expire_together(KEYS[1], KEYS[2], now + ARGV[4])
return {'taken'}
