-- Turns that have been pending for too long, oldest first; those that wait for a rewriting are counted apart, so that
-- they hide no others. Writes nothing.
--   KEYS 1 backlog  zset
--   ARGV 1 record prefix   2 for longer than so many ms   3 most of either kind
--   also reads turn:<id> of these turns
-- Answer: turn_id, ledger, 1 for one that waits for a rewriting or 0, turn_id, ...
local answer, most = {}, tonumber(ARGV[3])
local left = {[true] = most, [false] = most}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms() - ARGV[2], 'LIMIT', 0, 10 * most)) do
  local ledger = redis.call('HGET', ARGV[1] .. id, 'ledger')
  local waiting = ledger and waits(ARGV[1], id)
  if ledger and left[waiting] > 0 then
    left[waiting] = left[waiting] - 1
    answer[#answer + 1] = id
    answer[#answer + 1] = ledger
    answer[#answer + 1] = waiting and 1 or 0
  end
end
return answer
