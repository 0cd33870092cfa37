-- Gives a completed turn back what it lost: its place in the pending list, and its job: that of its commit, or that of
-- its rewriting while it awaits one. One that stands behind such a turn needs none.
--   KEYS 1 record  hash   2 pending  list   3 backlog  zset
--        4 rq job  hash   5 rq queues  set   6 rq queue  list   7 rq failed registry  zset
--        8 rq canceled registry  zset   9 rq intermediate queue  list   10 rq executions of the job  zset
--   ARGV 1 turn_id   2 record prefix   3 rq queue's key   4 job id   5 which job it is: commit, fit
--        6... the job's fields, none to make no job
--   also reads turn:<id> of the ledger's pending turns
-- Answer: the turn's state, '' when it has no record; the job it should have: commit, fit, none.
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'completed' then
  return {state or '', ''}
end

local function put_back(number)
  for _, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local its_number = redis.call('HGET', ARGV[2] .. other, 'completion_no')
    if its_number and tonumber(its_number) > tonumber(number) then
      return redis.call('LINSERT', KEYS[2], 'BEFORE', other, ARGV[1])
    end
  end
  redis.call('RPUSH', KEYS[2], ARGV[1])
end

if not redis.call('LPOS', KEYS[2], ARGV[1]) then
  put_back(redis.call('HGET', KEYS[1], 'completion_no'))
  redis.call('ZADD', KEYS[3], redis.call('HGET', KEYS[1], 'completed_at'), ARGV[1])
end
local wanted = 'commit'
if awaits_fitting(KEYS[1]) then
  wanted = 'fit'
elseif waits(ARGV[2], ARGV[1]) then
  wanted = 'none'
end
if #ARGV > 5 and wanted == ARGV[5] and not is_on_its_way(ARGV[4], KEYS[4], KEYS[6], KEYS[9], KEYS[10]) then
  redis.call('DEL', KEYS[4])
  redis.call('ZREM', KEYS[7], ARGV[4])
  redis.call('ZREM', KEYS[8], ARGV[4])
  redis.call('HSET', KEYS[4], unpack(slice(ARGV, 6, #ARGV)))
  redis.call('SADD', KEYS[5], ARGV[3])
  redis.call('RPUSH', KEYS[6], ARGV[4])
end
return {state, wanted}
