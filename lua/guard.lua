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
--   used4 ... used14  the labels of so many digits that were ever entered, as runs in ascending order: "FROM-TO;FROM+TO;",
--            or "LABEL-;" for one alone, with + for numbers that were set aside in a ledger. It may name labels that were
--            not, never leave out one that was: where it grows beyond 64 bytes, up to which Redis keeps a hash compact, two
--            runs become one. After Redis's clock has been ahead, what lies above the period entered is suspect: its numbers
--            may have been issued.
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
--   "unknown"   the caller has a ledger, and INFO does not tell the server's reign, or that it is a master; detail: what it
--               says, or its role
-- An error of a command is an error of the script. Only WRONGTYPE tells what a key holds; any other tells nothing.
--
-- What the script that follows finds: time, now, entered, and
--   stands   "same"    the caller's period is the one entered
--            "open"    it may be opened: there is no record, or the period entered has ended and the caller's label is
--                      later than the last of its length, unless a clock that was wrong entered that
--            "ahead"   so it may be, and it was opened ahead of time: it only has to be entered
--            "future"  the period entered begins after now: the server's clock went back
--   last     what the counter holds, as number says
--   held     the same as text
--   mark     ARGV 6, as a number
--   suspect  the period to open has a label that was entered before, by a clock that was ahead: '-', or '+' with a ledger
--   lost     the counter was there once, and is gone, below the mark or no number
--   untold   it is lost, and no ledger can tell how far it had come: there is none, or it was turned on later
--   reign    with a ledger: the server's
--   ceiling  with a ledger: the record's, nil if there is none for the caller's period
--   intact   with a ledger: the counter is the one that was last issued from
--   bare     the caller's period without " ledger"
--   ahead    the record's, '' if there is none
--   answer, milliseconds, read, lifetime, permit, outlives, number, labelOf, known, enter: see there
--
-- Scripts are not rolled back. So whatever may be refused is asked for before the first write, and the record is written
-- before the counter.
local time = redis.call('TIME')
local now = tonumber(time[1])

local function answer(status, detail)
  return {status, now, tonumber(time[2]), detail}
end

local kept = redis.call('HMGET', KEYS[2], 'entered', 'ahead')
local entered, ahead = kept[1], kept[2] or ''

local function milliseconds()
  return now * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- read returns what a counter holds, false if it is not there; and an error as it is, if there is one.
local function read(key)
  local held = redis.pcall('GET', key)
  if type(held) ~= 'table' then
    return held
  end
  if string.find(held.err, '^WRONGTYPE') then
    return 'another type of key'
  end
  return nil, held
end

-- lifetime sets when a key expires: then, or when it does already if that is later: another caller may keep it for longer. A
-- counter that has no record is nobody's. It is called before the key is written, since EXPIREAT may be refused and does
-- nothing to a key that is not there, and once more after.
local function lifetime(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor((milliseconds() + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, string.format('%.0f', math.max(tonumber(at), stays)))
end

-- permit fails if key must not be set. It sets nothing, since the condition is never true.
local function permit(key, there)
  redis.call('SET', key, '', there and 'NX' or 'XX')
end

-- outlives is when the record may expire: seven days after the last period opened, so that the guard still knows the last
-- one after a weekend or a holiday.
local function outlives()
  local past = math.max(tonumber(ARGV[4]), tonumber(string.match(ahead, '(%d+);$') or 0))
  return past + 7 * 24 * 60 * 60
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

local function labelOf(period)
  return string.match(period, '^%S+')
end

-- lastAs returns the label of the last period entered whose labels are as long as this one, and the instant after it; nil if
-- there is none.
local function lastAs(label)
  local period = entered
  if not period or #labelOf(period) ~= #label then
    period = redis.call('HGET', KEYS[2], 'was' .. #label) or ''
  end
  local last, past = string.match(period, '^(%S+) %d+ (%d+)')
  return last, tonumber(past)
end

-- runsOf returns the runs of labels as long as this one that were ever entered. A process of 0.1.0 does not write them: what
-- lies between the last run and a last label that is in none may have been used.
local function runsOf(label)
  local runs = {}
  local function covers(this)
    for _, run in ipairs(runs) do
      if run.from <= this and this <= run.to then
        return run
      end
    end
  end
  for from, how, to in string.gmatch(redis.call('HGET', KEYS[2], 'used' .. #label) or '', '(%w*)([-+])(%w*);') do
    table.insert(runs, {from = from, how = how, to = to == '' and from or to})
  end
  local last = lastAs(label)
  if last and not covers(last) then
    local at = #runs
    while at > 0 and runs[at].to > last do
      at = at - 1
    end
    if at == 0 then
      table.insert(runs, 1, {from = '', how = '-', to = last})
    else
      runs[at].to, runs[at].how = last, '-'
    end
  end
  return runs, covers
end

-- known returns whether a label was ever entered: nil, '-', or '+' with a ledger.
local function known(label)
  local _, covers = runsOf(label)
  local run = covers(label)
  return run and run.how
end

local stands = 'same'
local suspect
local bare = string.gsub(ARGV[2], ' ledger$', '')
local own = labelOf(ARGV[2])
if not entered then
  stands = 'open'
elseif entered ~= ARGV[2] and entered .. ' ledger' ~= ARGV[2] then
  local first, past = string.match(entered, '^%S+ (%d+) (%d+)')
  if first and tonumber(first) > now then
    stands = 'future'
  elseif first and tonumber(past) <= tonumber(ARGV[3]) then
    -- A label is used once: where zones are more than a period apart its numbers would repeat. One that was entered last, but
    -- has not ended, was entered by a clock that was wrong.
    local before, ends = lastAs(own)
    if before and ends <= now and own <= before then
      return answer('conflict', entered)
    end
    stands = 'open'
    suspect = known(own)
    local last, goes = string.match(ahead, '([^;]+ (%d+));$')
    if string.find(ahead, ';' .. bare .. ';', 1, true) then
      stands = 'ahead'
    elseif last and tonumber(goes) > tonumber(ARGV[3]) then -- another calendar's
      return answer('conflict', last)
    end
  else
    return answer('conflict', entered)
  end
end

-- used returns the runs as the record holds them, with one more label: the next one of a run, if it follows the period
-- entered and nothing else is different, or a run of its own.
local function used()
  local runs, covers = runsOf(own)
  local how = bare == ARGV[2] and '-' or '+'
  local run = covers(own)
  local follows = entered and stands ~= 'future' and string.match(entered, '^%S+ %d+ (%d+)') == ARGV[3]
  local previous = follows and covers(labelOf(entered))
  if run then
    if how == '-' then
      run.how = how
    end
  elseif previous and previous.how == how and previous.to == labelOf(entered) then
    previous.to = own
  else
    local at = 1
    while runs[at] and runs[at].to < own do
      at = at + 1
    end
    table.insert(runs, at, {from = own, how = how, to = own})
  end
  while true do
    local text = ''
    for _, r in ipairs(runs) do
      text = text .. r.from .. r.how .. (r.to == r.from and '' or r.to) .. ';'
    end
    if #text <= 64 or #runs == 1 then
      return text
    end
    -- Two runs become one, and with them what lies between. Below the caller's period that does no harm, unless the clock is
    -- ahead now: so the smallest gap goes, and none above it before.
    local at, least
    for i = 1, #runs - 1 do
      local gap = (tonumber(runs[i + 1].from) or 0) - (tonumber(runs[i].to) or 0)
      if runs[i + 1].from > own then
        gap = gap + 1e15
      end
      if not least or gap < least then
        at, least = i, gap
      end
    end
    local lower = table.remove(runs, at)
    runs[at].from = lower.from
    if lower.how == '-' then
      runs[at].how = '-'
    end
  end
end

-- enter makes the caller's the period entered, with what else the record is to hold. What was opened further ahead stays so,
-- unless the clock went back.
local function enter(...)
  lifetime(KEYS[2], outlives())
  local fields = {'entered', ARGV[2], 'used' .. #own, used(), ...}
  local before = stands ~= 'future' and entered and labelOf(entered)
  if before and #before ~= #own then
    table.insert(fields, 'was' .. #before)
    table.insert(fields, entered)
  end
  local rest = ''
  for one, first in string.gmatch(ahead, '([^;]+ (%d+) %d+);') do
    if stands ~= 'future' and tonumber(first) >= tonumber(ARGV[4]) then
      rest = rest .. one .. ';'
    end
  end
  if rest ~= '' then
    rest = ';' .. rest
    table.insert(fields, 'ahead')
    table.insert(fields, rest)
  elseif ahead ~= '' then
    redis.call('HDEL', KEYS[2], 'ahead')
  end
  ahead = rest
  if entered and entered ~= ARGV[2] and bare == ARGV[2] and string.find(entered, ' ledger', 1, true) then
    redis.call('HDEL', KEYS[2], 'ceiling', 'copy', 'reign', 'claim') -- of a period that has ended
  end
  redis.call('HSET', KEYS[2], unpack(fields))
  lifetime(KEYS[2], outlives())
end

local held, failure = read(KEYS[1])
if failure then
  return failure
end
local last = number(held)
local mark = tonumber(ARGV[6])
local lost = (not last or last < mark) and (stands == 'same' or stands == 'ahead' or suspect or mark > 0 or held)

local reign, ceiling, intact
local untold = lost
if bare ~= ARGV[2] then
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then
    return answer('unknown', info.err or '')
  end
  local role = string.match(info, 'role:%a+') or 'role:master'
  reign = string.match(info, 'master_replid:(%x+)')
  if not reign or role ~= 'role:master' then
    return answer('unknown', reign and role or info)
  end
  if entered == ARGV[2] then
    local block = redis.call('HMGET', KEYS[2], 'ceiling', 'copy', 'reign')
    ceiling = tonumber(block[1])
    intact = ceiling and block[2] == held and block[3] == reign and not lost
  end
  untold = lost and (suspect == '-' or stands == 'same' and entered ~= ARGV[2])
end
