-- The turns at the front of some pending lists, as many as a group may hold. Writes nothing.
--   ARGV 1 record prefix   2 ledger prefix   3 most turns   4 most bytes   then ledger, count, ledger, count, ...
--   reads ledger:<ledger>:pending and turn:<id> of what stands there
-- Answer: turn_id, turn_id, ... ledger by ledger, each in completion order; always the very first one.
local answer, bytes = {}, 0
for index = 5, #ARGV, 2 do
  for _, id in ipairs(redis.call('LRANGE', ARGV[2] .. ARGV[index] .. ':pending', 0, ARGV[index + 1] - 1)) do
    bytes = bytes + (tonumber(redis.call('HGET', ARGV[1] .. id, 'bytes') or '0'))
    if #answer > 0 and (#answer >= tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) then
      return answer
    end
    answer[#answer + 1] = id
  end
end
return answer
