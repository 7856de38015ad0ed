-- prepare: open a period ahead of time, so that whoever is first in it enters it without a lock.
--
-- It may be repeated, and always writes, so that replicas can confirm it.
--
-- KEYS  1  counter, 2 record: as in guard.lua, of the period that it is now
--       3  counter of the period to open
-- ARGV  1 to 7 as in guard.lua; n, limit and expires are not used
--       8  period  to open, "LABEL FIRST PAST"
--       9  first   its first instant, Unix seconds
--      10  expires when its counter does, Unix seconds, at least the end of that period
--      11  base    the sequence before the first that it has, at most the limit
--      12  floor   the highest sequence that may have been used in it, at most the limit; '' if nothing tells; '?' if the
--                  caller is to ask first
--      13  checked '1' if the caller has compared the server's clock with its own, else ''
--
-- Reply: an integer, the sequence at which its counter stands; or, with nothing written, a status as in guard.lua or
--   "future"     the server's clock went back; detail: the period entered
--   "missing"    the period that it is now has to be entered first
--   "check"      the period is not open yet, and the clocks have to be compared first
--   "gap"        what is open ends before it: the periods between have to be opened first, or again
--   "conflict"   what is open goes on after it has begun; detail: the last period opened
--   "floor"      the floor has to be asked; detail: "lost" if its counter was there once
--   "lost"       its counter was there once; detail: what it holds now
if stands == 'future' then
  return answer('future', entered)
end
if stands ~= 'same' then
  return answer('missing', '')
end
local open = string.find(ahead, ';' .. ARGV[8] .. ';', 1, true)
if not open then
  local opened = string.match(ahead, '([^;]+);$') or entered
  local past = string.match(opened, '^%S+ %d+ (%d+)')
  if past ~= ARGV[9] then
    return answer(tonumber(past) < tonumber(ARGV[9]) and 'gap' or 'conflict', opened)
  end
  if ARGV[13] == '' then
    return answer('check', '')
  end
end
local there, failed = read(KEYS[3])
if failed then
  return failed
end
local once = open or there or known(labelOf(ARGV[8])) -- by a clock that was ahead
local used = number(there)
if not used then
  if ARGV[12] == '?' then
    return answer('floor', once and 'lost' or '')
  end
  if ARGV[12] == '' and once then
    return answer('lost', there or '')
  end
  used = tonumber(ARGV[11])
end
used = math.max(used, tonumber(ARGV[12]) or 0) -- nothing was issued yet, so that it may be lifted
if not open then
  ahead = (ahead == '' and ';' or ahead) .. ARGV[8] .. ';'
end
lifetime(KEYS[3], ARGV[10])
permit(KEYS[3], there)
redis.call('HSET', KEYS[2], 'ahead', ahead)
lifetime(KEYS[2], outlives())
if used < 1e15 and string.format('%.0f', used) ~= there then
  redis.call('SET', KEYS[3], string.format('%.0f', used), 'KEEPTTL')
end
lifetime(KEYS[3], ARGV[10])
return used
