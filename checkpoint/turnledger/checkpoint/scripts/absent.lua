-- Which of some turns have no record. Writes nothing; the caller bounds how many it asks about.
--   ARGV 1 record prefix   2... turn_ids
--   reads turn:<id> of these turns
-- Answer: turn_id, turn_id, ...
local absent = {}
for index = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[index]) == 0 then
    absent[#absent + 1] = ARGV[index]
  end
end
return absent
