-- Makes the record of a turn that has started; a repeat by the same owner changes nothing. What the ledger's
-- index lists although it expired or ended is taken off on the way. A record that is made late, under no work key, is
-- told of the pending run that has completed its work meanwhile: that one found nobody to mark. Where the lists still
-- name the turn, Redis has lost a completed record of it: it has to complete once more, and stands there once.
--   KEYS 1 record       hash  the turn
--        2 open         set   the ledger's unfinished turn_ids (an index)
--        3 completions  str   counter of the ledger's completions
--        4 turns        zset  turn_ids that have not ended, by last update (an index)
--        5 pending      list  the ledger's completed turn_ids, in completion order
--        6 rejected     list  the ledger's turn_ids that were refused at the commit point
--   ARGV 1 what precedes a turn_id in a record's key   2 turn_id   3 work_key   4 owner
--        5 lease, ms   6 expiry, ms   7... the record's fields and values
--   also reads turn:<id> of the ledger's other open turns, and of its pending ones
-- Answer: opened + completions so far | exists | running + turn_id, state, owner of an open run of this work key.
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[4] then
  return {'exists'}
end
for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local found = redis.call('HMGET', ARGV[1] .. id, 'work_key', 'state', 'owner')
  local unfinished = found[2] == 'running' or found[2] == 'parked'
  if not unfinished then
    redis.call('SREM', KEYS[2], id)
  elseif id ~= ARGV[2] and ARGV[3] ~= '' and found[1] == ARGV[3] then
    return {'running', id, found[2], found[3]}
  end
end

local function mark_superseded(work_key)
  for _, id in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do
    local found = redis.call('HMGET', ARGV[1] .. id, 'work_key', 'failure', 'entry_id')
    if found[1] == work_key and found[2] == '' then
      redis.call('HSET', KEYS[1], 'superseded_by', id .. ' ' .. found[3])
      return
    end
  end
end

if not owner then
  local now = now_ms()
  redis.call('HSET', KEYS[1], 'lease_until', now + ARGV[5], 'touched_at', now, unpack(slice(ARGV, 7, #ARGV)))
  redis.call('PEXPIREAT', KEYS[1], now + ARGV[6])
  redis.call('LREM', KEYS[5], 0, ARGV[2])
  redis.call('LREM', KEYS[6], 0, ARGV[2])
  redis.call('SADD', KEYS[2], ARGV[2])
  redis.call('ZADD', KEYS[4], now, ARGV[2])
  local work_key = ARGV[3] == '' and redis.call('HGET', KEYS[1], 'work_key')
  if work_key and work_key ~= '' then
    mark_superseded(work_key)
  end
end
return {'opened', redis.call('GET', KEYS[3]) or '0'}
