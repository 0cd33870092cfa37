-- A job's status may be all that is left of it, when a queue or a registry was emptied. Looks at a bounded part
-- of the queue: in a longer one the job is taken to be there, until the queue is shorter.
local LOOKED_AT = 1000
local function is_on_its_way(id, job, queue, taken, executions)
  local status = redis.call('HGET', job, 'status')
  if status ~= 'queued' and status ~= 'started' then
    return false
  end
  if redis.call('EXISTS', executions) == 1 or redis.call('LPOS', taken, id) then
    return true
  end
  return status == 'queued' and (redis.call('LLEN', queue) > LOOKED_AT or redis.call('LPOS', queue, id))
end
