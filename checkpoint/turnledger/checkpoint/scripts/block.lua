-- Marks an unfinished turn that cannot be resumed safely. The fence stays: whoever holds it may still complete it.
--   KEYS 1 record  hash
--   ARGV 1 reason
-- Answer: 1 marked | 0 it is not unfinished.
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'running' and state ~= 'parked' then
  return 0
end
redis.call('HSET', KEYS[1], 'blocked', ARGV[1])
return 1
