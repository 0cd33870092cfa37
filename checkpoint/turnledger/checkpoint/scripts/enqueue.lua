-- Queues a job of upkeep under its fixed id, unless it is queued or a worker runs it: such jobs never pile up. The
-- hash expires, so that an id whose worker and registry are both lost is free again.
--   KEYS 1 rq job  hash   2 rq queues  set   3 rq queue  list   4 rq failed registry  zset
--   ARGV 1 job id   2 rq queue's key   3 how long the job is kept, ms   4... the job's fields and values
-- Answer: 1 queued | 0 it is queued or runs already.
local queued = redis.call('LPOS', KEYS[3], ARGV[1])
local status = redis.call('HGET', KEYS[1], 'status')
if status == 'started' or (queued and status == 'queued') then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('HSET', KEYS[1], unpack(slice(ARGV, 4, #ARGV)))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', KEYS[2], ARGV[2])
if not queued then
  redis.call('RPUSH', KEYS[3], ARGV[1])
end
return 1
