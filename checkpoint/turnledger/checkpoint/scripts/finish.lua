-- After the commit: the turns that were decided leave pending, and the head of the queue loses their jobs.
-- Turns that are finished already are passed over, so a repeat changes nothing.
--   KEYS 1 rq queue  list   2 turns  zset   3 backlog  zset   4 rq failed registry  zset
--        5 rq canceled registry  zset   6 rq failed registry of rewritings  zset
--        7 rq canceled registry of rewritings  zset
--   ARGV 1 record prefix   2 ledger prefix   3 RQ's prefix   4 how many jobs the window holds   5 spare copy, ms
--        6 how long the counter of an idle ledger is kept, ms   then five a turn: turn_id, ledger, what became of it, ordinal or '', first or ''
--   also changes turn:<id>, turn:<id>:steps, the ledger's pending, rejected and completions, and the jobs it
--   takes away
-- Answer: how many turns it finished.
local now = now_ms()
local given, decided, ledgers, rewritten = {}, {}, {}, {}

local function finish(id, ledger, outcome, ordinal, first)
  given[id] = true
  local record = ARGV[1] .. id
  local state, fitting = unpack(redis.call('HMGET', record, 'state', 'fitting'))
  if state ~= 'completed' and state ~= 'rejected' then
    return
  end
  redis.call('LREM', ARGV[2] .. ledger .. ':pending', 1, id)
  if state == 'rejected' then
    redis.call('LREM', ARGV[2] .. ledger .. ':rejected', 1, id)
  end
  redis.call('HSET', record, 'state', 'committed', 'outcome', outcome, 'ordinal', ordinal, 'first', first,
    'touched_at', now)
  expire_together(record, record .. ':steps', now + ARGV[5])
  decided[#decided + 1] = id
  rewritten[id] = fitting and fitting ~= 'none'
  ledgers[ledger] = true
end

for index = 7, #ARGV, 5 do
  finish(unpack(ARGV, index, index + 4))
end
push('ZREM', KEYS[2], decided)
push('ZREM', KEYS[3], decided)
for ledger in pairs(ledgers) do
  local name = ARGV[2] .. ledger
  if redis.call('EXISTS', name .. ':pending', name .. ':rejected') == 0 then
    redis.call('PEXPIRE', name .. ':completions', ARGV[6])
  end
end

local function is_over(id)
  local state = not given[id] and redis.call('HGET', ARGV[1] .. id, 'state')
  return state ~= 'completed' and state ~= 'rejected'
end

local gone, kept, taken_out = {}, {}, {}
local function delete_job(job)
  gone[#gone + 1] = ARGV[3] .. ':job:' .. job
  gone[#gone + 1] = ARGV[3] .. ':results:' .. job
  gone[#gone + 1] = ARGV[3] .. ':executions:' .. job
end

local jobs = redis.call('LRANGE', KEYS[1], 0, ARGV[4] - 1)
for index = #jobs, 1, -1 do
  local id = string.match(jobs[index], '^turn%-(.+)$')
  if id and is_over(id) then
    taken_out[id] = true
    delete_job(jobs[index])
  else
    kept[#kept + 1] = jobs[index]
  end
end
if #kept < #jobs then
  redis.call('LTRIM', KEYS[1], #jobs, -1)
  push('LPUSH', KEYS[1], kept)
end

-- A job that will not run goes with its turn; one that seems to be on its way deletes itself when it has run, and
-- expires if it never does.
local function clear_job(job, failed, canceled)
  local status = redis.call('HGET', ARGV[3] .. ':job:' .. job, 'status')
  if status == 'queued' or status == 'started' then
    redis.call('PEXPIRE', ARGV[3] .. ':job:' .. job, ARGV[5])
  elseif status then
    delete_job(job)
    redis.call('ZREM', failed, job)
    redis.call('ZREM', canceled, job)
  end
end

for _, id in ipairs(decided) do
  if not taken_out[id] then
    clear_job('turn-' .. id, KEYS[4], KEYS[5])
  end
  if rewritten[id] then
    clear_job('fit-' .. id, KEYS[6], KEYS[7])
  end
end
for first = 1, #gone, 500 do
  redis.call('DEL', unpack(gone, first, math.min(first + 499, #gone)))
end
return #decided
