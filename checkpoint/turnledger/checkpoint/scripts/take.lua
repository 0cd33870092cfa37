-- A worker begins on a turn. Counts the attempt, or hands out once why the turn was refused.
--   KEYS 1 record  hash
-- Answer: '' no record | state, ledger, attempts so far, refusal to report.
local found = redis.call('HMGET', KEYS[1], 'state', 'ledger', 'refusal', 'reported')
if not found[1] then
  return ''
end
if found[1] == 'completed' then
  return {found[1], found[2], redis.call('HINCRBY', KEYS[1], 'attempts', 1), ''}
end
if found[1] == 'rejected' and found[4] == '0' then
  redis.call('HSET', KEYS[1], 'reported', '1')
  return {found[1], found[2], 0, found[3]}
end
return {found[1], found[2], 0, ''}
