-- Which ledgers stand at the head of the commit queue, and how many turns of each. Writes nothing.
--   KEYS 1 rq queue  list
--   ARGV 1 record prefix   2 how many jobs to look at
--   also reads turn:<id> of those jobs
-- Answer: ledger, count, ledger, count, ... in order of first appearance.
local order, counts = {}, {}
for _, job in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1)) do
  local id = string.match(job, '^turn%-(.+)$')
  local found = id and redis.call('HMGET', ARGV[1] .. id, 'state', 'ledger')
  if found and found[1] == 'completed' and found[2] then
    if not counts[found[2]] then
      order[#order + 1] = found[2]
    end
    counts[found[2]] = (counts[found[2]] or 0) + 1
  end
end
local answer = {}
for _, ledger in ipairs(order) do
  answer[#answer + 1] = ledger
  answer[#answer + 1] = counts[ledger]
end
return answer
