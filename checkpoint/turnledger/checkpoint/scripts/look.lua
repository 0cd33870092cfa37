-- What a start has to know of its ledger before it asks Postgres. Writes nothing.
--   KEYS 1 pending      list  completed, uncommitted turn_ids, in completion order
--        2 rejected     list  turn_ids refused at the commit point
--        3 open         set   unfinished turn_ids
--        4 completions  str   counter of the ledger's completions
--        5 record       hash  the turn that asks, if it was started before
--   ARGV 1 what precedes a turn_id in a record's key
--   also reads turn:<id> of every turn in 1, 2 and 3
-- Answer: time, completions, state of 5, completed turns, open turns.
local function completed(key)
  local turns = {}
  for _, id in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local found = redis.call('HMGET', ARGV[1] .. id, 'state', 'work_key', 'entry_id', 'entry', 'completed_at',
      'completion_no', 'message_ids', 'kept_steps', 'failure')
    if found[1] then
      turns[#turns + 1] = {id, unpack(found)}
    end
  end
  return turns
end

local open = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local found = redis.call('HMGET', ARGV[1] .. id, 'state', 'work_key', 'owner')
  if found[1] then
    open[#open + 1] = {id, unpack(found)}
  end
end

return {now_ms(), redis.call('GET', KEYS[4]) or '0', redis.call('HGET', KEYS[5], 'state') or '',
  completed(KEYS[1]), completed(KEYS[2]), open}
