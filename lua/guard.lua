-- guard.lua begins every script. It tells by the server's clock and the record whether the caller may use its period.
--
-- The record is a hash. Its field "entered" holds the last period entered: "LABEL FIRST PAST", its label, its first
-- instant and the first instant after it, in Unix seconds. Periods are compared by these, never by a zone's name.
--
-- KEYS  1  counter: string, the last sequence issued in the period
--       2  record:  hash, as above
-- ARGV  1  n       how many numbers
--       2  period  that the caller thinks it is in, as in the record
--       3  first   its first instant, Unix seconds
--       4  past    the first instant after it, Unix seconds
--       5  limit   the largest sequence, at most 10^15-1
--       6  mark    the greatest sequence of the period that the caller has seen, 0 if none
--
-- Replies that issue nothing are {status, seconds, microseconds, detail}, the middle ones being the server's time:
--   "clock"     the server's clock is not in the period
--   "conflict"  the period entered overlaps it, or bears its label, or a later one, with other bounds; detail: the period
--               entered
--
-- What the script that follows finds: time, now, entered, and
--   stands  "same"    the caller's period is the one entered
--           "open"    it may be opened: there is no record, or the period entered has ended and has an earlier label
--           "future"  the period entered begins after now: the server's clock went back
--   last    what the counter holds, nil for none and for what INCRBY would not take for a number; at most 10^15
--   held    the same as text
--   mark    ARGV 6, as a number
--   lost    the counter was there once, and is gone, below the mark or no number
local time = redis.call('TIME')
local now = tonumber(time[1])

local function answer(status, detail)
  return {status, now, tonumber(time[2]), detail}
end

if now < tonumber(ARGV[3]) or now >= tonumber(ARGV[4]) then
  return answer('clock', '')
end

local stands = 'same'
local entered = redis.call('HGET', KEYS[2], 'entered')
if not entered then
  stands = 'open'
elseif entered ~= ARGV[2] then
  local label, first, past = string.match(entered, '^(%S+) (%d+) (%d+)$')
  if label and tonumber(first) > now then
    stands = 'future'
  elseif label and tonumber(past) <= tonumber(ARGV[3]) and label < string.match(ARGV[2], '^%S+') then
    stands = 'open'
  else
    return answer('conflict', entered)
  end
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  held = 'another type of key'
end
local last
if held and (held == '0' or string.find(held, '^[1-9]%d*$')) then
  last = #held > 15 and 1e15 or tonumber(held) -- beyond every limit, and beyond what a double tells apart
end
local mark = tonumber(ARGV[6])
local lost = (not last or last < mark) and (stands == 'same' or mark > 0 or held)

