-- try stands between hot.lua and guard.lua: take is the usual case, or else the rest of the script finds out.
if not ARGV[9] or ARGV[9] == '' then
  local info = ARGV[9] and redis.pcall('INFO', 'replication')
  if type(info) ~= 'table' then
    local issued = hot(0, 0, tonumber(redis.call('TIME')[1]), info)
    if issued then
      return issued
    end
  end
end

