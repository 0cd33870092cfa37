-- Turns that have been pending for too long, oldest first. Writes nothing.
--   KEYS 1 backlog  zset
--   ARGV 1 record prefix   2 for longer than so many ms   3 most
-- Answer: turn_id, ledger, turn_id, ledger, ...
local answer = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms() - ARGV[2], 'LIMIT', 0, ARGV[3])) do
  local ledger = redis.call('HGET', ARGV[1] .. id, 'ledger')
  if ledger then
    answer[#answer + 1] = id
    answer[#answer + 1] = ledger
  end
end
return answer
