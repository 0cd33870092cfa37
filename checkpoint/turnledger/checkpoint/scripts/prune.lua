-- Takes turns without a record off an index; an index is an accelerator, the records are the truth.
--   KEYS 1 index  zset  turn_ids by time
--   ARGV 1 record prefix   2 only those whose time is so many ms ago   3 most
-- Answer: how many were taken off.
local gone = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms() - ARGV[2], 'LIMIT', 0, ARGV[3])) do
  if redis.call('EXISTS', ARGV[1] .. id) == 0 then
    redis.call('ZREM', KEYS[1], id)
    gone = gone + 1
  end
end
return gone
