-- guard.lua begins every script that judges a period. It tells by the server's clock and the record whether the caller may use its
-- period, and how its counter stands.
--
-- The record is a hash. Its fields:
--   entered  the last period entered: "LABEL FIRST PAST", its label, its first instant and the first instant after it, in
--            Unix seconds, and " ledger" behind that where its numbers are set aside in one. Periods are compared by these,
--            never by a zone's name.
--   ahead    absent, or the periods that follow it without a gap and were opened ahead of time: ";LABEL FIRST PAST;...;"
--   and of the period entered, with a ledger:
--   ceiling  the last sequence that was set aside
--   copy     of the counter
--   reign    the master_replid under which it was issued from last
--   claim    "TOKEN UNTIL": who may install a block, until then, in milliseconds of the server's time
--   was4 ... was14  where the length of periods has changed: the last period entered whose label has so many digits
--
-- KEYS  1  counter: string, the last sequence issued in the period
--       2  record:  hash, as above
-- ARGV  1  n       how many numbers
--       2  period  that the caller thinks it is in, as in the record
--       3  first   its first instant, Unix seconds
--       4  past    the first instant after it, Unix seconds
--       5  limit   the largest sequence, at most 10^15-1
--       6  mark    the greatest sequence of the period that the caller has seen, 0 if none
--       7  expires when the counter does, Unix seconds, at least past; 0 if the server's clock is so far from the
--                  caller's that it must not enter a period without looking twice
--
-- Replies that issue nothing are {status, seconds, microseconds, detail}, the middle ones being the server's time:
--   "clock"     the server's clock is not in the period
--   "conflict"  the period entered overlaps it, or bears its label with other bounds, or its label or a later one of its
--               length has been used before, or the period entered has a ledger that the caller has not; detail: the
--               period entered
--   "unknown"   the caller has a ledger, and INFO does not tell the server's reign; detail: what it says
--
-- What the script that follows finds: time, now, entered, and
--   stands   "same"    the caller's period is the one entered
--            "open"    it may be opened: there is no record, or the period entered has ended and the caller's label is
--                      later than any of its length
--            "ahead"   so it may be, and it was opened ahead of time: it only has to be entered
--            "future"  the period entered begins after now: the server's clock went back
--   last     what the counter holds, as number says
--   held     the same as text
--   mark     ARGV 6, as a number
--   lost     the counter was there once, and is gone, below the mark or no number
--   reign    with a ledger: the server's
--   ceiling  with a ledger: the record's, nil if there is none for the caller's period
--   intact   with a ledger: the counter is the one that was last issued from
--   bare     the caller's period without " ledger"
--   ahead    the record's, '' if there is none
--   answer, outlive, expire, enter, number: see there
local time = redis.call('TIME')
local now = tonumber(time[1])

local function answer(status, detail)
  return {status, now, tonumber(time[2]), detail}
end

local kept = redis.call('HMGET', KEYS[2], 'entered', 'ahead')
local entered, ahead = kept[1], kept[2] or ''

-- outlive has the record outlive the last period opened by seven days, so that the guard still knows the last one after
-- a weekend or a holiday.
local function outlive()
  local past = math.max(tonumber(ARGV[4]), tonumber(string.match(ahead, '(%d+);$') or 0))
  redis.call('EXPIREAT', KEYS[2], string.format('%.0f', past + 7 * 24 * 60 * 60))
end

-- expire has a counter expire then, or when it did already if that is later: another caller may keep it for longer. One
-- that has no record is nobody's.
local function expire(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor(now + (tonumber(time[2]) / 1000 + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, string.format('%.0f', math.max(tonumber(at), stays)))
end

-- number returns what a counter holds, nil for none and for what INCRBY would not take for a number; at most 10^15, which
-- is beyond every limit and not yet beyond what a double tells apart.
local function number(held)
  if type(held) == 'string' and (held == '0' or string.find(held, '^[1-9]%d*$')) then
    return #held > 15 and 1e15 or tonumber(held)
  end
end

if now < tonumber(ARGV[3]) or now >= tonumber(ARGV[4]) then
  return answer('clock', '')
end

-- later tells whether no period of the length of label has been entered that bears it, or a later one. That would happen
-- where zones are more than a period apart: its numbers would repeat.
local function later(label, than)
  if #label ~= #than then
    local was = redis.call('HGET', KEYS[2], 'was' .. #label) or ''
    local past
    than, past = string.match(was, '^(%S+) %d+ (%d+)')
    if than and tonumber(past) > now then -- entered by a clock that was wrong
      than = nil
    end
  end
  return not than or label > than
end

local stands = 'same'
local bare = string.gsub(ARGV[2], ' ledger$', '')
if not entered then
  stands = 'open'
elseif entered ~= ARGV[2] and entered .. ' ledger' ~= ARGV[2] then
  local label, first, past = string.match(entered, '^(%S+) (%d+) (%d+)')
  if label and tonumber(first) > now then
    stands = 'future'
  elseif label and tonumber(past) <= tonumber(ARGV[3]) and later(string.match(ARGV[2], '^%S+'), label) then
    stands = 'open'
    local last, ends = string.match(ahead, '([^;]+ (%d+));$')
    if string.find(ahead, ';' .. bare .. ';', 1, true) then
      stands = 'ahead'
    elseif last and tonumber(ends) > tonumber(ARGV[3]) then -- another calendar's
      return answer('conflict', last)
    end
  else
    return answer('conflict', entered)
  end
end

-- enter makes the caller's the period entered. What was opened further ahead stays so, unless the clock went back.
local function enter()
  local before = stands ~= 'future' and entered and string.match(entered, '^%S+')
  if before and #before ~= #string.match(ARGV[2], '^%S+') then
    redis.call('HSET', KEYS[2], 'was' .. #before, entered)
  end
  redis.call('HSET', KEYS[2], 'entered', ARGV[2])
  if entered and entered ~= ARGV[2] and bare == ARGV[2] and string.find(entered, ' ledger', 1, true) then
    redis.call('HDEL', KEYS[2], 'ceiling', 'copy', 'reign', 'claim') -- of a period that has ended
  end
  if ahead ~= '' then
    local rest = ''
    for one, first in string.gmatch(ahead, '([^;]+ (%d+) %d+);') do
      if stands ~= 'future' and tonumber(first) >= tonumber(ARGV[4]) then
        rest = rest .. one .. ';'
      end
    end
    ahead = rest == '' and '' or ';' .. rest
    if ahead == '' then
      redis.call('HDEL', KEYS[2], 'ahead')
    else
      redis.call('HSET', KEYS[2], 'ahead', ahead)
    end
  end
  outlive()
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  held = 'another type of key'
end
local last = number(held)
local mark = tonumber(ARGV[6])
local lost = (not last or last < mark) and (stands == 'same' or stands == 'ahead' or mark > 0 or held)

local reign, ceiling, intact
if string.find(ARGV[2], ' ledger', 1, true) then
  local info = redis.pcall('INFO', 'replication')
  reign = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
  if not reign then
    return answer('unknown', type(info) == 'string' and info or info.err or '')
  end
  if entered == ARGV[2] then
    local block = redis.call('HMGET', KEYS[2], 'ceiling', 'copy', 'reign')
    ceiling = tonumber(block[1])
    intact = ceiling and block[2] == held and block[3] == reign and not lost
  end
end
