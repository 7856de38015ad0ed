-- hot.lua comes first in the scripts that take: the usual case, in as few commands as it can be checked with.
--
-- hot(k, a, now, info) increments the counter KEYS[k+1] of the record KEYS[k+2] by ARGV[a+1], for arguments as in
-- guard.lua. It returns the last number issued; or nil, with nothing written, where anything is out of the ordinary.
-- now is the server's time in seconds; info, with a ledger, what INFO replication says, and nil without.
--
-- An error of one type's keys must not stop another type's, so every command is a pcall.
local function hot(k, a, now, info)
  local counter, record = KEYS[k + 1], KEYS[k + 2]
  if now < tonumber(ARGV[a + 3]) or now >= tonumber(ARGV[a + 4]) then
    return
  end
  local held, ceiling
  if info then
    local kept = redis.pcall('HMGET', record, 'entered', 'ceiling', 'copy', 'reign')
    held = redis.pcall('GET', counter)
    -- An error is a table too: its first three fields are nil.
    if kept[1] ~= ARGV[a + 2] or not kept[2] or not kept[4] or kept[3] ~= held or
        not string.find(info, 'master_replid:' .. kept[4], 1, true) or string.find(info, 'role:slave', 1, true) then
      return
    end
    ceiling = tonumber(kept[2])
  else
    if redis.pcall('HGET', record, 'entered') ~= ARGV[a + 2] then
      return
    end
    held = redis.pcall('GET', counter)
  end
  -- tonumber takes more than a number as INCRBY writes it; what begins like one and is none, INCRBY refuses.
  local last = type(held) == 'string' and (string.byte(held) or 0) > 48 and tonumber(held)
  if not last or last < tonumber(ARGV[a + 6]) then
    return
  end
  local issued = last + tonumber(ARGV[a + 1])
  if issued > tonumber(ARGV[a + 5]) or ceiling and issued > ceiling then
    return
  end
  local left = redis.pcall('PTTL', counter)
  if type(left) ~= 'number' or left < 0 then
    return
  end
  if type(redis.pcall('INCRBY', counter, ARGV[a + 1])) ~= 'number' then
    return
  end
  if info then
    redis.pcall('HSET', record, 'copy', string.format('%.0f', issued))
  end
  return issued
end
