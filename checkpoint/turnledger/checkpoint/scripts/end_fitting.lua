-- A turn's over-long pieces have their accounts, or will have names: its commit is queued, both or neither. Changes
-- nothing once the turn is committed, or no longer awaits this.
--   KEYS 1 record  hash   2 rq job  hash   3 rq queues  set   4 rq queue  list
--   ARGV 1 what became of it: done, names   2 the entry now, '' when it stays   3 its bytes   4 rq queue's key
--        5 job id   6... the job's fields and values
-- Answer: 1 queued now | 0 it was not awaited any more.
local found = redis.call('HMGET', KEYS[1], 'state', 'fitting', 'entry_bytes')
if found[1] ~= 'completed' or found[2] ~= 'rewrite' then
  return 0
end
redis.call('HSET', KEYS[2], unpack(slice(ARGV, 6, #ARGV)))
redis.call('SADD', KEYS[3], ARGV[4])
redis.call('RPUSH', KEYS[4], ARGV[5])
if ARGV[2] ~= '' then
  redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[3] - (tonumber(found[3] or '') or 0))
  redis.call('HSET', KEYS[1], 'entry', ARGV[2], 'entry_bytes', ARGV[3])
end
redis.call('HSET', KEYS[1], 'fitting', ARGV[1])
return 1
