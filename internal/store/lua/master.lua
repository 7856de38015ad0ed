-- master returns the server's replication ID if the server is a master; otherwise nil, and what INFO says: for a
-- replica, "role:slave HOST:PORT" with the address of its master.
local function master()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return nil, info.err or '' end
  local _, at = string.find(info, 'master_replid:', 1, true) -- several times faster than a pattern
  local id = at and string.match(info, '^%x+', at + 1)
  local slave = string.find(info, 'role:slave', 1, true)
  if id and slave then
    local host, port = string.match(info, 'master_host:([^\r\n]*)'), string.match(info, 'master_port:(%d+)')
    return nil, 'role:slave ' .. (host or '?') .. ':' .. (port or '?')
  end
  if not id then return nil, info end
  return id
end
