-- Completes a turn: into its ledger's pending list and into RQ's queue, or not at all. The record's state
-- comes last, because Redis rolls nothing back.
--   KEYS 1 record  hash   2 steps  list   3 open  set   4 pending  list   5 completions  str
--        6 turns  zset    7 backlog  zset  every pending turn_id by time of completion (an index)
--        8 rq job  hash   9 rq queues  set   10 rq queue  list  of commits, or of rewritings
--   ARGV 1 turn_id   2 owner   3 revision   4 operation   5 digest of the completion   6 record prefix
--        7 work_key  8 rq queue's key   9 job id   10 how many turns may be pending
--        11 how long its rewriting is waited for, ms; 0 for a turn without   12 how many of the following are fields and values
--        then how many of the following are fields and values of the job; the rest are steps
--   also marks turn:<id> of open runs of the same work key: superseded_by, "<turn_id> <entry_id>"
-- Answer: completed + superseded_by or '' | conflict | full | missing | ended + state | stale + state, owner, revision.
local found = redis.call('HMGET', KEYS[1], 'state', 'digest', 'superseded_by', 'entry_id')
if found[1] == 'completed' or found[1] == 'committed' or found[1] == 'rejected' then
  if found[2] ~= ARGV[5] then
    return {'conflict'}
  end
  return {'completed', found[3] or ''}
end
local refused = refusal(KEYS[1], ARGV[2], ARGV[3])
if refused then
  return refused
end

if redis.call('ZCARD', KEYS[7]) >= tonumber(ARGV[10]) then
  return {'full'}
end

local now = now_ms()
local last_field = 12 + ARGV[12]
local last_job_field = last_field + 1 + ARGV[last_field + 1]
push('RPUSH', KEYS[2], slice(ARGV, last_job_field + 1, #ARGV))
redis.call('HSET', KEYS[8], unpack(slice(ARGV, last_field + 2, last_job_field)))
redis.call('SADD', KEYS[9], ARGV[8])
redis.call('RPUSH', KEYS[10], ARGV[9])
local number = redis.call('INCR', KEYS[5])
redis.call('PERSIST', KEYS[5])
redis.call('RPUSH', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[7], now, ARGV[1])
redis.call('ZADD', KEYS[6], now, ARGV[1])
redis.call('SREM', KEYS[3], ARGV[1])
if ARGV[7] ~= '' then
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[3])) do
    if redis.call('HGET', ARGV[6] .. id, 'work_key') == ARGV[7] then
      redis.call('HSETNX', ARGV[6] .. id, 'superseded_by', ARGV[1] .. ' ' .. found[4])
    end
  end
end
redis.call('PERSIST', KEYS[1])
redis.call('PERSIST', KEYS[2])
if ARGV[11] ~= '0' then
  redis.call('HSET', KEYS[1], 'fit_until', now + ARGV[11])
end
redis.call('HSET', KEYS[1], 'state', 'completed', 'completion_no', number, 'completed_at', now, 'touched_at', now,
  'operation', ARGV[4], 'revision', ARGV[3] + 1, 'digest', ARGV[5], 'bootstrap', '', 'lease_until', 0,
  unpack(slice(ARGV, 13, last_field)))
return {'completed', found[3] or ''}
