-- master returns two values: the server's replication ID, or nil if the server is not a master; and the reply of INFO.
local function master()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return nil, info.err or '' end
  local _, at = string.find(info, 'master_replid:', 1, true) -- much faster than a pattern
  local id = at and string.match(info, '^%x+', at + 1)
  return not string.find(info, 'role:slave', 1, true) and id or nil, info
end
