-- True while the record is as it was read: ARGV[first] says how many of the following are fields and values.
-- A field that is not there equals ''.
local function unchanged(record, first)
  for index = first + 1, first + ARGV[first], 2 do
    if (redis.call('HGET', record, ARGV[index]) or '') ~= ARGV[index + 1] then
      return false
    end
  end
  return true
end
