-- Puts a turn where its state wants it, once, and takes it off everywhere else. What has no record is wanted nowhere.
--   KEYS 1 record    hash   2 steps    list
--        3 open      set    the ledger's unfinished turns
--        4 pending   list   the ledger's completed turns, by completion_no
--        5 rejected  list   the ledger's turns that were refused
--        6 turns     zset   turns that have not ended, by last update
--        7 backlog   zset   completed turns, by time of completion
--   ARGV 1 turn_id   2 the state it was found in, '' without a record   3 record prefix
--        4 how long steps without a record are kept, ms
--   also reads turn:<id> of the ledger's pending turns
-- Answer: 1 it stands where it belongs | 0 its state has changed.
local found = redis.call('HMGET', KEYS[1], 'state', 'touched_at', 'completed_at', 'completion_no')
local id, state = ARGV[1], found[1] or ''
if state ~= ARGV[2] then
  return 0
end
local unfinished = state == 'running' or state == 'parked'

local function in_set(key, wanted)
  redis.call(wanted and 'SADD' or 'SREM', key, id)
end

local function in_index(key, wanted, at_ms)
  if not wanted then
    redis.call('ZREM', key, id)
  elseif not redis.call('ZSCORE', key, id) then
    redis.call('ZADD', key, at_ms or now_ms(), id)
  end
end

-- From the end, where what was completed last belongs.
local function put_back(number)
  local ids = redis.call('LRANGE', KEYS[4], 0, -1)
  for place = #ids, 1, -1 do
    local its_number = redis.call('HGET', ARGV[3] .. ids[place], 'completion_no')
    if its_number and tonumber(its_number) < tonumber(number) then
      return redis.call('LINSERT', KEYS[4], 'AFTER', ids[place], id)
    end
  end
  redis.call('LPUSH', KEYS[4], id)
end

local function in_list(key, wanted, add)
  local places = redis.call('LPOS', key, id, 'COUNT', 0)
  if #places > (wanted and 1 or 0) then
    redis.call('LREM', key, wanted and 1 - #places or 0, id)
  elseif wanted and #places == 0 then
    add()
  end
end

in_set(KEYS[3], unfinished)
in_index(KEYS[6], unfinished or state == 'completed' or state == 'rejected', found[2])
in_index(KEYS[7], state == 'completed', found[3])
in_list(KEYS[4], state == 'completed', function() put_back(found[4]) end)
in_list(KEYS[5], state == 'rejected', function() redis.call('RPUSH', KEYS[5], id) end)
if state == '' and redis.call('PTTL', KEYS[2]) == -1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return 1
