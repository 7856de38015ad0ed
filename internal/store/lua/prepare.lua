-- prepare: open a period ahead of time, so that the first caller in it enters it without a lock. The script may be
-- repeated. Unless it refuses, it always writes, so that replicas can confirm it.
--
-- KEYS  1 counter, 2 record, of the current period; 3 counter of the period to open
-- ARGV  1 to 5  as in rules.lua, for the current period; limit and expires are not used
--       6  highWater  the greatest sequence of the current period that the caller has seen, 0 if none
--     for the period to open:
--       7  period   "LABEL FIRST PAST", as in the record
--       8  first    its first instant, Unix seconds
--       9  expires  when its counter expires, Unix seconds, no earlier than the end of that period
--      10  base     the sequence before its first, at most the limit, as for open; 0 if floor is "?" and the caller does
--                   not have the lock
--      11  floor    the highest sequence that may have been used in it, at most 10^15-1; "" without a floor; "?" if
--                   the caller has a floor and has not asked it
--      12  checked  "1" if the caller has compared the server's clock with its own, else "0"
--
-- Reply: an integer, the position of its counter; or, if nothing is written, a status of rules.lua or
--   "missing"          the current period must be entered first
--   "check"            the period is not open yet, and the clocks must be compared first
--   "gap"              the last period opened ends before this one begins: the periods between must be opened first,
--                      or again
--   "conflict" OPENED  the last period opened ends after this one begins
--   "floor" SAYS       the floor must be asked. SAYS is "lost" if the counter once existed; "tried" if a caller with a
--                      ledger and a start was about to ask: it may have set aside a sequence that was not used; else ""
--   "lost" HELD        the counter once existed; HELD is its content now, "" if it is gone
--include time
local id, purpose
local counter, record, highWater = KEYS[1], KEYS[2], ARGV[6] + 0
--include rules
--include writing
if state ~= 'same' then return answer('missing') end
local upcoming, expires, base, floor = KEYS[3], ARGV[9], ARGV[10] + 0, ARGV[11]
local open = string.find(ahead, ';' .. ARGV[7] .. ';', 1, true)
if not open then
  local opened = string.match(ahead, '([^;]+);$') or entered
  local ends = string.match(opened, '^%S+ %S+ (%-?%d+)')
  if ends ~= ARGV[8] then
    return tonumber(ends) < ARGV[8] + 0 and answer('gap') or answer('conflict', opened)
  end
  if ARGV[12] == '0' then return answer('check') end
end
local there, holds = read(upcoming)
local used, name, before = there, string.match(ARGV[7], '^%S+'), (lastOpened())
local once = open or holds or known(name) -- known: by a clock that was ahead
if not there then
  if floor == '?' then
    local tried = baseOf(name) > 0
    if ledger and base > 0 and not once then noteStart(name, base, before, true) end
    return answer('floor', once and 'lost' or tried and 'tried' or nil)
  end
  if floor == '' and once then return answer('lost', holds or '') end
  used = once and baseOf(name) or base
end
used = math.max(used, tonumber(floor) or 0) -- nothing has been issued yet, so it may be lifted
if not open then ahead = (ahead == '' and ';' or ahead) .. ARGV[7] .. ';' end
permitCounter(upcoming, holds, expires)
keep('ahead', ahead)
if not once then noteStart(name, base, before, true) end
write(upcoming, holds, there, used, expires)
return used
