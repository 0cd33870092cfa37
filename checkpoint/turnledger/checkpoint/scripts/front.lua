-- The turns at the front of some pending lists, as many as a group may hold; ids whose record is gone, or not
-- completed, are passed over. Writes nothing.
--   ARGV 1 record prefix   2 ledger prefix   3 most turns   4 most bytes   then ledger, count, ledger, count, ...
--   reads ledger:<ledger>:pending and turn:<id> of what stands there
-- Answer: turn_id, turn_id, ... ledger by ledger, each in completion order; always the very first one.
local answer, bytes = {}, 0
for index = 5, #ARGV, 2 do
  local pending, wanted, place = ARGV[2] .. ARGV[index] .. ':pending', tonumber(ARGV[index + 1]), 0
  local ids = redis.call('LRANGE', pending, place, place + wanted - 1)
  while wanted > 0 and #ids > 0 do
    for _, id in ipairs(ids) do
      local found = redis.call('HMGET', ARGV[1] .. id, 'state', 'bytes')
      if found[1] == 'completed' and wanted > 0 then
        bytes = bytes + (tonumber(found[2] or '') or 0)
        if #answer > 0 and (#answer >= tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) then
          return answer
        end
        answer[#answer + 1] = id
        wanted = wanted - 1
      end
    end
    place = place + #ids
    ids = redis.call('LRANGE', pending, place, place + wanted - 1)
  end
end
return answer
