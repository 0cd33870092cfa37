-- What is set and what was spent in this window. Writes nothing.
--   KEYS 1 budgets  hash  tokens a window, by `deployment` and `agent:<agent>`; what is not set is unlimited
--   ARGV 1 what precedes a window's number in its key   2 length of a window, ms   3 one agent, '' for all of them
--   also reads spend:<window>
-- Answer: when the window began, ms; the budgets, the spending: each field, value, field, value, ...
local window = math.floor(now_ms() / ARGV[2])
local spent = ARGV[1] .. string.format('%.0f', window)
local began = string.format('%.0f', window * ARGV[2])
if ARGV[3] == '' then
  return {began, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', spent)}
end

local function two(key)
  local agent = 'agent:' .. ARGV[3]
  local found = redis.call('HMGET', key, 'deployment', agent)
  local pairs = {}
  for index, name in ipairs({'deployment', agent}) do
    if found[index] then
      pairs[#pairs + 1] = name
      pairs[#pairs + 1] = found[index]
    end
  end
  return pairs
end

return {began, two(KEYS[1]), two(spent)}
