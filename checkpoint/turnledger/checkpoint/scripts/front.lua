-- The turns at the front of some pending lists, as many as a group may hold; ids whose record is gone, or not
-- completed, are passed over. A ledger's turns end before the first one that awaits its rewriting; those that have
-- given up their jobs to wait behind one come along uncounted. Writes nothing.
--   ARGV 1 record prefix   2 ledger prefix   3 most turns   4 most bytes   5 what becomes of a turn that awaits its
--        rewriting: wait, names   then ledger, count, ledger, count, ...
--   reads ledger:<ledger>:pending and turn:<id> of what stands there
-- Answer: turn_id, turn_id, ... ledger by ledger, each in completion order; always the very first one.
local answer, bytes, full = {}, 0, false

-- Whether the ledger goes on behind this turn, and how many of it are wanted then.
local function take(id, wanted)
  local found = redis.call('HMGET', ARGV[1] .. id, 'state', 'bytes', 'fitting', 'held')
  if found[1] ~= 'completed' then
    return true, wanted
  end
  if found[3] == 'rewrite' and ARGV[5] == 'wait' and awaits_fitting(ARGV[1] .. id) then
    return false, 0
  end
  local comes_along = found[4] and found[4] ~= ''
  if wanted < 1 and not comes_along then
    return false, 0
  end
  bytes = bytes + (tonumber(found[2] or '') or 0)
  if #answer > 0 and (#answer >= tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) then
    full = true
    return false, 0
  end
  answer[#answer + 1] = id
  return true, comes_along and wanted or wanted - 1
end

for index = 6, #ARGV, 2 do
  local pending, wanted, place = ARGV[2] .. ARGV[index] .. ':pending', tonumber(ARGV[index + 1]), 0
  local goes_on = wanted > 0
  while goes_on and not full do
    local ids = redis.call('LRANGE', pending, place, place + wanted)
    goes_on = #ids > 0
    place = place + #ids
    for _, id in ipairs(ids) do
      if goes_on then
        goes_on, wanted = take(id, wanted)
      end
    end
  end
  if full then
    return answer
  end
end
return answer
