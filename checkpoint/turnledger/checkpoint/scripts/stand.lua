-- Where a completed turn stands in its ledger's pending list. One that stands behind a turn that awaits its rewriting,
-- or awaits its own, is marked for good: it gives up its job, and the commit of the turn before it takes it along.
--   KEYS 1 pending  list   2 record  hash
--   ARGV 1 turn_id   2 record prefix
--   also reads turn:<id> of the turns before it
-- Answer: how many stand before it, -1 when it is not there; the turn it waits for or ''.
local place = redis.call('LPOS', KEYS[1], ARGV[1])
if not place then
  return {-1, ''}
end
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, place)) do
  if awaits_fitting(ARGV[2] .. id) then
    redis.call('HSET', KEYS[2], 'held', id, 'attempts', '0')
    return {place, id}
  end
end
return {place, ''}
