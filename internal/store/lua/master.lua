-- master returns the server's replication ID if the server is a master; otherwise nil, and what INFO says.
local function master()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return nil, info.err or '' end
  local _, at = string.find(info, 'master_replid:', 1, true) -- several times faster than a pattern
  local id = at and string.match(info, '^%x+', at + 1)
  local slave = string.find(info, 'role:slave', 1, true)
  if not id or slave then return nil, id and 'role:slave' or info end
  return id
end
