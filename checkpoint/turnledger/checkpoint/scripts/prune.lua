-- Takes turns without a record off the index; an index is an accelerator, the records are the truth.
--   KEYS 1 turns  zset   2 backlog  zset
--   ARGV 1 record prefix   2 only those not updated for so many ms   3 most
-- Answer: how many were taken off.
local before = now_ms() - ARGV[2]
local gone = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', 0, ARGV[3])) do
  if redis.call('EXISTS', ARGV[1] .. id) == 0 then
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    gone = gone + 1
  end
end
return gone
