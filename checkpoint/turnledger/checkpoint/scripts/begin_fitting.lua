-- A worker begins to rewrite a turn's over-long pieces. The time that this may take runs from the first beginning on,
-- whatever becomes of that worker.
--   KEYS 1 record  hash
--   ARGV 1 how long the rewriting may take, ms
-- Answer: ledger, ms that are left, entry | nothing when there is nothing to rewrite.
local found = redis.call('HMGET', KEYS[1], 'state', 'fitting', 'fit_until', 'fit_begun', 'ledger', 'entry')
if found[1] ~= 'completed' or found[2] ~= 'rewrite' then
  return {}
end
local now = now_ms()
local ends = tonumber(found[3] or '') or 0
if not found[4] then
  ends = math.min(ends, now + ARGV[1])
  redis.call('HSET', KEYS[1], 'fit_begun', now, 'fit_until', ends)
end
return {found[5], math.max(ends - now, 0), found[6]}
