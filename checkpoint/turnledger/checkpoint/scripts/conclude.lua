-- Ends a turn whose record still is as it was read, or drops it: off every list and index, its job cleared.
-- A job that a worker has in hand finds nothing to do and goes by itself, or expires.
--   KEYS 1 record  hash   2 steps  list   3 open  set   4 pending  list   5 rejected  list   6 completions  str
--        7 turns  zset    8 backlog  zset
--        9 rq job  hash   10 the job's results  stream   11 rq job of its rewriting  hash   12 that one's results  stream
--        13... rq registries  zset
--   ARGV 1 turn_id   2 job id   3 job id of its rewriting   4 spare copy, ms; '' drops record and steps
--        5 how long an idle counter is kept, ms   6 how many of the following are fields and the values they had; the rest are fields and values to set
-- Answer: 1 ended | 0 the record has changed, or is gone.
if not unchanged(KEYS[1], 6) or redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local now = now_ms()
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('LREM', KEYS[4], 0, ARGV[1])
redis.call('LREM', KEYS[5], 0, ARGV[1])
if redis.call('EXISTS', KEYS[4], KEYS[5]) == 0 then
  redis.call('PEXPIRE', KEYS[6], ARGV[5])
end
redis.call('ZREM', KEYS[7], ARGV[1])
redis.call('ZREM', KEYS[8], ARGV[1])
local function clear(job, results, id)
  if redis.call('HGET', job, 'status') == 'started' then
    redis.call('PEXPIRE', job, ARGV[5])
    return
  end
  redis.call('DEL', job, results)
  for index = 13, #KEYS do
    redis.call('ZREM', KEYS[index], id)
  end
end

clear(KEYS[9], KEYS[10], ARGV[2])
clear(KEYS[11], KEYS[12], ARGV[3])
if ARGV[4] == '' then
  redis.call('DEL', KEYS[1], KEYS[2])
  return 1
end
redis.call('HSET', KEYS[1], 'touched_at', now, 'bootstrap', '', 'lease_until', 0,
  unpack(slice(ARGV, ARGV[6] + 7, #ARGV)))
expire_together(KEYS[1], KEYS[2], now + ARGV[4])
return 1
