-- What every script starts with. Milliseconds since the epoch, by the clock of Redis alone.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Pushes in chunks: Lua's stack does not hold thousands of arguments.
local function push(command, key, values)
  for first = 1, #values, 500 do
    redis.call(command, key, unpack(values, first, math.min(first + 499, #values)))
  end
end

local function slice(values, first, last)
  local part = {}
  for index = first, last do
    part[#part + 1] = values[index]
  end
  return part
end

-- Record and steps always expire together.
local function expire_together(record, steps, at_ms)
  redis.call('PEXPIREAT', record, at_ms)
  redis.call('PEXPIREAT', steps, at_ms)
end

-- A turn that was parked because its owner fell silent, and whose owner is back before anybody took it over, runs on.
local function run_on(record)
  local found = redis.call('HMGET', record, 'state', 'reason')
  if found[1] == 'parked' and found[2] == 'owner_lost' then
    redis.call('HSET', record, 'state', 'running', 'reason', '')
  end
end

-- nil when this owner may write this revision now; otherwise the refusal to answer with.
local function refusal(record, owner, revision)
  local found = redis.call('HMGET', record, 'state', 'owner', 'revision')
  if not found[1] then
    return {'missing'}
  end
  if found[1] ~= 'running' and found[1] ~= 'parked' then
    return {'ended', found[1]}
  end
  if found[2] ~= owner or found[3] ~= revision then
    return {'stale', found[1], found[2], found[3]}
  end
  return nil
end

-- True while a completed turn may still get accounts in place of its over-long pieces: until then nobody commits it.
local function awaits_fitting(record)
  local found = redis.call('HMGET', record, 'state', 'fitting', 'fit_until')
  return found[1] == 'completed' and found[2] == 'rewrite' and now_ms() < (tonumber(found[3] or '') or 0)
end

-- True while a turn awaits its own accounts, or those of the turn behind which it was found to stand.
local function waits(prefix, id)
  local held = redis.call('HGET', prefix .. id, 'held')
  return awaits_fitting(prefix .. id) or (held and held ~= '' and awaits_fitting(prefix .. held)) or false
end
